//! Records are what the log makes of them, and there are no others.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::{
    final_state::LISTED,
    history::{Part, Record, RecordKey},
};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let end = facts.end;
    let folded = fold(facts);
    let mut found = compare(facts, &folded, &end.records, "record", Part::Records);
    let mut listed = folded;
    listed.retain(|_, record| record.row.table == LISTED);
    found.extend(compare(facts, &listed, &end.listed, "listed document", Part::List));
    found
}

/// Compares the records that were read with those that the logs make. `part` is the part of the
/// final state that was read.
fn compare(
    facts: &Facts<'_>,
    folded: &BTreeMap<RecordKey, Record>,
    read: &BTreeMap<RecordKey, Record>,
    what: &str,
    part: fn(u64) -> Part,
) -> Found {
    let mut found = Found::new();
    for (key, expected) in folded {
        let (ws, id) = key;
        match read.get(key) {
            Some(record) if record == expected => {}
            // The history need not have the event of a later version.
            Some(record) if record.version > expected.version && !facts.has_log(*ws) => {}
            None if !facts.end.is_whole(part(*ws)) => {}
            there => {
                let text = format!(
                    "{what} {id} of workspace {ws} is {there:?}, and the log makes {expected:?}"
                );
                found.push((text, Vec::new()));
            }
        }
    }
    let unknown = read.keys().filter(|key| facts.has_log(key.0) && !folded.contains_key(key));
    for (ws, id) in unknown {
        found.push((format!("no event wrote {what} {id} of workspace {ws}"), Vec::new()));
    }
    found
}

fn fold(facts: &Facts<'_>) -> BTreeMap<RecordKey, Record> {
    let mut records = BTreeMap::new();
    for (ws, events) in &facts.end.logs {
        for event in events {
            for row in &event.rows {
                let record = Record { row: row.clone(), version: event.version };
                records.insert((*ws, row.id), record);
            }
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::{Scene, WS, article, texts},
        history::Version,
    };

    fn found(scene: &Scene) -> Vec<String> {
        texts(find(&Facts::of(&scene.history)))
    }

    #[test]
    fn a_record_that_is_missing_old_or_new_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id).unwrap();
        scene.update("b", id, None);
        assert_eq!(found(&scene), [""; 0]);
        scene.history.end.records.insert((WS, id), old.clone());
        assert!(found(&scene)[0].contains("the log makes"));
        scene.history.end.records.remove(&(WS, id));
        assert!(found(&scene)[0].contains("is None"));
        scene.log().clear();
        scene.history.end.listed.clear();
        scene.history.end.records.insert((WS, id), old);
        assert!(found(&scene)[0].contains("no event wrote record"));
    }

    #[test]
    fn only_a_part_that_was_read_whole_proves_that_a_record_is_missing() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id).unwrap();
        scene.update("b", id, None);
        let new = scene.record(id).unwrap();
        scene.unmark();
        scene.history.end.records.clear();
        scene.history.end.listed.clear();
        assert_eq!(found(&scene), [""; 0]);
        scene.history.end.records.insert((WS, id), old);
        assert!(found(&scene)[0].contains("the log makes"), "the log has a later version");
        scene.history.end.records.insert((WS, id), new);
        scene.log().pop();
        assert_eq!(found(&scene), [""; 0], "the history lacks the later event");
        scene.log().clear();
        assert_eq!(found(&scene), [""; 0], "the history lacks both events");
    }

    #[test]
    fn a_document_that_only_a_list_has_or_lacks_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let version = Version { epoch: 1, offset: 1 };
        let record = Record { row: article(id + 1, "b"), version };
        scene.history.end.listed.insert((WS, id + 1), record);
        assert!(found(&scene)[0].contains("no event wrote listed document"));
        scene.history.end.listed.clear();
        assert!(found(&scene)[0].contains("listed document"));
    }
}
