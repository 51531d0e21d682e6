//! The damaged rows that readers and commands of a partition met.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use base::locks::lock;
use eventlog::{
    AppRow, Obstacle,
    istorage::{CorruptRow, Key},
};

/// The number of damaged rows that are remembered. Further rows are neither counted nor logged.
const REMEMBERED: usize = 1_000;

/// The number of damaged rows that are reported by name.
const REPORTED: usize = 16;

/// The damaged rows that readers met. A row stays here until a reader reads that row without an
/// error.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    is_known: AtomicBool,
    rows: Mutex<BTreeMap<AppRow, String>>,
    /// The damaged rows of numbers that commands met.
    numbers: Mutex<BTreeMap<Key, CorruptRow>>,
}

impl Damage {
    /// Notes damage of a row. Returns whether the damage is new.
    pub(crate) fn note_damage(&self, row: AppRow, what: &str) -> bool {
        let mut rows = lock(&self.rows);
        self.is_known.store(true, Ordering::Release);
        if rows.len() >= REMEMBERED && !rows.contains_key(&row) {
            return false;
        }
        rows.insert(row, what.to_owned()).is_none_or(|before| before != what)
    }

    /// Forgets the damage of rows that a reader has read without an error.
    pub(crate) fn note_readable(&self, passed: RangeInclusive<AppRow>) {
        if self.is_known.load(Ordering::Acquire) {
            let mut rows = lock(&self.rows);
            rows.retain(|row, _| !passed.contains(row));
            self.is_known.store(!rows.is_empty(), Ordering::Release);
        }
    }

    /// Notes the damage that kept a command from being done.
    pub(crate) fn note_obstacle(&self, obstacle: Obstacle, what: &str) {
        match obstacle {
            Obstacle::Row { row, .. } => drop(self.note_damage(row, what)),
            Obstacle::Storage { row: Some(row), .. } => {
                // A row of another program may be large, so only the rows that are reported are
                // kept.
                let mut numbers = lock(&self.numbers);
                if numbers.len() < REPORTED || numbers.contains_key(&row.key) {
                    numbers.insert(row.key.clone(), row);
                }
            }
            // The storage does not say which row it cannot read.
            Obstacle::Storage { row: None, .. } => {}
        }
    }

    /// Forgets a damaged row of a number.
    pub(crate) fn forget_number(&self, row: &CorruptRow) {
        lock(&self.numbers).remove(&row.key);
    }

    /// The first damaged rows of the application, and the first of its numbers.
    pub(crate) fn known(&self) -> (Vec<AppRow>, Vec<CorruptRow>) {
        let rows = lock(&self.rows).keys().take(REPORTED).copied().collect();
        (rows, lock(&self.numbers).values().cloned().collect())
    }

    /// The first damaged rows by name, and the number of all of them.
    pub(crate) fn report(&self) -> (Vec<String>, usize) {
        let rows = lock(&self.rows);
        (rows.values().take(REPORTED).cloned().collect(), rows.len())
    }
}

#[cfg(test)]
mod tests {
    use eventlog::{RecordId, WsId};

    use super::*;

    fn record(id: u64) -> AppRow {
        AppRow::Record(WsId(7), RecordId(id))
    }

    /// There was room for one damaged row. Readers met two damaged rows in turn. Each row took the
    /// place of the other, and was logged again each time.
    #[test]
    fn each_damaged_row_is_new_once_and_reported_until_a_reader_reads_it() {
        let damage = Damage::default();
        assert!(damage.note_damage(record(1), "one") && damage.note_damage(record(5), "five"));
        for _ in 0..3 {
            assert!(
                !damage.note_damage(record(1), "one") && !damage.note_damage(record(5), "five")
            );
        }
        assert_eq!(damage.report(), (vec!["one".to_owned(), "five".to_owned()], 2));
        assert!(damage.note_damage(record(1), "another thing"), "other damage of the row is news");
        damage.note_readable(record(2)..=record(5));
        assert_eq!(damage.report(), (vec!["another thing".to_owned()], 1));
        damage.note_readable(record(1)..=record(1));
        assert_eq!(damage.report(), (Vec::new(), 0));
    }

    #[test]
    fn many_damaged_rows_are_counted_and_the_first_are_named() {
        let damage = Damage::default();
        for id in 0..2 * REMEMBERED as u64 {
            assert_eq!(damage.note_damage(record(id), &id.to_string()), id < REMEMBERED as u64);
        }
        let (named, count) = damage.report();
        assert_eq!((named.len(), &*named[15], count), (REPORTED, "15", REMEMBERED));
    }

    /// The bytes of 1,000 rows were kept, and a row that changed was another row each time. Foreign
    /// rows can be large.
    #[test]
    fn damaged_numbers_are_kept_once_and_few_of_them() {
        let damage = Damage::default();
        for changed in 0..3_u8 {
            for row in 0..2 * REPORTED as u8 {
                let key = Key::new(vec![row], vec![]);
                let row = CorruptRow {
                    key,
                    found: vec![changed].into(),
                    what: String::new(),
                    why: String::new(),
                };
                damage.note_obstacle(Obstacle::Storage { what: String::new(), row: Some(row) }, "");
            }
        }
        let (_, numbers) = damage.known();
        assert_eq!(numbers.len(), REPORTED);
        assert!(numbers.iter().all(|row| row.found[..] == [2]), "{numbers:?}");
        damage.forget_number(&numbers[0]);
        assert_eq!(damage.known().1.len(), REPORTED - 1);
    }
}
