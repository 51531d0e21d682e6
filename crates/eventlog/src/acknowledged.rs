//! The versions of records that the storage has acknowledged to this leader.
//!
//! Two kinds of writes note a version: a record that is read back, and a record that is written
//! conditionally outside an atomic write. So the check covers all records at level 0 on Cassandra.
//! At levels 1 and 2 on Cassandra the check covers only records that hide ordered writes. On
//! DynamoDB it covers only the conditional records of groups that do not fit into one atomic write.

use std::{num::NonZeroUsize, sync::Mutex};

use base::locks::lock;
use lru::LruCache;

use crate::{AppRow, DamagedRow, Result, Version};

/// The number of records whose versions are known.
const RECORDS: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

/// The versions of the records that were written last, or that the last replay found written. The
/// storage has acknowledged them to this leader.
#[derive(Debug)]
pub struct AcknowledgedVersions(Mutex<LruCache<AppRow, Version>>);

impl AcknowledgedVersions {
    pub(crate) fn new() -> AcknowledgedVersions {
        // A cache with a capacity allocates all its entries at once.
        let mut versions = LruCache::unbounded();
        versions.resize(RECORDS);
        AcknowledgedVersions(Mutex::new(versions))
    }

    /// Notes versions of records that the storage has acknowledged.
    ///
    /// Invariant: a noted version is never lowered or forgotten because of a later write: a write
    /// without an answer leaves the acknowledged version or a later one. A simpler version forgets
    /// the record before a write. Then a client that reads during the write may get an older
    /// version than the acknowledged one, which the storage has lost.
    pub(crate) fn note(&self, written: impl Iterator<Item = (AppRow, Version)>) {
        let mut versions = lock(&self.0);
        for (row, version) in written {
            match versions.get_mut(&row) {
                Some(noted) => *noted = version.max(*noted),
                None => drop(versions.put(row, version)),
            }
        }
    }

    /// Returns the last known version of a record. A read that begins afterwards must find this
    /// version or a later one: [`AppRow::check_version`].
    pub fn version_of(&self, row: AppRow) -> Option<Version> {
        lock(&self.0).peek(&row).copied()
    }

    /// Checks that a record is not older than the version that the storage has acknowledged to this
    /// leader. The check knows only records that were read back, or written conditionally outside
    /// an atomic write. It accepts every version of other records. `found` is the version that was
    /// read; `None` if the record does not exist.
    ///
    /// No write of this leader may be acknowledged between the read and the check. Only the task
    /// that writes can be certain of this. All others ask for the version
    /// [before](AcknowledgedVersions::version_of) they read.
    ///
    /// A quorum of the storage may lose data. For example, a replica comes back empty, or the
    /// replicas of the row have changed. A simpler version accepts every record that it reads. Then
    /// a command builds on the old version of the record, and its write replaces the new one, which
    /// another replica still has.
    ///
    /// # Errors
    /// Fails with [`DamagedRow::Outdated`].
    pub fn check(&self, row: AppRow, found: Option<Version>) -> Result<()> {
        row.check_version(self.version_of(row), found)
    }
}

impl AppRow {
    /// Checks that the version of a record is not older than `acknowledged`, which the storage had
    /// acknowledged before the read of the record began. `found` is the version that was read;
    /// `None` if the record does not exist.
    ///
    /// # Errors
    /// Fails with [`DamagedRow::Outdated`].
    pub fn check_version(
        self,
        acknowledged: Option<Version>,
        found: Option<Version>,
    ) -> Result<()> {
        match acknowledged {
            Some(version) if found < Some(version) => {
                Err(DamagedRow::Outdated { row: self, version }.into())
            }
            _ => Ok(()),
        }
    }
}
