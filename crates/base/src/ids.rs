//! The ids that several crates share.

use std::{fmt, num::NonZeroU16};

use serde::{Deserialize, Serialize};

/// The number of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct WsId(pub u64);

impl WsId {
    /// Returns the partition of the workspace: its number modulo the number of partitions.
    #[must_use]
    pub fn partition(self, partitions: NonZeroU16) -> u16 {
        // The remainder fits: it is less than a number of 16 bits.
        (self.0 % u64::from(partitions.get())) as u16
    }
}

/// The fencing token of the leader of a seat, or of the owner of a partition. No two leaders of a
/// seat share an epoch, and a later one has a higher epoch. The same holds for the owners of a
/// partition, whose epochs have at most 22 bits: the order of a write has room for no more. A seat
/// and a partition count apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Epoch(pub u64);

/// A place in the log of a partition or a workspace. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Offset(pub u64);

impl Offset {
    /// The offset of the first event of a log.
    pub const FIRST: Offset = Offset(1);

    /// The offset of the last event that the log of a partition can have. The order of a write has
    /// 40 bits for an offset, and the offset after the last event is stored with such an order,
    /// too.
    pub const LAST: Offset = Offset((1 << 40) - 2);

    /// Makes an offset of a stored number; `None` for 0, which is not an offset, and for a number
    /// of more than 63 bits.
    #[must_use]
    pub const fn new(offset: u64) -> Option<Offset> {
        if offset == 0 || offset >> 63 != 0 { None } else { Some(Offset(offset)) }
    }

    /// Returns the next offset.
    #[must_use]
    pub const fn next(self) -> Offset {
        self.after(1)
    }

    /// Returns the offset that is `events` higher.
    ///
    /// The addition saturates at the highest number. No log has so many events.
    #[must_use]
    pub const fn after(self, events: u64) -> Offset {
        Offset(self.0.saturating_add(events))
    }
}

impl fmt::Display for WsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
