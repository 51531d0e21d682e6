//! What searches of the file have shown to be absent.
//!
//! Most rows that are written are new, and come after the rows of their kind. So a search that ends
//! in a gap tells of many keys, and few searches have to be made.

use std::{collections::BTreeMap, ops::Bound};

use istorage::KeyspaceName;

use crate::{mem_table::ROW_OVERHEAD, search::Gap};

/// The most bytes of memory that gaps take.
pub(crate) const GAPS_BYTES: usize = 4 << 20;

/// The known gaps of a file. The file gets no row in them before it names another segment.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// The segment that the file names.
    segment: u64,
    /// The end of each gap by its start.
    keyspaces: BTreeMap<KeyspaceName, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    bytes: usize,
}

impl Gaps {
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    /// Forgets all gaps if the file names another segment now.
    pub(crate) fn note_segment(&mut self, segment: u64) {
        if segment != self.segment {
            *self = Gaps { segment, ..Gaps::default() };
        }
    }

    /// Whether a key is in one of the gaps.
    pub(crate) fn have(&self, keyspace: &KeyspaceName, key: &[u8]) -> bool {
        let Some(gaps) = self.keyspaces.get(keyspace) else { return false };
        let mut before = gaps.range::<[u8], _>((Bound::Unbounded, Bound::Included(key)));
        let end = before.next_back().map(|(_, end)| end);
        end.is_some_and(|end| end.as_ref().is_none_or(|end| key < &end[..]))
    }

    /// Adds a gap that is not known. If there is no room for it, the others are forgotten.
    pub(crate) fn add(&mut self, keyspace: &KeyspaceName, Gap { start, end }: Gap) {
        let bytes = start.len() + end.as_ref().map_or(0, Vec::len) + ROW_OVERHEAD;
        if self.bytes + bytes > GAPS_BYTES {
            *self = Gaps { segment: self.segment, ..Gaps::default() };
        }
        self.bytes += bytes;
        let gaps = match self.keyspaces.get_mut(keyspace) {
            Some(gaps) => gaps,
            None => self.keyspaces.entry(keyspace.clone()).or_default(),
        };
        gaps.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use redb::{
        Builder, ReadOnlyTable, ReadableDatabase, TableDefinition, backends::InMemoryBackend,
    };

    use super::*;
    use crate::{
        layout,
        search::{self, Found},
    };

    type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

    const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

    fn table(stored: &[u8]) -> Rows {
        let database = Builder::new().create_with_backend(InMemoryBackend::new()).unwrap();
        let txn = database.begin_write().unwrap();
        for key in stored {
            let mut row = Vec::new();
            let kind = layout::FileRowKind::Plain;
            layout::FileRow { kind, value: b"" }.write(&[*key], &mut row);
            txn.open_table(ROWS).unwrap().insert(&[*key][..], &row[..]).unwrap();
        }
        txn.commit().unwrap();
        database.begin_read().unwrap().open_table(ROWS).unwrap()
    }

    fn keyspace() -> KeyspaceName {
        KeyspaceName::new("tests").unwrap()
    }

    /// Searches for a row, and adds the gap if there is none.
    fn find(table: &Rows, key: &[u8], gaps: &mut Gaps) -> bool {
        match search::find(table, key).unwrap() {
            Found::Row(_) => true,
            Found::Nothing(gap) => {
                gaps.add(&keyspace(), search::gap_from(table, key, gap).unwrap().unwrap());
                false
            }
        }
    }

    #[test]
    fn a_gap_has_no_key_that_a_search_would_find() {
        let stored = [3_u8, 4, 8, 9, 20];
        let table = table(&stored);
        // After each other search, and after all of them.
        let mut of_all = Gaps::default();
        for first in 0..25 {
            for second in 0..25 {
                let mut gaps = Gaps::default();
                find(&table, &[first], &mut gaps);
                for gaps in [&mut gaps, &mut of_all] {
                    let is_there = stored.contains(&second);
                    let is_known = gaps.have(&keyspace(), &[second]);
                    assert!(!(is_known && is_there), "{second} after {first}");
                    assert_eq!(find(&table, &[second], gaps), is_there);
                    let is_known = gaps.have(&keyspace(), &[second]);
                    assert_eq!(is_known, !is_there, "{second} after {first}");
                }
            }
        }
        let mut gaps = Gaps::default();
        find(&table, &[10], &mut gaps);
        let known: Vec<u8> = (0..25).filter(|key| gaps.have(&keyspace(), &[*key])).collect();
        assert_eq!(known, (10..20).collect::<Vec<_>>(), "from the key on");
        let other = KeyspaceName::new("other").unwrap();
        assert!(!gaps.have(&other, &[10]), "of one keyspace");
        gaps.note_segment(0);
        assert!(gaps.have(&keyspace(), &[10]));
        gaps.note_segment(1);
        assert!(!gaps.have(&keyspace(), &[10]), "the file has other rows now");
    }

    #[test]
    fn gaps_have_a_bound() {
        let mut gaps = Gaps::default();
        for n in 0..100_000_u32 {
            let key = [&n.to_be_bytes()[..], &[0; 100]].concat();
            // Rows of two keyspaces share the bound.
            let name = if n % 2 == 0 { keyspace() } else { KeyspaceName::new("other").unwrap() };
            gaps.add(&name, Gap { start: key.clone(), end: None });
            let count: usize = gaps.keyspaces.values().map(BTreeMap::len).sum();
            assert!(gaps.have(&name, &key) && count * key.len() <= GAPS_BYTES);
        }
    }
}
