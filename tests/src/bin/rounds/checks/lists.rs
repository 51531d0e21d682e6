//! Lists have what they must have.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use super::{Facts, Found, versions};
use crate::{
    history::{Operation, Outcome, RecordKey, Request, Version},
    real_time_order::{RankCeilings, RankFloors, Ranked, of_read},
};

/// The document, with the ranks that other operations allow at each moment.
struct Bounds<'v, 'h> {
    record: &'v versions::RecordVersions<'h>,
    floors: RankFloors,
    ceilings: RankCeilings,
}

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let records = &facts.records;
    let seen = listed_versions(facts, records);
    let mut bounds: BTreeMap<RecordKey, Bounds<'_, '_>> = BTreeMap::new();
    for (key, record) in records {
        let mut operations = record.operations.clone();
        operations.extend(seen.get(key).into_iter().flatten());
        let (floors, ceilings) = (RankFloors::of(&operations), RankCeilings::of(&operations));
        bounds.insert(*key, Bounds { record, floors, ceilings });
    }
    let mut found = Found::new();
    for operation in &facts.operations {
        let Some(page) = Page::of(operation) else { continue };
        for id in page.documents.keys().filter(|id| !records.contains_key(&(operation.ws, **id))) {
            let text = format!("operation {} lists {id}, which no event wrote", operation.number);
            found.push((text, vec![operation.number]));
        }
        let (after, last) = ((operation.ws, page.after), (operation.ws, page.last));
        let covered = (Bound::Excluded(after), Bound::Included(last.max(after)));
        let covered = bounds.range(covered).filter(|(_, bounds)| page.has_table(bounds.record));
        for ((_, id), bounds) in covered {
            found.extend(wrong_document(operation, &page, *id, bounds));
        }
    }
    found
}

/// A page of a list.
struct Page<'h> {
    table: &'h str,
    documents: HashMap<u64, Version>,
    after: u64,
    /// The last id that the page covers.
    last: u64,
}

impl<'h> Page<'h> {
    fn of(operation: &'h Operation) -> Option<Page<'h>> {
        let Request::List { table, after } = &operation.request else { return None };
        let Outcome::Listed { documents, next } = &operation.outcome else { return None };
        let documents = documents.iter().copied().collect();
        Some(Page { table, documents, after: *after, last: next.unwrap_or(u64::MAX) })
    }

    fn has_table(&self, record: &versions::RecordVersions<'_>) -> bool {
        record.versions.first().is_some_and(|(_, row)| row.table == self.table)
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
    bounds: &Bounds<'_, '_>,
) -> Option<(String, Vec<u64>)> {
    let number = operation.number;
    let floor = bounds.floors.before(operation.begin);
    let ceiling = bounds.ceilings.after(operation.end);
    let is_possible = |rank: usize| {
        let rank = of_read(rank);
        floor.is_none_or(|floor| floor.rank <= rank)
            && ceiling.is_none_or(|ceiling| ceiling.rank >= rank)
    };
    let versions = &bounds.record.versions;
    let (is_right, how) = match page.documents.get(&id) {
        Some(version) => {
            let rank = bounds.record.rank(*version);
            let is_active = rank.is_some_and(|rank| versions[rank - 1].1.is_active);
            (is_active && rank.is_some_and(is_possible), format!("with {version:?}"))
        }
        None => {
            let is_absent = |rank: &usize| *rank == 0 || !versions[*rank - 1].1.is_active;
            let right = (0..=versions.len()).filter(is_absent).any(is_possible);
            (right, "as absent or inactive".to_owned())
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
    use crate::checks::testing::{Scene, texts};

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
    }

    #[test]
    fn an_old_version_in_a_list_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id).unwrap().version;
        scene.update("b", id, None);
        let list = scene.list();
        listed(&mut scene, list)[0].1 = old;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("not possible"));
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
    }
}
