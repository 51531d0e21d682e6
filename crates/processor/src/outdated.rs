//! The outdated record: the storage no longer has its last version, so the partition stops.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use base::locks::lock;
use eventlog::{AppRow, DamagedRow, Error, Version};

/// A record that was read in an older version than the storage had acknowledged, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutdatedRecord {
    pub(crate) row: AppRow,
    pub(crate) acknowledged: Version,
}

impl OutdatedRecord {
    /// The record that an error names; `None` for other errors.
    pub(crate) fn of(error: &Error) -> Option<OutdatedRecord> {
        match error {
            Error::DamagedRow(DamagedRow::Outdated { row, version }) => {
                Some(OutdatedRecord { row: *row, acknowledged: *version })
            }
            _ => None,
        }
    }

    /// The error that names the record.
    pub(crate) fn error(self) -> Error {
        DamagedRow::Outdated { row: self.row, version: self.acknowledged }.into()
    }
}

/// The outdated record that a command or a reader met first. It stays here until the task of the
/// partition finds the record whole, even if a reader gets another version from another server.
#[derive(Debug, Default)]
pub(crate) struct OutdatedSlot {
    is_full: AtomicBool,
    record: Mutex<Option<OutdatedRecord>>,
}

impl OutdatedSlot {
    /// Notes a record, if there is none. Returns whether it is new.
    pub(crate) fn note(&self, outdated: OutdatedRecord) -> bool {
        let mut record = lock(&self.record);
        let is_new = record.is_none();
        record.get_or_insert(outdated);
        self.is_full.store(true, Ordering::Release);
        is_new
    }

    pub(crate) fn get(&self) -> Option<OutdatedRecord> {
        if self.is_full.load(Ordering::Acquire) { *lock(&self.record) } else { None }
    }

    /// Forgets the record, which is whole again.
    pub(crate) fn clear(&self) {
        let mut record = lock(&self.record);
        *record = None;
        self.is_full.store(false, Ordering::Release);
    }
}
