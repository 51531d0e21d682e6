//! The commands of a batch are done in their order.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::history::{Operation, Outcome, Request};

/// A try of a batch: its id, its client, and when it was sent.
type Try<'h> = (&'h str, u32, u64);

/// The events of commands, with the places of the commands in the batch: the place, the offset, and
/// an operation.
type Events = Vec<(u32, u64, u64)>;

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    let mut answered: BTreeMap<(u64, Try<'_>), Events> = BTreeMap::new();
    let mut logged: BTreeMap<(u64, &str), Events> = BTreeMap::new();
    for operation in &facts.operations {
        let Request::Write { id, place: Some(place), .. } = &operation.request else { continue };
        let Operation { client, begin, ws, number, .. } = **operation;
        // A repeated answer is that of an earlier try, which may have done other commands.
        if let Outcome::Written(written) = &operation.outcome
            && !written.repeated
        {
            let events = answered.entry((ws, (id.as_str(), client, begin))).or_default();
            events.push((*place, written.wlog, number));
        }
    }
    // A batch without a key runs once, even if its answer is lost.
    for (id, command) in facts.commands.iter().filter(|(_, command)| !command.has_key) {
        let (Some(place), Some(number)) = (id.place, command.numbers().first().copied()) else {
            continue;
        };
        let events = command.events.iter().map(|(ws, event)| (*ws, event.wlog));
        for (ws, wlog) in events {
            logged.entry((ws, id.request)).or_default().push((place, wlog, number));
        }
    }
    let answered = answered.into_iter().map(|((_, (id, ..)), events)| (id, events, "answered"));
    let logged = logged.into_iter().map(|((_, id), events)| (id, events, "logged"));
    for (id, mut events, how) in answered.chain(logged) {
        events.sort_unstable();
        for pair in events.windows(2) {
            let [(first, offset, number), (second, later, other)] = *pair else { continue };
            if first != second && offset >= later {
                let text = format!(
                    "command {first} of batch {id:?} was {how} as event {offset}, and command {second} as event {later}"
                );
                found.push((text, vec![number, other]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{FIRST_ID, Scene, article, create, texts};

    /// A batch of two commands, which were done in this order.
    fn batch(has_key: bool, order: [u32; 2]) -> Scene {
        let mut scene = Scene::new();
        let mut answers = Vec::new();
        for (id, place) in (FIRST_ID..).zip(order) {
            let version = scene.event_of("batch", article(id, &place.to_string()));
            answers.push((place, scene.written(version, vec![(1, id)])));
        }
        answers.sort_by_key(|(place, _)| *place);
        for (of, answer) in answers {
            let mut request = create(&of.to_string(), has_key);
            let Request::Write { id, place, .. } = &mut request else { unreachable!() };
            (*id, *place) = ("batch".to_owned(), Some(of));
            scene.operation(request, answer);
        }
        // Both commands were sent by one request.
        scene.history.operations[1].begin = scene.history.operations[0].begin;
        scene
    }

    fn found(scene: &Scene) -> Vec<String> {
        texts(find(&Facts::of(&scene.history)))
    }

    #[test]
    fn commands_that_were_answered_in_another_order_are_found() {
        assert_eq!(found(&batch(true, [0, 1])), [""; 0]);
        let mut scene = batch(true, [1, 0]);
        let texts = found(&scene);
        assert!(texts[0].contains("command 0 of batch \"batch\" was answered as event 2"));
        // A command that was refused first is done after the later ones, by another try.
        scene.answer(1).repeated = true;
        assert_eq!(found(&scene), [""; 0]);
        let mut scene = batch(true, [1, 0]);
        scene.history.operations[1].begin += 1;
        assert_eq!(found(&scene), [""; 0], "answers of two tries");
    }

    #[test]
    fn commands_with_one_event_are_found() {
        let mut scene = batch(true, [0, 1]);
        scene.answer(1).wlog = 1;
        assert!(found(&scene)[0].contains("command 1 as event 1"));
    }

    #[test]
    fn events_of_a_batch_without_an_answer_in_another_order_are_found() {
        for (has_key, order, is_right) in
            [(false, [0, 1], true), (false, [1, 0], false), (true, [1, 0], true)]
        {
            let mut scene = batch(has_key, order);
            for operation in &mut scene.history.operations {
                operation.outcome = Outcome::Unknown { why: "cut".into() };
            }
            assert_eq!(found(&scene).is_empty(), is_right, "{has_key} {order:?}");
        }
    }
}
