//! Logs that are read or followed.

use std::collections::{BTreeMap, HashMap};

use super::{Facts, Found, facts::EventTime};
use crate::{
    history::{Event, Operation, Outcome, Request},
    real_time_order::{Ranked, contradiction, of_read, of_write},
};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    // A run that did not end has no final logs, and its reads still must not go back.
    let mut reads: BTreeMap<u64, Vec<&Operation>> =
        facts.end.logs.keys().map(|ws| (*ws, Vec::new())).collect();
    for operation in facts.operations.iter().filter(|operation| read_of(operation).is_some()) {
        reads.entry(operation.ws).or_default().push(operation);
    }
    for (ws, reads) in &reads {
        let mut operations: Vec<Ranked> = Vec::new();
        for event in facts.end.logs.get(ws).into_iter().flatten() {
            if let Some(time) = facts.time_of(*ws, event) {
                let rank = of_write(event.wlog as usize);
                let EventTime { begin, end, operation } = time;
                operations.push(Ranked { begin, end, rank, operation });
            }
        }
        for operation in reads {
            let Some((from, events, is_followed)) = read_of(operation) else { continue };
            let wrong = wrong_content(facts, *ws, from, events);
            found.extend(wrong.map(|text| (text, vec![operation.number])));
            let last = events.last().map_or(from.saturating_sub(1), |event| event.wlog);
            // An offset past the end says nothing about the end.
            if events.is_empty() && (is_followed || last > facts.log_end(*ws)) {
                continue;
            }
            let Operation { begin, end, number, .. } = **operation;
            // A follower need not be at the end of the log. What it got is in all later reads.
            let begin = if is_followed { 0 } else { begin };
            let rank = of_read(last as usize);
            operations.push(Ranked { begin, end, rank, operation: number });
        }
        if let Some((earlier, later)) = contradiction(&operations) {
            let text = format!(
                "the log of workspace {ws}: operation {} ended before operation {} began, and saw or wrote a later event",
                earlier.operation, later.operation
            );
            found.push((text, vec![earlier.operation, later.operation]));
        }
    }
    found.extend(early_events(facts));
    found.extend(followers(facts));
    found.extend(ends_of_followers(facts));
    found
}

/// The first offset that was read from a log, the events, and whether it was followed.
fn read_of(operation: &Operation) -> Option<(u64, &[Event], bool)> {
    let Outcome::Events { events } = &operation.outcome else { return None };
    match operation.request {
        Request::Log { from } => Some((from, events, false)),
        Request::Follow { from, .. } => Some((from, events, true)),
        _ => None,
    }
}

/// Compares the events of a read with those of the final log.
fn wrong_content(facts: &Facts<'_>, ws: u64, from: u64, events: &[Event]) -> Option<String> {
    (from..).zip(events).find_map(|(offset, event)| {
        if event.wlog != offset {
            return Some(format!("event {} came in place of event {offset}", event.wlog));
        }
        match facts.event_at(ws, offset) {
            Some(there) if there == event => None,
            None if !facts.has_log(ws) => None,
            there => Some(format!("{event:?} was read, and the log has {there:?}")),
        }
    })
}

/// Finds events that were read before their commands were sent.
fn early_events(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    for operation in &facts.operations {
        let Some((_, events, true)) = read_of(operation) else { continue };
        let is_early = |event: &&Event| {
            facts.time_of(operation.ws, event).is_some_and(|time| time.begin > operation.end)
        };
        if let Some(event) = events.iter().find(is_early) {
            let text = format!("event {} was followed before its command was sent", event.wlog);
            found.push((text, vec![operation.number]));
        }
    }
    found
}

/// Finds followers that stopped without an event that was acknowledged before.
fn ends_of_followers(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    for operation in &facts.operations {
        let Request::FollowEnd { follower, next } = operation.request else { continue };
        let is_missing = |other: &&&Operation| {
            let Outcome::Written(written) = &other.outcome else { return false };
            let is_before = other.ws == operation.ws && other.end < operation.begin;
            is_before && written.wlog >= next
        };
        if let Some(missing) = facts.operations.iter().find(is_missing) {
            let text = format!(
                "follower {follower} stopped before event {next}, and operation {} was acknowledged before",
                missing.number
            );
            found.push((text, vec![missing.number, operation.number]));
        }
    }
    found
}

