//! What a repair knows about the rows of a log that cannot be read.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{AppRow, DrawnNumber, EventPlace, FencingEntry, Offset};

/// An event that cannot be read, and the known facts about it.
#[derive(Clone, Debug)]
pub struct DamagedEvent {
    pub(super) row: AppRow,
    /// The bytes in the row of the event.
    pub(super) found: Bytes,
    /// The place of the event. Its epoch is that of the copy, or else of the event before it.
    pub(super) place: EventPlace,
    /// The bytes in the place of the copy in the log of the workspace, if the copy cannot be read
    /// or trusted, either.
    pub(super) wlog: Option<Bytes>,
    /// The numbers that the event drew, if the log of the workspace has a copy that can be read and
    /// trusted.
    pub(super) drawn: Option<Vec<DrawnNumber>>,
    /// The bytes of that copy, if the copy is an event.
    pub(super) copy: Option<Bytes>,
}

impl DamagedEvent {
    /// Returns the place of the event. Its epoch is that of the copy, or else of the event before
    /// it.
    pub fn place(&self) -> EventPlace {
        self.place
    }

    /// Returns the bytes in the row of the event.
    pub fn found(&self) -> &Bytes {
        &self.found
    }

    /// Returns whether the event can be [restored](super::LogRepair::restore) from its copy.
    pub fn is_restorable(&self) -> bool {
        self.copy.is_some()
    }

    /// Returns the numbers that the event drew, if the log of the workspace has a copy that can be
    /// read.
    pub fn drawn(&self) -> Option<&[DrawnNumber]> {
        self.drawn.as_deref()
    }
}

/// A row of a log that cannot be read, and the fencing entry for its place.
#[derive(Clone, Debug)]
pub struct DamagedFencing {
    pub(super) row: AppRow,
    /// The bytes in the row.
    pub(super) found: Bytes,
    pub(super) entry: FencingEntry,
}

impl DamagedFencing {
    /// Returns the entry that is written again. It has the time of the entry before it.
    pub fn entry(&self) -> FencingEntry {
        self.entry
    }

    /// Returns the bytes in the row.
    pub fn found(&self) -> &Bytes {
        &self.found
    }
}

/// The known facts about the events around an event that cannot be read.
#[derive(Clone, Debug, Default)]
pub struct EventNeighbours {
    /// The highest number that the events before the damaged one drew, for each sequence.
    pub before: BTreeMap<u16, u64>,
    /// The offset of the next event in the log of the workspace.
    pub next: Option<Offset>,
}
