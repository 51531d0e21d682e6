//! One effect and one answer for each idempotency key, for as long as the key is kept.

use super::{
    Facts, Found,
    facts::{Command, Known},
};
use crate::history::{CommandId, Operation, Outcome, Written};

/// Half of the time that a node keeps keys: the clocks of nodes jump by hours.
const KEPT: u64 = 12 * 60 * 60 * 1_000_000;

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    for (id, command) in &facts.commands {
        found.extend(repeated_for_nothing(id, command));
        if command.has_key {
            found.extend(two_answers(id, command));
            found.extend(taken_for_another(id, command));
            found.extend(forgotten(id, command, facts));
        }
    }
    found
}

/// Finds two answers that are not those of one effect.
fn two_answers(id: &CommandId<'_>, command: &Command<'_>) -> Found {
    let mut found = Found::new();
    let mut first: Option<(&Operation, &Written)> = None;
    for (operation, written) in command.answers() {
        let (first, answer) = *first.get_or_insert((operation, written));
        let is_same = (answer.wlog, answer.version, &answer.ids)
            == (written.wlog, written.version, &written.ids);
        if !is_same {
            let text = format!("key {id} has the answers {answer:?} and {written:?}");
            found.push((text, vec![first.number, operation.number]));
        }
    }
    let new = |of: &(&Operation, &Written)| !of.1.repeated;
    let new: Vec<u64> = command.answers().filter(new).map(|(of, _)| of.number).collect();
    if new.len() > 1 {
        found.push((format!("key {id} has {} answers of a first effect", new.len()), new));
    }
    found
}

fn taken_for_another(id: &CommandId<'_>, command: &Command<'_>) -> Found {
    let is_taken = |of: &&&Operation| matches!(&of.outcome, Outcome::Refused { code, .. } if code == "key_reused");
    let taken = command.tries.iter().filter(is_taken);
    let text = format!("key {id} was refused as that of another request");
    taken.map(|of| (text.clone(), vec![of.number])).collect()
}

/// Finds answers that repeat an answer although no earlier try can have had an effect. A cluster
/// may send a command with a key again by itself.
fn repeated_for_nothing(id: &CommandId<'_>, command: &Command<'_>) -> Found {
    let mut found = Found::new();
    for (operation, written) in command.answers().filter(|(_, written)| written.repeated) {
        let could_be_done = |of: &&Operation| {
            of.number != operation.number
                && of.begin < operation.end
                && !matches!(of.outcome, Outcome::Refused { .. })
        };
        let is_sent_again = written.served_by.is_some();
        let is_repeated =
            is_sent_again || command.tries.iter().copied().any(|of| could_be_done(&of));
        if !command.has_key || !is_repeated {
            let text = format!("command {id} got a repeated answer, and was not done before");
            found.push((text, command.numbers()));
        }
    }
    found
}