/// Finds followers that got an event twice, or not at all.
fn followers(facts: &Facts<'_>) -> Found {
    let mut next: HashMap<(u64, u32), u64> = HashMap::new();
    let mut found = Found::new();
    for operation in &facts.operations {
        let (follower, from) = match operation.request {
            Request::Follow { follower, from } => (follower, from),
            Request::FollowEnd { follower, next } => (follower, next),
            _ => continue,
        };
        let Outcome::Events { events } = &operation.outcome else { continue };
        let next = next.entry((operation.ws, follower)).or_insert(from);
        if from != *next {
            let text = format!("follower {follower} goes on at {from} in place of {next}");
            found.push((text, vec![operation.number]));
        }
        *next = from + events.len() as u64;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::{Scene, texts},
        history::FinalState,
    };

    fn events(scene: &mut Scene, read: usize) -> &mut Vec<Event> {
        match &mut scene.history.operations[read].outcome {
            Outcome::Events { events } => events,
            _ => unreachable!(),
        }
    }

    fn three_events() -> (Scene, usize) {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("b");
        scene.create("c");
        let read = scene.read_log(1);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        (scene, read)
    }

    #[test]
    fn a_log_without_an_acknowledged_event_is_found() {
        let (mut scene, read) = three_events();
        events(&mut scene, read).pop();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw or wrote a later event"));
        let (mut scene, read) = three_events();
        events(&mut scene, read).clear();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw or wrote a later event"));
        // The event that was acknowledged is proof enough.
        scene.unmark();
        scene.log().drain(..2);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw or wrote a later event"));
    }

    #[test]
    fn a_hole_in_a_log_that_is_read_is_found() {
        let (mut scene, read) = three_events();
        events(&mut scene, read).remove(1);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("in place of event 2"));
    }

    #[test]
    fn another_event_than_that_of_the_final_log_is_found() {
        let (mut scene, read) = three_events();
        events(&mut scene, read)[1].request = "replaced".into();
        scene.unmark();
        scene.log().remove(0);
        let found = texts(find(&Facts::of(&scene.history)));
        assert!(found[0].contains("and the log has"), "{found:?}");
        scene.log().remove(0);
        assert_eq!(find(&Facts::of(&scene.history)), [], "the history need not have the event");
    }

    /// No client reads the log.
    #[test]
    fn events_in_another_order_than_their_commands_are_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("b");
        assert_eq!(find(&Facts::of(&scene.history)), []);
        let (first, second) = scene.history.operations.split_at_mut(1);
        std::mem::swap(&mut first[0].begin, &mut second[0].begin);
        std::mem::swap(&mut first[0].end, &mut second[0].end);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw or wrote a later event"));
    }

    /// A run that did not end has no final log.
    #[test]
    fn a_log_that_goes_back_is_found_without_a_final_log() {
        let (mut scene, _) = three_events();
        scene.read_log(1);
        scene.history.end = FinalState::default();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        events(&mut scene, 4).pop();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw or wrote a later event"));
    }

    #[test]
    fn a_log_that_goes_back_is_found() {
        let (mut scene, _) = three_events();
        scene.history.operations[2].outcome = Outcome::Unknown { why: "cut".into() };
        let again = scene.read_log(2);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        events(&mut scene, again).pop();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw or wrote a later event"));
    }

    #[test]
    fn a_log_that_goes_back_behind_a_follower_is_found() {
        let (mut scene, read) = three_events();
        scene.history.operations.truncate(read);
        scene.history.operations[2].outcome = Outcome::Unknown { why: "cut".into() };
        let mut follow = |from: usize, end: usize| {
            let events = scene.log()[from - 1..end].to_vec();
            let request = Request::Follow { follower: 1, from: from as u64 };
            scene.operation(request, Outcome::Events { events });
        };
        follow(1, 3);
        // Another follower that is late is right.
        follow(1, 2);
        let Request::Follow { follower, .. } = &mut scene.history.operations[4].request else {
            unreachable!()
        };
        *follower = 2;
        let read = scene.read_log(2);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        events(&mut scene, read).pop();
        let found = find(&Facts::of(&scene.history));
        assert!(found[0].0.contains("saw or wrote a later event"), "{found:?}");
        assert_eq!(found[0].1, [3, read as u64]);
    }

    #[test]
    fn a_follower_that_misses_or_repeats_an_event_is_found() {
        for (from, is_right) in [(3, true), (2, false), (4, false)] {
            let (mut scene, _) = three_events();
            let log = scene.log().clone();
            let mut follow = |from: u64, events: &[Event]| {
                let events = events.to_vec();
                let request = Request::Follow { follower: 1, from };
                scene.operation(request, Outcome::Events { events });
            };
            follow(1, &log[..2]);
            follow(from, &log[from as usize - 1..]);
            assert_eq!(find(&Facts::of(&scene.history)).is_empty(), is_right, "{from}");
        }
    }

    #[test]
    fn an_event_that_is_followed_before_it_was_sent_is_found() {
        let (mut scene, _) = three_events();
        let events = vec![scene.log()[0].clone()];
        let request = Request::Follow { follower: 1, from: 1 };
        let follow = scene.operation(request, Outcome::Events { events });
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.history.operations[0].begin = 1_000;
        scene.history.operations[0].end = 1_001;
        scene.history.operations.truncate(1 + follow);
        assert!(
            texts(find(&Facts::of(&scene.history)))
                .iter()
                .any(|text| text.contains("was followed before"))
        );
    }

    #[test]
    fn a_follower_that_does_not_reach_the_end_is_found() {
        for (next, is_right) in [(4, true), (3, false)] {
            let (mut scene, _) = three_events();
            let events = scene.log()[..next as usize - 1].to_vec();
            let request = Request::Follow { follower: 1, from: 1 };
            scene.operation(request, Outcome::Events { events });
            let request = Request::FollowEnd { follower: 1, next };
            scene.operation(request, Outcome::Events { events: Vec::new() });
            // An event after the stop need not come.
            scene.create("late");
            assert_eq!(find(&Facts::of(&scene.history)).is_empty(), is_right, "{next}");
        }
    }
}
