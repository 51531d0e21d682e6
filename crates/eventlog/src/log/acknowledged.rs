//! The versions of records that this leader has written and that the storage has acknowledged.
//!
//! Two kinds of writes note a version: a record that is read back, and a record that is written
//! conditionally outside an atomic write. So the check covers all records at level 0 on Cassandra.
//! At levels 1 and 2 on Cassandra the check covers only records that hide ordered writes. On
//! DynamoDB it covers only the conditional records of groups that do not fit into one atomic write.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use lru::LruCache;

use crate::{AppRow, DamagedRow, Log, Result, Version, plan::RowWrite};

/// The number of records whose versions are known.
const RECORDS: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

/// The versions of the records that were written last.
#[derive(Debug)]
pub(crate) struct AcknowledgedVersions(Mutex<LruCache<AppRow, Version>>);

impl Default for AcknowledgedVersions {
    fn default() -> AcknowledgedVersions {
        // A cache that is made with a size takes the memory of all its entries at once.
        let mut versions = LruCache::unbounded();
        versions.resize(RECORDS);
        AcknowledgedVersions(Mutex::new(versions))
    }
}

impl AcknowledgedVersions {
    fn versions(&self) -> MutexGuard<'_, LruCache<AppRow, Version>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the records of writes that the storage has acknowledged, or has not.
    pub(crate) fn note<'w>(&self, writes: impl Iterator<Item = &'w RowWrite>, is_written: bool) {
        let mut versions = self.versions();
        for (row, version) in writes.filter_map(RowWrite::version) {
            match is_written {
                true => drop(versions.put(row, version)),
                false => drop(versions.pop(&row)),
            }
        }
    }
}

impl Log {
    /// Checks that a record is not older than the version that the storage has acknowledged to this
    /// leader. The check knows only records that were read back, or written conditionally outside
    /// an atomic write. It accepts every version of other records. `found` is the version that was
    /// read; `None` if the record does not exist.
    ///
    /// A quorum of the storage may lose data. For example, a replica comes back empty, or the
    /// replicas of the row have changed. A simpler version accepts every record that it reads. Then
    /// a command builds on the old version of the record, and its write replaces the new one, which
    /// another replica still has.
    ///
    /// # Errors
    /// Fails with [`DamagedRow::Outdated`].
    pub fn check_not_outdated(&self, row: AppRow, found: Option<Version>) -> Result<()> {
        let written = self.acknowledged.versions().peek(&row).copied();
        match written {
            Some(written) if found < Some(written) => {
                Err(DamagedRow::Outdated { row, plog: written.plog }.into())
            }
            _ => Ok(()),
        }
    }
}
