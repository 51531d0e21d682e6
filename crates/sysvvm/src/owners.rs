//! The ownership rows of partitions in the system keyspace.

use std::{collections::BTreeSet, num::NonZeroU16, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use ielections::{Incarnation, Lease};
use istorage::{
    AppStorageExt, Conditional, Conflict, Consistency, CorruptRow, ErrorKind, Key, Outcome, Range,
    SharedStorage,
    settle::{SettleLimits, write_if_settled},
};
use ownership::{
    OwnerChange, OwnerEpoch, OwnerRow, OwnerRowsView, OwnershipAnswer, OwnershipCall, PartitionId,
};

use crate::{AppNumber, Error, Result, layout};

/// The most bytes that the change of one row takes: the key, the expected value and the new value.
const CHANGE_BYTES: usize = 128;

/// The most rows that one call changes. If one row is not as expected, all of them are refused, so
/// more rows would be refused more often.
const ROWS_MAX: usize = 100;

/// The ownership rows of all partitions of a cluster.
///
/// All rows share one storage partition. So one read shows all owners, and one conditional write
/// changes several rows or none.
#[derive(Clone, Debug)]
pub struct OwnerRows {
    storage: SharedStorage,
    clock: Clock,
}

/// The ownership rows that a read has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredOwners {
    /// The rows that exist and can be read.
    pub rows: OwnerRowsView,
    /// The rows whose bytes make no sense. Nobody can take such a partition.
    pub corrupt: Vec<CorruptRow>,
}

impl OwnerRows {
    pub(crate) fn new(storage: SharedStorage, clock: Clock) -> OwnerRows {
        OwnerRows { storage, clock }
    }

    /// Returns the most rows that one call changes.
    #[must_use]
    pub fn rows_at_once(&self) -> usize {
        let limits = self.storage.capabilities().conditional;
        limits.rows.min(limits.bytes / CHANGE_BYTES).clamp(1, ROWS_MAX)
    }

    /// Returns the partition whose row makes no sense, if the error names one.
    #[must_use]
    pub fn partition_of(error: &Error) -> Option<PartitionId> {
        let Error::Storage(error) = error else { return None };
        let row = error.row().filter(|row| row.key.pkey == layout::owners())?;
        partition_of(&row.key.ccols)
    }

