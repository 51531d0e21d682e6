//! Lists have what they must have.

use std::collections::{BTreeMap, HashMap};

use super::{Facts, Found, versions};
use crate::{
    history::{Operation, Outcome, RecordKey, Request, Version},
    real_time_order::{Limits, Ranked, of_read, of_write, possible},
};

/// The documents of a table of a workspace, in the order of their ids.
#[derive(Default)]
struct Documents<'v, 'h> {
    ids: Vec<u64>,
    all: Vec<Document<'v, 'h>>,
    /// For each document, the first end of an operation that saw or wrote this document, or one
    /// with a higher id.
    there_from: Vec<u64>,
}

/// A document, with the ranks that other operations allow at each moment.
struct Document<'v, 'h> {
    record: &'v versions::RecordVersions<'h>,
    limits: Limits,
}

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let records = &facts.records;
    let tables = tables(facts);
    let mut found = Found::new();
    for operation in &facts.operations {
        let Some(page) = Page::of(operation) else { continue };
        found.extend(page.wrong_order().map(|text| (text, vec![operation.number])));
        let has_log = facts.has_log(operation.ws);
        for id in &page.ids {
            let number = operation.number;
            let text = match records.get(&(operation.ws, *id)).map(table_of) {
                Some(table) if table == Some(page.table) => continue,
                Some(_) => format!("operation {number} lists {id}, which is not of {}", page.table),
                None if !has_log => continue,
                None => format!("operation {number} lists {id}, which no event wrote"),
            };
            found.push((text, vec![number]));
        }
        let Some(documents) = tables.get(&(operation.ws, page.table)) else { continue };
        for place in documents.compared(&page, operation.begin) {
            let (id, document) = (documents.ids[place], &documents.all[place]);
            found.extend(wrong_document(operation, &page, id, (document, has_log)));
        }
    }
    found
}

/// The documents of all tables, by the workspace and the table.
fn tables<'v, 'h>(facts: &'v Facts<'h>) -> HashMap<(u64, &'h str), Documents<'v, 'h>> {
    let seen = listed_versions(facts, &facts.records);
    let mut tables: HashMap<(u64, &str), Documents<'_, '_>> = HashMap::new();
    for (key, record) in &facts.records {
        let Some(table) = table_of(record) else { continue };
        let mut operations = record.operations.clone();
        operations.extend(seen.get(key).into_iter().flatten());
        let is_there = |of: &&Ranked| of.rank >= of_write(1);
        let first = operations.iter().filter(is_there).map(|of| of.end).min();
        let documents = tables.entry((key.0, table)).or_default();
        documents.ids.push(key.1);
        documents.there_from.push(first.unwrap_or(u64::MAX));
        documents.all.push(Document { record, limits: Limits::of(&operations) });
    }
    for documents in tables.values_mut() {
        let mut first = u64::MAX;
        for there_from in documents.there_from.iter_mut().rev() {
            first = first.min(*there_from);
            *there_from = first;
        }
    }
    tables
}

/// The table of a record.
fn table_of<'h>(record: &versions::RecordVersions<'h>) -> Option<&'h str> {
    record.versions.first().map(|(_, row)| &*row.table)
}

impl Documents<'_, '_> {
    /// The places of the documents that are compared with a page: those that may have to be in the
    /// page, and those that are. Later documents that no operation knew of when the page was read
    /// are rightly absent. Most pages are read long before most documents exist, so these are left
    /// out.
    fn compared(&self, page: &Page<'_>, begin: u64) -> Vec<usize> {
        let from = self.ids.partition_point(|id| *id <= page.after);
        let end = self.ids.partition_point(|id| *id <= page.last).max(from);
        let known = self.there_from.partition_point(|there_from| *there_from < begin);
        let known = known.clamp(from, end);
        let listed = page.ids.iter().filter_map(|id| self.ids.binary_search(id).ok());
        (from..known).chain(listed.filter(|place| (known..end).contains(place))).collect()
    }
}

/// A page of a list.
struct Page<'h> {
    operation: u64,
    table: &'h str,
    /// The ids in the order of their arrival.
    ids: Vec<u64>,
    documents: HashMap<u64, Version>,
    after: u64,
    /// The last id that the page covers.
    last: u64,
    is_end: bool,
}

