//! A partition that this node owns, from the moment when the node learns of it.

use clock::Instant;

use crate::{Owner, OwnerEpoch, OwnerRow};

/// The state of a partition that this node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldState {
    /// The row names this node, and the partition was never started under this epoch.
    Taken,
    /// The partition works.
    Working,
    /// The host stops the partition. Then the row changes.
    Stopping(NextOwner),
    /// The partition sends nothing more. The row may be changed from this time on.
    Stopped(NextOwner, Instant),
}

/// The purpose of a change after the stop of a partition. It is decided once for each epoch: if a
/// change has no answer, only the same change can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextOwner {
    /// This node again, under an epoch that is higher than `above`. Another node may get the
    /// partition from `safe_at` on.
    Restart { above: OwnerEpoch, safe_at: Instant },
    /// Another node.
    HandOver(Owner),
    /// Nobody.
    Release,
}

/// A partition that this node owns, with its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) epoch: OwnerEpoch,
    pub(super) state: HeldState,
}

impl NextOwner {
    /// The node that gets the partition; `None` if this node keeps it.
    pub(super) fn successor(self) -> Option<Option<Owner>> {
        match self {
            NextOwner::Restart { .. } => None,
            NextOwner::HandOver(to) => Some(Some(to)),
            NextOwner::Release => Some(None),
        }
    }

    /// Returns the row to write over the row of this node; `None` if there is no epoch left.
    pub(super) fn row(self, me: Owner, epoch: OwnerEpoch) -> Option<OwnerRow> {
        Some(match self {
            NextOwner::Restart { above, .. } => {
                OwnerRow { epoch: epoch.max(above).next()?, owner: Some(me) }
            }
            NextOwner::HandOver(to) => OwnerRow { epoch: epoch.next()?, owner: Some(to) },
            NextOwner::Release => OwnerRow { epoch, owner: None },
        })
    }
}