    /// Reads all ownership rows.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn read(&self, consistency: Consistency, deadline: Instant) -> Result<StoredOwners> {
        let pkey = layout::owners();
        let stream =
            self.storage.read(pkey.clone(), Range::all(), consistency, self.left(deadline));
        let found: Vec<_> = stream.try_collect().await?;
        let mut owners = StoredOwners::default();
        for row in found {
            match (partition_of(&row.ccols), OwnerRow::from_bytes(&row.value)) {
                (Some(partition), Some(owner)) => {
                    owners.rows.insert(partition, owner);
                }
                _ => owners.corrupt.push(corrupt(row.ccols, row.value)),
            }
        }
        Ok(owners)
    }

    /// Makes a call of an [`OwnershipEngine`](ownership::OwnershipEngine). Each call of the engine
    /// is at most one write of the storage, which is not sent again.
    ///
    /// # Errors
    /// Those of the storage that the engine does not know: the storage is closed, or a row is
    /// corrupt. Nothing was changed then.
    pub async fn answer(&self, call: &OwnershipCall, deadline: Instant) -> Result<OwnershipAnswer> {
        let answer = match call {
            OwnershipCall::LookAtRows => self.view(Consistency::Plain, deadline).await,
            OwnershipCall::ReadRows => self.view(Consistency::Linearizable, deadline).await,
            OwnershipCall::ReadLeases => self.living(deadline).await.map(OwnershipAnswer::Leases),
            OwnershipCall::Change(changes) => self.change(changes, deadline).await,
        };
        match answer {
            Err(Error::Storage(error)) => match error.kind() {
                ErrorKind::Unavailable => Ok(OwnershipAnswer::Unavailable),
                ErrorKind::OutcomeUnknown => Ok(OwnershipAnswer::Unknown),
                ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Closed => Err(error.into()),
            },
            answer => answer,
        }
    }

    async fn view(&self, consistency: Consistency, deadline: Instant) -> Result<OwnershipAnswer> {
        Ok(OwnershipAnswer::Rows(self.read(consistency, deadline).await?.rows))
    }

    /// The incarnations whose leases exist.
    ///
    /// A lease that this program cannot read is an error: its incarnation may be the owner of a
    /// partition.
    async fn living(&self, deadline: Instant) -> Result<BTreeSet<Incarnation>> {
        let timeout = self.left(deadline);
        let leases = self.storage.read_linearizable(layout::leases(), Range::all(), timeout);
        let leases: Vec<_> = leases.try_collect().await?;
        let incarnation = |row: istorage::Row| match Lease::from_bytes(&row.value) {
            Some(lease) => Ok(lease.incarnation),
            None => {
                let key = Key::new(layout::leases(), row.ccols);
                let (what, why) = ("the lease of a seat".to_owned(), "is not a lease".to_owned());
                let row = CorruptRow { what, key, found: row.value, why };
                Err(istorage::Error::corrupt_row(row).into())
            }
        };
        leases.into_iter().map(incarnation).collect()
    }

    async fn change(&self, changes: &[OwnerChange], deadline: Instant) -> Result<OwnershipAnswer> {
        let ops = changes.iter().map(conditional).collect();
        let conflicts = match self.storage.write_if(layout::owners(), ops, deadline).await? {
            Outcome::Applied => return Ok(OwnershipAnswer::Changed),
            Outcome::NotApplied(conflicts) => conflicts,
        };
        let mut there = OwnerRowsView::new();
        for Conflict { op, actual } in conflicts {
            let Some(change) = changes.get(op) else { continue };
            let row = match actual {
                None => OwnerRow::default(),
                Some(value) => match OwnerRow::from_bytes(&value) {
                    Some(row) => row,
                    None => {
                        let row = corrupt(layout::owner(change.partition), value);
                        return Err(istorage::Error::corrupt_row(row).into());
                    }
                },
            };
            there.insert(change.partition, row);
        }
        Ok(OwnershipAnswer::Refused(there))
    }

    /// Makes the ownership rows of partitions with logs that were written elsewhere. Nobody owns
    /// the partitions, and the epoch of each later owner is above the given one, the highest in the
    /// log.
    ///
    /// # Errors
    /// Those of the storage. Fails with [`Error::Foreign`] if one of the rows exists and is
    /// another. The call may be repeated.
    pub async fn begin_above(
        &self,
        logs: &[(PartitionId, OwnerEpoch)],
        deadline: Instant,
    ) -> Result<()> {
        let change = |&(partition, epoch)| {
            let to = OwnerRow { epoch, owner: None };
            OwnerChange { partition, from: OwnerRow::default(), to }
        };
        self.make(logs.iter().map(change).collect(), deadline).await
    }

    /// Takes all partitions of an application from owners without a lease, and leaves them without
    /// an owner. Returns the epoch that all of them have then: it is above each of their former
    /// epochs. So a reader can tell a write under an earlier epoch from a later one, and notices a
    /// node that took a partition meanwhile.
    ///
    /// # Errors
    /// [`Error::Owned`] if the lease of an owner exists, [`Error::Foreign`] if a row changed
    /// meanwhile, and [`Error::NoEpochLeft`]. Some of the rows may have changed. The call may be
    /// repeated.
    pub async fn free_all(
        &self,
        app: AppNumber,
        partitions: NonZeroU16,
        deadline: Instant,
    ) -> Result<OwnerEpoch> {
        let StoredOwners { rows, corrupt } = self.read(Consistency::Linearizable, deadline).await?;
        // The leases are read after the rows. Otherwise an owner could get its lease and its
        // partition between the two reads, and would be taken for dead.
        let living = self.living(deadline).await?;
        let ids = (0..partitions.get()).map(|partition| PartitionId { app: app.get(), partition });
        let is_ours =
            |row: &CorruptRow| partition_of(&row.key.ccols).is_some_and(|id| id.app == app.get());
        if let Some(row) = corrupt.into_iter().find(is_ours) {
            return Err(istorage::Error::corrupt_row(row).into());
        }
        let mut highest = (OwnerEpoch::default(), 0);
        let mut from = Vec::new();
        for id in ids {
            let row = rows.get(&id).copied().unwrap_or_default();
            if let Some(owner) = row.owner.filter(|owner| living.contains(&owner.incarnation)) {
                return Err(Error::Owned { partition: id.partition, owner: owner.advertised });
            }
            highest = highest.max((row.epoch, id.partition));
            from.push((id, row));
        }
        let (highest, partition) = highest;
        let epoch = highest.next().ok_or(Error::NoEpochLeft { partition })?;
        let to = OwnerRow { epoch, owner: None };
        let change = |(partition, from)| OwnerChange { partition, from, to };
        self.make(from.into_iter().map(change).collect(), deadline).await?;
        Ok(epoch)
    }

    /// Makes changes that nobody else makes at the same time.
    async fn make(&self, changes: Vec<OwnerChange>, deadline: Instant) -> Result<()> {
        for changes in changes.chunks(self.rows_at_once()) {
            let ops: Vec<Conditional> = changes.iter().map(conditional).collect();
            let written: Vec<_> = ops.iter().map(|op| op.written().cloned()).collect();
            let limits = SettleLimits { call_timeout: self.left(deadline) / 3, until: deadline };
            let (storage, pkey) = (&*self.storage, layout::owners());
            match write_if_settled(storage, &self.clock, pkey, ops, limits).await? {
                Outcome::Applied => {}
                // An earlier attempt wrote these rows.
                Outcome::NotApplied(conflicts)
                    if conflicts.len() == written.len()
                        && conflicts.iter().all(|found| found.actual == written[found.op]) => {}
                Outcome::NotApplied(conflicts) => {
                    let what = format!("another program changed an ownership row: {conflicts:?}");
                    return Err(Error::Foreign { what });
                }
            }
        }
        Ok(())
    }

    fn left(&self, deadline: Instant) -> Duration {
        deadline.saturating_since(self.clock.now())
    }
}

/// The write of a change. The default row stands for a row that does not exist.
fn conditional(change: &OwnerChange) -> Conditional {
    let (ccols, value) = (layout::owner(change.partition), change.to.to_bytes());
    if change.from == OwnerRow::default() {
        return Conditional::Insert { ccols, value, ttl: None };
    }
    Conditional::Swap { ccols, old: change.from.to_bytes(), new: value, ttl: None }
}

fn partition_of(ccols: &[u8]) -> Option<PartitionId> {
    let (app, partition) = ccols.split_first_chunk::<4>()?;
    let partition = u16::from_be_bytes(partition.try_into().ok()?);
    Some(PartitionId { app: u32::from_be_bytes(*app), partition })
}

fn corrupt(ccols: Bytes, found: Bytes) -> CorruptRow {
    let what = match partition_of(&ccols) {
        Some(partition) => format!("the owner of the partition {partition}"),
        None => "the owner of a partition".to_owned(),
    };
    let why = "is not an ownership row".to_owned();
    CorruptRow { what, key: Key::new(layout::owners(), ccols), found, why }
}

#[cfg(test)]
mod tests;
