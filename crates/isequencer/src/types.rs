//! The ids of sequences and workspaces, and offsets in the log.

use std::fmt;

/// The id of a sequence of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u16);

/// A kind of workspace. All workspaces of a kind have the same sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WsKind(pub u16);

/// The number of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WsId(pub u64);

/// A place in the log of a partition. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(u64);

impl Offset {
    /// The offset at which a log begins.
    pub const FIRST: Offset = Offset(1);

    /// Makes an offset; `None` for 0, which is not an offset, and for a number of more than 63
    /// bits.
    pub const fn new(offset: u64) -> Option<Offset> {
        if offset == 0 || offset >> 63 != 0 { None } else { Some(Offset(offset)) }
    }

    /// Returns the offset as a number.
    pub const fn get(self) -> u64 {
        self.0
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

/// A sequence of a certain workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumberKey {
    /// The workspace.
    pub ws: WsId,
    /// The sequence.
    pub seq: SeqId,
}

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for WsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for WsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
