//! The states of the engine, each with what the node knows then.
//!
//! ```text
//!           a free seat              epoch raised             lost
//!  Looking ─────────────▶ Attempting ────────────▶ Working ────────▶ Lost
//!   ▲  ▲                   │      │                   │ stopped       │ stopped
//!   │  └── nothing there ──┘      ▼                   └─▶ Releasing ◀─┘──▶ Ended
//!   └────────────────────── Withdrawing (a lease may be in the store)
//! ```

use clock::Instant;

use crate::{EpochRow, Lease, Seat};

#[derive(Clone, Copy, Debug)]
pub(super) enum EngineState {
    Looking,
    Attempting(Attempt),
    Withdrawing,
    Leading(LeaderState),
    Ended,
}

/// An attempt to lead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) seat: Seat,
    /// The lease of a former process of this node, which the attempt replaces.
    pub(super) over: Option<Lease>,
    pub(super) phase: AttemptPhase,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AttemptPhase {
    ReadingEpoch,
    Taking {
        claim: Claim,
        /// Whether an earlier write of the lease got no answer.
        is_unsettled: bool,
    },
    Raising(Claim),
}

/// The rows that an attempt writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// When the lease was sent for the first time. The lease counts from this time, whichever of
    /// several tries wrote it.
    pub(super) sent: Instant,
    pub(super) lease: Lease,
    /// The epoch row as it was read.
    pub(super) from: Option<EpochRow>,
}

impl Claim {
    /// The epoch row that the attempt writes.
    pub(super) fn epoch_row(&self) -> EpochRow {
        EpochRow { epoch: self.lease.epoch, incarnation: self.lease.incarnation }
    }
}

/// A leadership, or its lease that remains to be released.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaderState {
    pub(super) seat: Seat,
    pub(super) lease: Lease,
    /// When the last write of the lease was sent. If the write is done, the lease counts from then.
    pub(super) sent: Instant,
    pub(super) valid_until: Instant,
    /// Until when writes of a former process of this node may land.
    pub(super) work_from: Instant,
    pub(super) phase: LeadershipPhase,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LeadershipPhase {
    Working,
    /// The leadership is lost, and its work was told to stop. The lease may still be this node's
    /// own.
    Lost {
        is_ours: bool,
    },
    Releasing,
}
