//! Reads that may be old say so. The check `documents` has all reads that do not say so.

use super::{Facts, Found};
use crate::history::{Outcome, Request};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let records = &facts.records;
    let mut found = Found::new();
    for operation in &facts.operations {
        let Request::Read { id, eventual } = operation.request else { continue };
        let Outcome::Document { record, says_eventual } = &operation.outcome else { continue };
        let number = operation.number;
        if *says_eventual && !eventual {
            let text = format!(
                "operation {number} asked for the present version, and got an eventual one"
            );
            found.push((text, vec![number]));
        }
        let Some(record) = record.as_ref().filter(|_| eventual) else { continue };
        let versions = records.get(&(operation.ws, id));
        let rank = versions.and_then(|versions| versions.rank(record.version));
        let begin = rank.zip(versions).and_then(|(rank, versions)| versions.begin(rank));
        let is_unknown = rank.is_none() && facts.has_log(operation.ws);
        if is_unknown || begin.is_some_and(|begin| begin > operation.end) {
            let text = format!(
                "operation {number} read {:?}, which document {id} did not have",
                record.version
            );
            found.push((text, vec![number]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::{
        documents,
        testing::{Scene, texts},
    };

    #[test]
    fn an_old_version_is_accepted_and_an_unknown_one_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let mut old = scene.record(id).unwrap();
        scene.update("b", id, None);
        scene.read_as(id, Some(old.clone()), true);
        scene.read_as(id, None, true);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        old.version.epoch = 9;
        scene.read_as(id, Some(old), true);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("did not have"));
        scene.unmark();
        assert_eq!(find(&Facts::of(&scene.history)), [], "the history need not have its event");
    }

    #[test]
    fn a_version_that_is_written_later_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let first = scene.record(id);
        let read = scene.read_as(id, first, true);
        scene.history.operations[read].begin = 0;
        scene.history.operations[read].end = 1;
        scene.history.operations[0].begin = 2;
        scene.unmark();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("did not have"));
    }

    #[test]
    fn an_eventual_answer_to_another_request_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let read = scene.read(id);
        let outcome = &mut scene.history.operations[read].outcome;
        let Outcome::Document { says_eventual, .. } = outcome else { unreachable!() };
        *says_eventual = true;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("got an eventual one"));
    }

    /// A node that never had a seat forwards an eventual read, and then the answer is not old.
    #[test]
    fn an_old_version_in_an_answer_that_does_not_say_so_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        scene.update("b", id, None);
        let new = scene.record(id);
        for (record, says_so, is_right) in
            [(&old, true, true), (&new, false, true), (&old, false, false), (&None, false, false)]
        {
            let read = scene.read_as(id, record.clone(), true);
            match &mut scene.history.operations[read].outcome {
                Outcome::Document { says_eventual, .. } => *says_eventual = says_so,
                _ => unreachable!(),
            }
            let found = documents::find(&Facts::of(&scene.history));
            assert_eq!(found.is_empty(), is_right, "{record:?}");
            assert_eq!(find(&Facts::of(&scene.history)), []);
            scene.history.operations.truncate(read);
        }
    }
}