impl<'h> Page<'h> {
    fn of(operation: &'h Operation) -> Option<Page<'h>> {
        let Request::List { table, after } = &operation.request else { return None };
        let Outcome::Listed { documents, next } = &operation.outcome else { return None };
        Some(Page {
            operation: operation.number,
            table,
            ids: documents.iter().map(|(id, _)| *id).collect(),
            documents: documents.iter().copied().collect(),
            after: *after,
            last: next.unwrap_or(u64::MAX),
            is_end: next.is_none(),
        })
    }

    /// Finds ids that are not in order, twice, or outside of the page, and a page that does not
    /// go on.
    fn wrong_order(&self) -> Option<String> {
        let Page { operation, after, last, .. } = *self;
        if let Some(pair) = self.ids.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Some(format!("operation {operation} lists {} before {}", pair[0], pair[1]));
        }
        let is_outside = |id: &&u64| **id <= after || **id > last;
        if let Some(id) = self.ids.iter().find(is_outside) {
            return Some(format!("operation {operation} lists {id}, outside of its page"));
        }
        (!self.is_end && last <= after)
            .then(|| format!("operation {operation}: the list goes on at {last}, after {after}"))
    }
}

/// The reads of documents that lists are.
fn listed_versions(
    facts: &Facts<'_>,
    records: &BTreeMap<RecordKey, versions::RecordVersions<'_>>,
) -> HashMap<RecordKey, Vec<Ranked>> {
    let mut seen: HashMap<RecordKey, Vec<Ranked>> = HashMap::new();
    for operation in &facts.operations {
        let Outcome::Listed { documents, .. } = &operation.outcome else { continue };
        for (id, version) in documents {
            let key = (operation.ws, *id);
            let Some(rank) = records.get(&key).and_then(|record| record.rank(*version)) else {
                continue;
            };
            let Operation { begin, end, number, .. } = **operation;
            let read = Ranked { begin, end, rank: of_read(rank), operation: number };
            seen.entry(key).or_default().push(read);
        }
    }
    seen
}