/// Finds tries that were sent after the effect of their key was known, and that did not get its
/// answer.
fn forgotten(id: &CommandId<'_>, command: &Command<'_>, facts: &Facts<'_>) -> Found {
    let effects = command.events.iter().filter_map(|(ws, event)| facts.known_by(*ws, event));
    let answered = command.answers().map(|(of, _)| Known { at: of.end, operation: of.number });
    let Some(known) = effects.chain(answered).min_by_key(|known| known.at) else {
        return Found::new();
    };
    let is_later = |of: &&&Operation| of.begin > known.at && of.begin - known.at < KEPT;
    let is_wrong = |of: &&&Operation| match &of.outcome {
        Outcome::Written(written) => !written.repeated,
        Outcome::Refused { status, .. } => !matches!(status, 408 | 429 | 503),
        _ => false,
    };
    let wrong = command.tries.iter().filter(is_later).filter(is_wrong);
    let text = |of: &Operation| {
        format!("key {id} had an effect, and operation {} got {:?}", of.number, of.outcome)
    };
    wrong.map(|of| (text(of), vec![known.operation, of.number])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{Scene, create, refusal, texts};

    fn found(scene: &Scene) -> Vec<String> {
        texts(find(&Facts::of(&scene.history)))
    }

    fn unknown() -> Outcome {
        Outcome::Unknown { why: "cut".into() }
    }

    /// A command that is done, with the outcomes of further tries.
    fn done() -> (Scene, Outcome) {
        let mut scene = Scene::new();
        scene.create_with_key("a");
        let mut again = scene.history.operations[0].outcome.clone();
        let Outcome::Written(written) = &mut again else { unreachable!() };
        written.repeated = true;
        (scene, again)
    }

    #[test]
    fn a_key_with_two_answers_is_found() {
        let (mut scene, again) = done();
        let second = scene.again(0, again);
        assert_eq!(found(&scene), [""; 0]);
        scene.answer(second).wlog += 1;
        assert!(found(&scene)[0].contains("has the answers"));
        scene.answer(second).wlog -= 1;
        scene.answer(second).repeated = false;
        assert!(found(&scene)[0].contains("answers of a first effect"));
    }

    /// The promise has no exception for a cluster, for tries that overlap, or for one that follows
    /// at once.
    #[test]
    fn a_second_first_effect_is_found_however_near_the_tries_are() {
        for (begin, texts) in [
            (0, &["answers of a first effect"][..]),
            (5, &["answers of a first effect"]),
            (6, &["answers of a first effect", "had an effect"]),
        ] {
            let (mut scene, _) = done();
            scene.answer(0).served_by = Some("127.0.0.1:1".into());
            let again = scene.history.operations[0].outcome.clone();
            let second = scene.again(0, again);
            scene.answer(second).served_by = Some("127.0.0.1:2".into());
            scene.history.operations[second].begin = begin;
            let found = found(&scene);
            assert_eq!(found.len(), texts.len(), "{found:?}");
            assert!(found.iter().zip(texts).all(|(found, text)| found.contains(text)));
        }
    }

    #[test]
    fn a_key_that_is_taken_for_that_of_another_request_is_found() {
        let (mut scene, _) = done();
        scene.history.operations[0].outcome = refusal(422, "key_reused");
        assert!(found(&scene)[0].contains("another request"));
    }

    #[test]
    fn a_key_that_is_forgotten_is_found() {
        for wrong in [refusal(409, "conflict"), refusal(404, "not_found")] {
            let (mut scene, again) = done();
            scene.again(0, refusal(503, "stopping"));
            scene.again(0, unknown());
            scene.again(0, again);
            assert_eq!(found(&scene), [""; 0]);
            scene.again(0, wrong);
            assert!(found(&scene)[0].contains("had an effect"));
        }
    }

    #[test]
    fn an_effect_that_only_others_saw_is_known_too() {
        for is_read in [true, false] {
            let (mut scene, _) = done();
            scene.history.operations[0].outcome = unknown();
            match is_read {
                true => drop(scene.read_log(1)),
                false => drop(scene.create("later")),
            }
            assert_eq!(found(&scene), [""; 0]);
            scene.again(0, refusal(409, "conflict"));
            assert!(found(&scene)[0].contains("had an effect"));
        }
    }

    #[test]
    fn a_repeated_answer_after_refusals_alone_is_found() {
        for (first, is_right) in [(refusal(503, "stopping"), false), (unknown(), true)] {
            let (mut scene, again) = done();
            scene.history.operations[0].outcome = first;
            let second = scene.again(0, again);
            assert_eq!(found(&scene).is_empty(), is_right);
            scene.answer(second).served_by = Some("127.0.0.1:1".into());
            assert_eq!(found(&scene), [""; 0], "a cluster sends commands again");
        }
    }

    #[test]
    fn a_repeated_answer_without_a_key_is_found() {
        let (mut scene, _) = done();
        scene.history.operations[0].request = create("a", false);
        scene.answer(0).repeated = true;
        assert!(found(&scene)[0].contains("not done before"));
    }
}
