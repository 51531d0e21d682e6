//! Answered commands are done once, refused ones never, and others at most once.

use super::{Facts, Found, facts::Command};
use crate::history::{CommandId, Event, Operation, Outcome, Part};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    for (id, command) in &facts.commands {
        for text in disagreements(id, command, facts) {
            found.push((text, command.numbers()));
        }
    }
    let logs = facts.end.logs.iter();
    for (ws, events) in logs.filter(|(ws, _)| facts.end.is_whole(Part::Operations(**ws))) {
        let is_unsent = |event: &&Event| !facts.of_event.contains_key(&(*ws, event.wlog));
        for event in events.iter().filter(is_unsent) {
            let text = format!(
                "no client sent command {:?} of event {} of workspace {ws}",
                event.request, event.wlog
            );
            found.push((text, Vec::new()));
        }
    }
    found
}

fn disagreements(id: &CommandId<'_>, command: &Command<'_>, facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let done = &command.events;
    if done.len() > 1 {
        wrong.push(format!("command {id} has {} events", done.len()));
    }
    if let Some((ws, _)) = done.iter().find(|(ws, _)| *ws != command.ws) {
        wrong.push(format!("command {id} of workspace {} has an event in {ws}", command.ws));
    }
    if was_refused(command) && !done.is_empty() {
        wrong.push(format!("command {id} was refused, and has an event"));
    }
    for (_, written) in command.answers() {
        let is_named = |(_, event): &(u64, &Event)| {
            event.wlog == written.wlog && event.version == written.version
        };
        // An event of another place, or another event in its place, is proof enough.
        let is_proven = !done.is_empty()
            || facts.has_log(command.ws)
            || facts.event_at(command.ws, written.wlog).is_some();
        if is_proven && !done.iter().any(is_named) {
            wrong.push(format!("command {id} was answered as {written:?}, and has no such event"));
        }
    }
    let is_in_log = command.tries.iter().any(|of| of.outcome.says_not_applied());
    if is_in_log && done.is_empty() && facts.has_log(command.ws) {
        wrong.push(format!("command {id} was answered as not applied, and is not in the log"));
    }
    wrong
}

/// Whether each try was refused, or the partition refused one after all others had an answer.
fn was_refused(command: &Command<'_>) -> bool {
    let is_refused = |of: &Operation| matches!(of.outcome, Outcome::Refused { .. });
    let is_before =
        |of: &Operation, last: &Operation| of.outcome.says_unknown() && of.end < last.begin;
    // The partition refuses with these codes. No refused command of a client would be accepted
    // later: a document that is found stays, and a version that has passed does not come back. So a
    // copy that a node has forwarded and that arrives late is refused, too.
    let is_final = |last: &Operation| {
        let by_partition = matches!(
            &last.outcome,
            Outcome::Refused { code, .. } if matches!(&**code, "not_found" | "conflict")
        );
        by_partition && command.tries.iter().all(|of| is_refused(of) || is_before(of, last))
    };
    command.tries.iter().all(|of| is_refused(of)) || command.tries.iter().any(|of| is_final(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{Scene, refusal, texts};

    fn found(scene: &Scene) -> Vec<String> {
        texts(find(&Facts::of(&scene.history)))
    }

    #[test]
    fn right_answers_are_accepted() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.refused("b");
        scene.unknown("c", true);
        scene.unknown("d", false);
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    #[test]
    fn an_acknowledged_command_without_an_event_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("lost");
        scene.log().pop();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("has no such event"));
        // The event may lie in a part of the log that the history does not have.
        scene.unmark();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        let another = scene.log()[0].clone();
        scene.log().push(Event { wlog: 2, ..another });
        assert!(texts(find(&Facts::of(&scene.history))).concat().contains("has no such event"));
    }

    #[test]
    fn an_answer_that_names_another_place_than_the_event_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.unmark();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.answer(0).wlog = 7;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("has no such event"));
    }

    #[test]
    fn a_command_that_is_in_the_log_by_its_answer_and_is_not_there_is_found() {
        for is_done in [true, false] {
            let mut scene = Scene::new();
            scene.unknown("a", is_done);
            let why = r#"500: {"code":"not_applied","status":500}"#;
            scene.history.operations[0].outcome = Outcome::Unknown { why: why.into() };
            assert_eq!(find(&Facts::of(&scene.history)).is_empty(), is_done);
            scene.unmark();
            assert_eq!(find(&Facts::of(&scene.history)), []);
        }
    }

    #[test]
    fn a_command_that_was_applied_twice_is_found() {
        for id in ["acknowledged", "open"] {
            let mut scene = Scene::new();
            match id {
                "open" => scene.unknown(id, true),
                _ => drop(scene.create(id)),
            }
            let again = scene.log()[0].clone();
            scene.append(again);
            assert!(texts(find(&Facts::of(&scene.history)))[0].contains("has 2 events"));
        }
    }

    #[test]
    fn a_refused_command_with_an_event_is_found() {
        let mut scene = Scene::new();
        scene.unknown("refused", true);
        scene.history.operations.clear();
        scene.refused("refused");
        assert!(
            texts(find(&Facts::of(&scene.history)))[0].contains("was refused, and has an event")
        );
    }

    /// A new leader refused a try, and then the write of an earlier try landed.
    #[test]
    fn a_command_that_is_done_after_its_partition_refused_it_is_found() {
        let answered = r#"504: {"code":"unknown","status":504}"#;
        for (first, last, is_right) in [
            (answered, refusal(404, "not_found"), false),
            (answered, refusal(409, "conflict"), false),
            (answered, refusal(503, "stopping"), true),
            ("cut", refusal(404, "not_found"), true),
        ] {
            let mut scene = Scene::new();
            scene.unknown("late", true);
            scene.history.operations[0].outcome = Outcome::Unknown { why: first.into() };
            let last = scene.again(0, last);
            assert_eq!(found(&scene).is_empty(), is_right, "{first}");
            // The earlier try had no answer yet, so it may have come after the other one.
            scene.history.operations[last].begin = scene.history.operations[0].end;
            assert_eq!(found(&scene), [""; 0]);
        }
    }

    #[test]
    fn an_event_that_nobody_sent_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.history.operations.clear();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("no client sent"));
        // The command may be one of those that the history does not have.
        scene.unmark();
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }
}
