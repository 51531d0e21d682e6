//! Reads and changes of one document are linearizable.

use std::collections::HashMap;

use super::{Facts, Found, facts::Command, versions::RecordVersions};
use crate::{
    history::{Change, Operation, Outcome, Record, RecordKey, Request, Version},
    real_time_order::{self, Limits, contradiction},
};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let records = &facts.records;
    let mut found = Found::new();
    for ((ws, id), record) in records {
        if let Some((earlier, later)) = contradiction(&record.operations) {
            let text = format!(
                "document {id} of workspace {ws}: operation {} ended before operation {} began, and proves a later version",
                earlier.operation, later.operation
            );
            found.push((text, vec![earlier.operation, later.operation]));
        }
    }
    for operation in &facts.operations {
        let ws = operation.ws;
        let wrong = match (&operation.request, &operation.outcome) {
            (Request::Read { id, .. }, Outcome::Document { record: Some(record), .. }) => {
                wrong_value(records.get(&(ws, *id)), record, facts.has_log(ws))
            }
            _ => None,
        };
        found.extend(wrong.map(|text| (text, vec![operation.number])));
    }
    let mut limits: HashMap<RecordKey, Limits> = HashMap::new();
    for command in facts.commands.values() {
        let Change::Update { id, if_match } = command.change else { continue };
        let key = (command.ws, *id);
        let Some(record) = records.get(&key) else { continue };
        if let Some(expected) = if_match {
            found.extend(wrong_order(command, (*id, *expected), record, facts));
        }
        if command.tries.iter().any(|of| is_refusal(of)) {
            let limits = limits.entry(key).or_insert_with(|| Limits::of(&record.operations));
            let has_log = facts.has_log(command.ws);
            found.extend(wrong_refusals(command, (*id, *if_match), (record, has_log), limits));
        }
    }
    found
}

/// Finds changes that did not follow the version that they name. A change without an answer is
/// done in this way, too, if it is done.
fn wrong_order(
    command: &Command<'_>,
    (id, expected): (u64, Version),
    record: &RecordVersions<'_>,
    facts: &Facts<'_>,
) -> Found {
    let versions = command.events.iter().map(|(_, event)| (event.version, event.wlog));
    let answered = command.answers().map(|(_, written)| (written.version, written.wlog));
    let mut versions: Vec<(Version, u64)> = versions.chain(answered).collect();
    versions.sort_unstable();
    versions.dedup();
    let befores = versions.into_iter().map(|(version, wlog)| {
        let is_known = facts.has_log_until(command.ws, wlog);
        (record.before(version).map(|of| of.0), is_known)
    });
    // A version in between is a proof. If there is none, the history may lack the expected one.
    let is_wrong = |(before, is_known): &(Option<Version>, bool)| {
        *before != Some(expected) && (*is_known || *before > Some(expected))
    };
    let wrong = befores.filter(is_wrong).map(|(before, _)| before);
    let text =
        |before| format!("the change of version {expected:?} of document {id} followed {before:?}");
    wrong.map(|before| (text(before), command.numbers())).collect()
}

/// Whether a try was refused because of the version of the document.
fn is_refusal(of: &Operation) -> bool {
    matches!(of.outcome, Outcome::Refused { status: 404 | 409 | 412, .. })
}