/// Compares a page with the versions that a document could have when the page was read.
fn wrong_document(
    operation: &Operation,
    page: &Page<'_>,
    id: u64,
    (document, has_log): (&Document<'_, '_>, bool),
) -> Option<(String, Vec<u64>)> {
    let number = operation.number;
    let (floor, ceiling) = document.limits.around(operation.begin, operation.end);
    let versions = &document.record.versions;
    let mut possible = possible(floor, ceiling, versions.len());
    let (is_right, how) = match page.documents.get(&id) {
        Some(version) => {
            let rank = document.record.rank(*version);
            let is_active = rank.is_some_and(|rank| versions[rank - 1].1.is_active);
            let is_possible = rank.is_some_and(|rank| possible.contains(&rank));
            let is_missing = rank.is_none() && !has_log;
            (is_missing || is_active && is_possible, format!("with {version:?}"))
        }
        // A version that the history does not have may be inactive.
        None if !has_log => return None,
        None => {
            let is_absent = |rank: usize| rank == 0 || !versions[rank - 1].1.is_active;
            (possible.any(is_absent), "as absent or inactive".to_owned())
        }
    };
    if is_right {
        return None;
    }
    let others = [floor, ceiling].into_iter().flatten().map(|other| other.operation);
    let text = format!("operation {number} lists document {id} {how}, which was not possible then");
    Some((text, others.chain([number]).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{FIRST_ID, Scene, TABLE, WS, texts};

    fn listed(scene: &mut Scene, list: usize) -> &mut Vec<(u64, Version)> {
        match &mut scene.history.operations[list].outcome {
            Outcome::Listed { documents, .. } => documents,
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_document_that_is_missing_in_a_list_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("b");
        let list = scene.list();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        listed(&mut scene, list).remove(0);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("as absent"));
        scene.unmark();
        assert_eq!(find(&Facts::of(&scene.history)), [], "a change may have made it inactive");
    }

    #[test]
    fn an_old_version_in_a_list_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id).unwrap().version;
        scene.update("b", id, None);
        let list = scene.list();
        listed(&mut scene, list)[0].1 = old;
        scene.unmark();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("not possible"));
        listed(&mut scene, list)[0].1.offset = 9;
        assert_eq!(find(&Facts::of(&scene.history)), [], "the history need not have its event");
    }

    #[test]
    fn a_list_that_goes_back_behind_another_list_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id).unwrap().version;
        let write = scene.update("b", id, None);
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        scene.list();
        let second = scene.list();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        listed(&mut scene, second)[0].1 = old;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("not possible"));
    }

    #[test]
    fn an_old_version_in_a_list_after_a_later_event_was_acknowledged_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id).unwrap().version;
        let write = scene.update("b", id, None);
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        scene.bill("c");
        let list = scene.list();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        listed(&mut scene, list)[0].1 = old;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("not possible"));
    }

    #[test]
    fn a_document_that_is_listed_before_it_is_created_is_found() {
        let mut scene = Scene::new();
        let list = scene.list();
        let id = scene.create("a");
        assert_eq!(find(&Facts::of(&scene.history)), []);
        let version = scene.record(id).unwrap().version;
        listed(&mut scene, list).push((id, version));
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("not possible"));
    }

    #[test]
    fn only_documents_that_were_known_or_listed_are_compared() {
        let mut scene = Scene::new();
        let first = scene.create("a");
        let list = scene.list();
        let later: Vec<u64> = (0..100).map(|name| scene.create(&format!("{name}"))).collect();
        let version = scene.record(later[70]).unwrap().version;
        let compared = |scene: &Scene| {
            let facts = Facts::of(&scene.history);
            let tables = tables(&facts);
            let page = Page::of(&scene.history.operations[list]).unwrap();
            tables[&(WS, TABLE)].compared(&page, scene.history.operations[list].begin)
        };
        assert_eq!(compared(&scene), [0]);
        listed(&mut scene, list).push((later[70], version));
        assert_eq!(compared(&scene), [0, 71]);
        // The ids are in the order of the log, and the commands of lower ids may end later.
        scene.history.operations[50].end = 7;
        assert_eq!(compared(&scene).len(), 50 + 1);
        scene.history.operations[list].request =
            Request::List { table: TABLE.into(), after: first };
        assert_eq!(compared(&scene).len(), 49 + 1);
    }

    #[test]
    fn documents_behind_the_end_of_a_page_need_not_be_listed() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        scene.create("b");
        let list = scene.list();
        listed(&mut scene, list).pop();
        let Outcome::Listed { next, .. } = &mut scene.history.operations[list].outcome else {
            unreachable!()
        };
        *next = Some(id);
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    #[test]
    fn a_document_that_no_event_wrote_is_found() {
        let mut scene = Scene::new();
        let list = scene.list();
        listed(&mut scene, list).push((7, Version { epoch: 1, offset: 1 }));
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("no event wrote"));
        scene.unmark();
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    /// Finds what is wrong after a change of a list of two documents.
    fn found_after(wrong: impl FnOnce(&mut Scene, &mut Outcome)) -> Vec<String> {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("b");
        let list = scene.list();
        let mut outcome = scene.history.operations[list].outcome.clone();
        wrong(&mut scene, &mut outcome);
        scene.history.operations[list].outcome = outcome;
        texts(find(&Facts::of(&scene.history)))
    }

    fn parts(outcome: &mut Outcome) -> (&mut Vec<(u64, Version)>, &mut Option<u64>) {
        match outcome {
            Outcome::Listed { documents, next } => (documents, next),
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_page_in_another_order_or_with_a_document_twice_is_found() {
        assert_eq!(found_after(|_, _| ()), [""; 0]);
        let found = found_after(|_, list| parts(list).0.reverse());
        assert!(found[0].contains("before"));
        let found = found_after(|_, list| {
            let first = parts(list).0[0];
            parts(list).0.insert(0, first);
        });
        assert!(found[0].contains("before"));
    }

    #[test]
    fn a_page_with_documents_outside_of_it_is_found() {
        let found = found_after(|_, list| *parts(list).1 = Some(FIRST_ID));
        assert!(found[0].contains("outside of its page"));
        let found = found_after(|scene, _| {
            let after = FIRST_ID + 1;
            scene.history.operations[2].request = Request::List { table: TABLE.into(), after };
        });
        assert!(found[0].contains("outside of its page"));
    }

    #[test]
    fn a_page_that_does_not_go_on_is_found() {
        let found = found_after(|scene, list| {
            let after = FIRST_ID + 1;
            scene.history.operations[2].request = Request::List { table: TABLE.into(), after };
            parts(list).0.clear();
            *parts(list).1 = Some(after);
        });
        assert!(found[0].contains("goes on at"));
    }

    #[test]
    fn a_document_of_another_table_is_found() {
        let found = found_after(|scene, _| scene.log()[0].rows[0].table = "shop.Order".into());
        assert!(found[0].contains("which is not of shop.Article"));
    }
}
