//! The inputs of the engine, and its decisions.

use std::time::Duration;

use bytes::Bytes;
use clock::Instant;

use crate::{ConditionalOutcome, EpochRow, Lease, LossReason, ObservedLease, Seat};

/// A call to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// Reads all leases with a plain read.
    Look,
    /// Reads the epoch row of a seat.
    ReadEpoch(Seat),
    /// Writes a lease where none exists, or over this node's own lease of a former process.
    Take {
        /// The seat.
        seat: Seat,
        /// The lease to write.
        lease: Lease,
        /// The lease to replace; `None` if the seat must have no lease.
        over: Option<Lease>,
        /// The lifetime of the lease.
        ttl: Duration,
    },
    /// Raises the epoch row of a seat from exactly the row that was read.
    RaiseEpoch {
        /// The seat.
        seat: Seat,
        /// The row that was read.
        from: Option<EpochRow>,
        /// The row to write.
        to: EpochRow,
    },
    /// Prolongs the lease.
    Renew {
        /// The seat.
        seat: Seat,
        /// The lease. Its bytes do not change.
        lease: Lease,
        /// The new lifetime, from now on.
        ttl: Duration,
    },
    /// Releases the lease.
    Release {
        /// The seat.
        seat: Seat,
        /// The lease.
        lease: Lease,
    },
}

impl StoreCall {
    /// Returns the name of the call in metrics and logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            StoreCall::Look => "look",
            StoreCall::ReadEpoch(_) => "read_epoch",
            StoreCall::Take { .. } => "take",
            StoreCall::RaiseEpoch { .. } => "raise_epoch",
            StoreCall::Renew { .. } => "renew",
            StoreCall::Release { .. } => "release",
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// The answer to [`StoreCall::Look`].
    Leases(Vec<ObservedLease>),
    /// The answer to [`StoreCall::ReadEpoch`].
    EpochRow(Option<Bytes>),
    /// The answer to every other call.
    Written(ConditionalOutcome),
    /// Any call: nothing was done.
    Unavailable,
    /// Any call that writes: the write may be done, or may still be done later.
    Unknown,
    /// Any call: nothing was done, and no later call will succeed.
    Broken,
}

/// An event that the engine is told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineInput {
    /// The time of an [`Action::Wait`] has come. This is also the very first input.
    Woke,
    /// The call was answered, or its deadline has passed.
    Answer(StoreAnswer),
    /// The time of an [`Action::Wait`] has come, and the leadership must end: its health check
    /// failed, or a part of the node has already seen the end of the leadership.
    Ends(LossReason),
    /// All work of the leadership has stopped, and all writes of the work were answered. This input
    /// ends the leadership.
    Stopped,
}

/// A decision of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The notice to report before `next` is done.
    pub notice: Option<Notice>,
    /// The next thing to do.
    pub next: Action,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this call, and give it up at the deadline.
    Call(StoreCall, Instant),
    /// Wait until this time.
    Wait(Instant),
    /// The engine has ended.
    End,
}

/// News for a leader or a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The node leads.
    Leads {
        /// The seat.
        seat: Seat,
        /// The lease in the store.
        lease: Lease,
        /// When work may begin. Later than now if writes of a former process of this node may still
        /// land.
        work_from: Instant,
        /// The end of the time to work, unless the lease is renewed.
        valid_until: Instant,
    },
    /// The leadership continues.
    Extended {
        /// The new end of the time to work.
        valid_until: Instant,
    },
    /// The leadership is lost or released.
    Lost(LossReason),
    /// After the end of the leadership: its lease is no longer in the store.
    LeaseGone,
    /// The node will not lead.
    GaveUp(GiveUpReason),
}

/// Why a node gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GiveUpReason {
    /// Other nodes held all seats until the candidate's time was over.
    #[error("no seat became free in time")]
    Waited,
    /// The store did not answer when the candidate's time was over.
    #[error("the store does not answer")]
    Unavailable,
    /// The store does not work.
    #[error("permanent store error")]
    Broken,
    /// The epoch row of a seat is not an epoch row, or holds the highest possible epoch.
    #[error(
        "the epoch row of seat {0} holds no epoch that can be raised: find the program that wrote the row"
    )]
    Corrupt(Seat),
}
