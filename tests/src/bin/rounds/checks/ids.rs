//! Ids of records: each is new once, and none is left out.

use std::collections::{BTreeMap, HashSet};

use super::{Facts, Found};
use crate::{
    final_state::{BLOCK, FIRST},
    history::CommandId,
};

pub(super) fn find(facts: &Facts<'_>) -> Found {
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
    found.extend(answered_twice(facts));
    found
}

/// Finds ids that the answers to two commands name as new.
fn answered_twice(facts: &Facts<'_>) -> Found {
    let mut given: BTreeMap<(u64, u64), (CommandId<'_>, u64)> = BTreeMap::new();
    let mut found = Found::new();
    for operation in &facts.operations {
        let Some((request, Some(written))) = operation.write() else { continue };
        for (_, id) in &written.ids {
            let first = *given.entry((operation.ws, *id)).or_insert((request, operation.number));
            if first.0 != request {
                let text = format!("the id {id} was given to {} and to {request}", first.0);
                found.push((text, vec![first.1, operation.number]));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::{Scene, texts},
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
