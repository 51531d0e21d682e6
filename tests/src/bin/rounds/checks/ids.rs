//! Ids of records: each is new once, and none is left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Facts, Found, values};
use crate::{
    final_state::{BLOCK, FIRST},
    history::{Change, CommandId, RecordKey, Version},
};

/// The command that made each record, with one of its tries.
type Makers<'h> = BTreeMap<RecordKey, (CommandId<'h>, u64)>;

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut found = left_out(facts);
    let (mut makers, twice) = makers(facts);
    found.extend(twice);
    found.extend(answered_twice(facts, &mut makers));
    found.extend(recorded_twice(facts, &makers));
    found
}

/// Finds ids that do not follow the last one of their block.
fn left_out(facts: &Facts<'_>) -> Found {
    let mut found = Found::new();
    for (ws, events) in &facts.end.logs {
        let mut known = HashSet::new();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for event in events.iter().take_while(|event| facts.has_log_until(*ws, event.wlog)) {
            let mut ids: Vec<u64> = event.rows.iter().map(|row| row.id).collect();
            ids.retain(|id| *id >= BLOCK && known.insert(*id));
            ids.sort_unstable();
            for id in ids {
                let block = id / BLOCK;
                let expected = last.get(&block).map_or(block * BLOCK + FIRST, |last| last + 1);
                if id != expected {
                    let text = format!(
                        "event {} of workspace {ws} gives the id {id}, and not {expected}",
                        event.wlog
                    );
                    found.push((text, Vec::new()));
                }
                last.insert(block, id);
            }
        }
    }
    found
}

/// Returns the makers of records by the final logs, and the ids that an event made although an
/// event before it has them. A client need not have seen any answer.
fn makers<'h>(facts: &Facts<'h>) -> (Makers<'h>, Found) {
    let (mut makers, mut found) = (Makers::new(), Found::new());
    for (ws, events) in &facts.end.logs {
        let mut seen: HashMap<u64, u64> = HashMap::new();
        for event in events {
            let id = facts.of_event.get(&(*ws, event.wlog));
            let command = id.and_then(|id| Some((*id, facts.commands.get(id)?)));
            let made = command.map(|(_, command)| values::made(command, event));
            for id in made.into_iter().flatten() {
                let Some((request, command)) = command else { continue };
                let numbers = command.numbers();
                if let Some(first) = seen.get(&id) {
                    let text = format!(
                        "the id {id} was given to {request} by event {} of workspace {ws}, and event {first} has it",
                        event.wlog
                    );
                    found.push((text, numbers));
                } else if let Some(number) = numbers.first() {
                    makers.insert((*ws, id), (request, *number));
                }
            }
            for row in &event.rows {
                seen.entry(row.id).or_insert(event.wlog);
            }
        }
    }
    (makers, found)
}

/// Finds ids that an answer names as new although another command made them.
fn answered_twice<'h>(facts: &Facts<'h>, makers: &mut Makers<'h>) -> Found {
    let mut found = Found::new();
    for operation in &facts.operations {
        let Some((request, Some(written))) = operation.write() else { continue };
        for (_, id) in &written.ids {
            let first = *makers.entry((operation.ws, *id)).or_insert((request, operation.number));
            if first.0 != request {
                let text = format!("the id {id} was given to {} and to {request}", first.0);
                found.push((text, vec![first.1, operation.number]));
            }
        }
    }
    found
}

/// Finds final records that have the version of a command that makes records, although another
/// command made the record. The log of the partition tells the command of the version.
fn recorded_twice(facts: &Facts<'_>, makers: &Makers<'_>) -> Found {
    let events = facts.end.partitions.values().flatten();
    let requests: HashMap<(u64, Version), &str> =
        events.map(|event| ((event.ws, event.version), &*event.request)).collect();
    let mut found = Found::new();
    for ((ws, id), record) in facts.end.records.iter().chain(&facts.end.listed) {
        let Some(request) = requests.get(&(*ws, record.version)) else { continue };
        let id_of = CommandId { request, place: None };
        let Some(command) = facts.commands.get(&id_of) else { continue };
        let Some((first, number)) = makers.get(&(*ws, *id)) else { continue };
        if *command.change == Change::Create && *first != id_of {
            let text = format!(
                "the id {id} was given to {first}, and the record is that of {id_of}, which makes records"
            );
            found.push((text, [&[*number][..], &command.numbers()].concat()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::{Scene, article, texts},
        history::Outcome,
    };

    #[test]
    fn an_id_that_is_left_out_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("b");
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.log()[1].rows[0].id += 1;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("and not"));
        // A log that is read from its beginning proves it up to the last event that was read.
        scene.unmark();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("and not"));
        scene.log().remove(0);
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    /// The values of the second command are the whole record, so nothing else shows it.
    #[test]
    fn an_id_that_a_command_without_an_answer_got_again_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.unknown("b", false);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.event_of("b", article(id, "b"));
        scene.unmark();
        let found = find(&Facts::of(&scene.history));
        assert!(found[0].0.contains("by event 2 of workspace 11, and event 1 has it"), "{found:?}");
        // Neither a change nor another record is a violation.
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.update("b", id, None);
        scene.bill("c");
        scene.unknown("d", true);
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    #[test]
    fn an_id_that_an_answer_and_an_event_without_an_answer_have_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.unknown("b", true);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.answer(0).ids = vec![(1, id + 1)];
        let found = texts(find(&Facts::of(&scene.history)));
        assert!(found[0].contains(r#"was given to "b" and to "a""#), "{found:?}");
    }

    #[test]
    fn a_record_that_a_command_without_an_answer_made_again_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.unknown("b", false);
        scene.event_of("b", article(id, "b"));
        scene.log().clear();
        scene.unmark();
        let found = texts(find(&Facts::of(&scene.history)));
        assert!(found[0].contains(r#"the record is that of "b""#), "{found:?}");
        scene.partition().clear();
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    #[test]
    fn an_id_that_is_given_twice_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.create("b");
        let Outcome::Written(written) = &mut scene.history.operations[1].outcome else {
            unreachable!()
        };
        written.ids = vec![(1, id)];
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("was given to"));
    }
}
