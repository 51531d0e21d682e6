//! Reads and changes of one document are linearizable.

use super::{Facts, Found, versions};
use crate::{
    history::{Change, Outcome, Record, Request},
    real_time_order::contradiction,
};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let records = &facts.records;
    let mut found = Found::new();
    for ((ws, id), record) in records {
        if let Some((earlier, later)) = contradiction(&record.operations) {
            let text = format!(
                "document {id} of workspace {ws}: operation {} ended before operation {} began, and saw a later version",
                earlier.operation, later.operation
            );
            found.push((text, vec![earlier.operation, later.operation]));
        }
    }
    for operation in &facts.operations {
        let wrong = match (&operation.request, &operation.outcome) {
            (Request::Read { id, .. }, Outcome::Document { record: Some(record), .. }) => {
                wrong_value(records.get(&(operation.ws, *id)), record)
            }
            (
                Request::Write { change: Change::Update { id, if_match: Some(expected) }, .. },
                Outcome::Written(written),
            ) => {
                let record = records.get(&(operation.ws, *id));
                let before = record.and_then(|record| {
                    let rank = record.rank(written.version)?;
                    rank.checked_sub(2).map(|place| record.versions[place].0)
                });
                (before != Some(*expected)).then(|| {
                    format!(
                        "the change of version {expected:?} of document {id} followed {before:?}"
                    )
                })
            }
            _ => None,
        };
        found.extend(wrong.map(|text| (text, vec![operation.number])));
    }
    found
}

/// Compares a record that was read with the event of its version.
fn wrong_value(versions: Option<&versions::RecordVersions<'_>>, record: &Record) -> Option<String> {
    let Record { row, version } = record;
    let place = versions.and_then(|versions| Some((versions, versions.rank(*version)?)));
    let Some((versions, rank)) = place else {
        return Some(format!(
            "document {} was read with {version:?}, which no event wrote",
            row.id
        ));
    };
    let written = versions.versions[rank - 1].1;
    (written != row).then(|| format!("{row:?} was read, and {version:?} wrote {written:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::{Scene, texts},
        history::Version,
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
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw a later version"));
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
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("saw a later version"));
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
    }
}
