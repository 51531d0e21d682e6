//! The calls and notices of the engine.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use ielections::Incarnation;

use crate::{OwnerEpoch, OwnerRow, PartitionId};

/// The ownership rows of all partitions. A partition that is absent has the default row.
pub type OwnerRowsView = BTreeMap<PartitionId, OwnerRow>;

/// A change of one ownership row, on the condition that the row is exactly as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    /// The partition.
    pub partition: PartitionId,
    /// The row that is expected. The default stands for a row that does not exist.
    pub from: OwnerRow,
    /// The row to write.
    pub to: OwnerRow,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipAction {
    /// Make this call, and pass its answer to [`next`](crate::OwnershipEngine::next).
    Call(OwnershipCall),
    /// Wait until this time, or until the engine was told something. Then pass
    /// [`OwnershipAnswer::None`].
    Wait(Instant),
}

/// A call to the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipCall {
    /// Reads all ownership rows with a plain read.
    LookAtRows,
    /// Reads all ownership rows with a linearizable read.
    ReadRows,
    /// Reads the leases of all seats with a linearizable read. The call begins after the answer to
    /// the call before it.
    ReadLeases,
    /// Makes all of these changes in one conditional write, or none of them.
    Change(Vec<OwnerChange>),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipAnswer {
    /// No call was made.
    None,
    /// The answer to both reads of rows.
    Rows(OwnerRowsView),
    /// The incarnations whose leases exist.
    Leases(BTreeSet<Incarnation>),
    /// The changes were made.
    Changed,
    /// No change was made, and this call never will make one. These are the rows that were not as
    /// expected.
    Refused(OwnerRowsView),
    /// Nothing was done.
    Unavailable,
    /// The changes may be made, now or later.
    Unknown,
}

/// News for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipNotice {
    /// Start the partition under this epoch.
    Start(PartitionId, OwnerEpoch),
    /// Stop the partition, and report its end.
    Stop(PartitionId, OwnerEpoch),
    /// The node no longer owns the partition, which has stopped.
    Left(PartitionId),
    /// Another node owns the partition although this node gave nothing away. Close the fence of the
    /// partition, and end the leadership: this node or another one judged a lease wrongly.
    Foreign(PartitionId, OwnerRow),
    /// The partition cannot be taken, because its epoch is the highest one.
    NoEpochLeft(PartitionId),
}
