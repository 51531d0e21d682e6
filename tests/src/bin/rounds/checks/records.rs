//! Records are what the log makes of them.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::history::{Record, RecordKey};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let folded = fold(facts);
    let mut found = Found::new();
    for (key, expected) in &folded {
        match facts.end.records.get(key) {
            Some(record) if record == expected => {}
            there => found.push((
                format!(
                    "record {} of workspace {} is {there:?}, and the log makes {expected:?}",
                    key.1, key.0
                ),
                Vec::new(),
            )),
        }
    }
    for key in facts.end.records.keys().filter(|key| !folded.contains_key(key)) {
        let text = format!("no event wrote record {} of workspace {}", key.1, key.0);
        found.push((text, Vec::new()));
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
    use crate::checks::testing::{Scene, WS, texts};

    #[test]
    fn a_record_that_is_missing_old_or_new_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id).unwrap();
        scene.update("b", id, None);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.history.end.records.insert((WS, id), old.clone());
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("the log makes"));
        scene.history.end.records.remove(&(WS, id));
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("is None"));
        scene.log().clear();
        scene.history.end.records.insert((WS, id), old);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("no event wrote"));
    }
}
