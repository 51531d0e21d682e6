//! What numbers are drawn for.

use std::fmt;

/// A sequence of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u16);

/// A kind of workspaces: all of a kind have the same sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WsKind(pub u16);

/// A workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WsId(pub u64);

/// A place in the log of a partition. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(u64);

impl Offset {
    /// Where a log begins.
    pub const FIRST: Offset = Offset(1);

    /// `None` for 0, which is no place, and for what has more than 63 bits.
    pub const fn new(offset: u64) -> Option<Offset> {
        if offset == 0 || offset >> 63 != 0 { None } else { Some(Offset(offset)) }
    }

    /// As a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The place after this one.
    #[must_use]
    pub const fn next(self) -> Offset {
        self.after(1)
    }

    /// The place so many events later. The last there is is followed by itself: nothing that counts events comes there.
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