/// Finds refusals that no possible version of the document explains.
fn wrong_refusals(
    command: &Command<'_>,
    (id, if_match): (u64, Option<Version>),
    (record, has_log): (&RecordVersions<'_>, bool),
    limits: &Limits,
) -> Found {
    let mut found = Found::new();
    // A refused try came before the effect of its key.
    let effect = command.events.iter().filter_map(|(_, event)| record.rank(event.version)).min();
    for of in command.tries.iter().filter(|of| is_refusal(of)) {
        let (floor, ceiling) = limits.around(of.begin, of.end);
        let possible = real_time_order::possible(floor, ceiling, record.versions.len());
        let is_before_effect = |rank: &usize| effect.is_none_or(|effect| *rank < effect);
        let is_absent = matches!(of.outcome, Outcome::Refused { status: 404, .. });
        let explains = |rank: usize| match rank.checked_sub(1) {
            None => is_absent,
            Some(place) => {
                let version = record.versions[place].0;
                !is_absent && if_match.is_some_and(|expected| expected != version)
            }
        };
        // A version that the history does not have explains a conflict, and no absence.
        let is_proven = has_log || is_absent;
        if is_proven && !possible.take_while(is_before_effect).any(explains) {
            let text = format!(
                "operation {} got {:?}, and no version of document {id} explains it",
                of.number, of.outcome
            );
            let others = [floor, ceiling].into_iter().flatten().map(|other| other.operation);
            found.push((text, others.chain([of.number]).collect()));
        }
    }
    found
}

/// Compares a record that was read with the event of its version.
fn wrong_value(
    versions: Option<&RecordVersions<'_>>,
    record: &Record,
    has_log: bool,
) -> Option<String> {
    let Record { row, version } = record;
    let place = versions.and_then(|versions| Some((versions, versions.rank(*version)?)));
    let Some((versions, rank)) = place else {
        return has_log.then(|| {
            format!("document {} was read with {version:?}, which no event wrote", row.id)
        });
    };
    let written = versions.versions[rank - 1].1;
    (written != row).then(|| format!("{row:?} was read, and {version:?} wrote {written:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        run_all,
        testing::{Scene, change, refusal, texts},
    };

    #[test]
    fn a_stale_read_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        scene.read(id);
        scene.update("b", id, old.as_ref().map(|old| old.version));
        scene.read(id);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        let stale = scene.read_as(id, old, false);
        let found = find(&Facts::of(&scene.history));
        assert_eq!(found[0].1[1], stale as u64, "{found:?}");
    }

    #[test]
    fn a_document_that_is_not_found_any_more_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.read_as(id, None, false);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("proves a later version"));
    }

    #[test]
    fn a_read_during_a_write_may_return_either_version() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        let write = scene.update("b", id, None);
        let read = scene.read_as(id, old, false);
        scene.history.operations[write].end = scene.history.operations[read].end;
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    #[test]
    fn a_read_that_comes_before_an_open_write_but_not_after_a_read_of_it_is_accepted() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        let write = scene.update("b", id, None);
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        scene.read_as(id, old.clone(), false);
        scene.read(id);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.read_as(id, old, false);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("proves a later version"));
    }

    /// A former leader that reads what it remembers. The change of the document has no answer, and
    /// only a later event of the log shows that the change was applied.
    fn after_a_change_without_an_answer(prove: impl FnOnce(&mut Scene)) -> Vec<String> {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        scene.epoch = 2;
        let write = scene.update("b", id, None);
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        prove(&mut scene);
        let stale = scene.read_as(id, old, false);
        let violations = run_all(&scene.history);
        assert!(violations.iter().all(|of| of.check == "documents"), "{violations:?}");
        let proof = [stale as u64 - 1, stale as u64];
        assert!(violations.iter().all(|of| of.operations == proof), "{violations:?}");
        violations.into_iter().map(|of| of.text).collect()
    }

    #[test]
    fn a_stale_read_is_found_by_what_shows_a_later_event_of_the_log() {
        assert_eq!(after_a_change_without_an_answer(|_| ()), [""; 0]);
        let found = after_a_change_without_an_answer(|scene| _ = scene.create("c"));
        assert!(found[0].contains("proves a later version"), "an answer");
        let found = after_a_change_without_an_answer(|scene| _ = scene.read_log(2));
        assert!(found[0].contains("proves a later version"), "a read of the log");
        let found = after_a_change_without_an_answer(|scene| {
            let events = scene.log()[1..].to_vec();
            let request = Request::Follow { follower: 1, from: 2 };
            scene.operation(request, Outcome::Events { events });
        });
        assert!(found[0].contains("proves a later version"), "a followed log");
    }

    /// The places of the events in the history are not their offsets.
    #[test]
    fn a_stale_read_is_found_in_a_history_without_the_first_events() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.update("b", id, None);
        let old = scene.record(id);
        let write = scene.update("c", id, None);
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        scene.create("d");
        scene.read_as(id, old, false);
        scene.log().remove(0);
        scene.unmark();
        let found = find(&Facts::of(&scene.history));
        assert!(found[0].0.contains("proves a later version"), "{found:?}");
        assert_eq!(found[0].1, [3, 4]);
    }

    #[test]
    fn an_event_without_an_answer_proves_nothing_of_the_events_before_it() {
        let found = after_a_change_without_an_answer(|scene| {
            scene.unknown("c", true);
            // This read saw only the first event.
            let events = scene.log()[..1].to_vec();
            let outcome = Outcome::Events { events };
            let read = scene.operation(Request::Log { from: 1 }, outcome);
            scene.history.operations[read].begin = 0;
        });
        assert_eq!(found, [""; 0]);
    }

    /// At level 2 an event that a former leader acknowledged may be lost.
    #[test]
    fn the_answer_of_an_event_that_the_log_does_not_have_proves_nothing() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        let write = scene.update("b", id, None);
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        scene.create("lost");
        scene.answer(2).version.epoch = 0;
        scene.read_as(id, old, false);
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    #[test]
    fn a_value_that_no_event_wrote_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let mut record = scene.record(id).unwrap();
        record.row.fields["name"] = "torn".into();
        scene.read_as(id, Some(record.clone()), false);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("wrote"));
        record.version.offset += 1;
        scene.read_as(id, Some(record), false);
        assert!(texts(find(&Facts::of(&scene.history)))[1].contains("no event wrote"));
        scene.unmark();
        let found = texts(find(&Facts::of(&scene.history)));
        assert_eq!(found.len(), 1, "the history need not have the event: {found:?}");
    }

    #[test]
    fn a_change_that_follows_another_version_than_it_names_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let first = scene.record(id).unwrap().version;
        scene.update("b", id, None);
        scene.update("c", id, Some(first));
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("followed"));
        let none = Version { epoch: 9, offset: 9 };
        scene.update("d", id, Some(none));
        assert_eq!(find(&Facts::of(&scene.history)).len(), 2);
        scene.unmark();
        assert_eq!(find(&Facts::of(&scene.history)).len(), 2, "all events are there");
        scene.log().remove(0);
        let found = texts(find(&Facts::of(&scene.history)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("offset: 1 } of"), "version 2 lies in between: {found:?}");
    }

    #[test]
    fn a_change_without_an_answer_that_follows_another_version_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let first = scene.record(id).unwrap().version;
        scene.update("b", id, None);
        let wrong = scene.update("c", id, Some(first));
        scene.history.operations[wrong].outcome = Outcome::Unknown { why: "cut".into() };
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("followed"));
    }

    #[test]
    fn a_refusal_that_no_version_explains_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let first = scene.record(id).unwrap().version;
        let found = |scene: &Scene| texts(find(&Facts::of(&scene.history)));
        scene.operation(change("b", id, Some(first)), refusal(409, "conflict"));
        assert!(found(&scene)[0].contains("no version of document"));
        scene.unmark();
        assert_eq!(found(&scene), [""; 0], "a version may be missing");
        scene.history.operations.truncate(1);
        scene.operation(change("b", id, None), refusal(404, "not_found"));
        assert!(found(&scene)[0].contains("no version of document"));
        scene.history.operations.truncate(1);
        scene.update("c", id, None);
        scene.operation(change("b", id, Some(first)), refusal(409, "conflict"));
        assert_eq!(found(&scene), [""; 0]);
    }

    #[test]
    fn a_refusal_during_a_change_may_be_right() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let first = scene.record(id).unwrap().version;
        let refused = scene.operation(change("b", id, Some(first)), refusal(409, "conflict"));
        let write = scene.update("c", id, None);
        scene.history.operations[write].begin = scene.history.operations[refused].end;
        assert_eq!(texts(find(&Facts::of(&scene.history))), [""; 0]);
    }

    #[test]
    fn a_refusal_that_the_change_itself_explains_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let first = scene.record(id).unwrap().version;
        let write = scene.update("b", id, Some(first));
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        scene.again(write, refusal(409, "conflict"));
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("no version of document"));
    }
}
