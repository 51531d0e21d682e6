//! The write of one row, and how the row is written.

use std::time::Duration;

use bytes::Bytes;
use istorage::{Conditional, Key, Order, OrderedPut};

use crate::{AppRow, Version};

/// The write of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowWrite {
    pub(crate) row: AppRow,
    pub(crate) key: Key,
    pub(crate) kind: RowKind,
    /// The order of the event, in the band of the row. The order of a marker has the epoch of the
    /// leader that marked the event.
    pub(crate) order: Order,
    pub(crate) after: Bytes,
    pub(crate) mode: WriteMode,
}

/// The kind of a row. The kind decides which bytes the row may hold before the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// An event in a log. The row may hold no other entry.
    Entry,
    /// A marker in a log. The row may hold the marked event, if it is whole here.
    Marker,
    /// A record. The events of a group write the versions from `first` to `last`, and the first one
    /// replaces the version `replaces`.
    Record { replaces: Option<Version>, first: Version, last: Version, basis: RecordBasis },
    /// An answer. The row may hold any bytes.
    Answer,
}

/// What is known about the row of a record before its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordBasis {
    /// The row that the command read; the record is new if it replaces no version.
    Read,
    /// The row that an earlier write of the same group leaves.
    Made,
    /// Nothing: the events were in the log before, so some of their versions may be written.
    InLog,
}

/// How a row is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// Write the row if it holds exactly these bytes; with `None`, if it does not exist.
    Conditional(Option<Bytes>),
    /// Write the row by its order. The duration is the TTL.
    Ordered(Option<Duration>),
    /// Write the row by its order, then read it. If the row holds other bytes than were written,
    /// judge these bytes, and write the row conditionally if the write is still needed. Before the
    /// write the row held exactly these bytes; with `None`, it did not exist. For an event that was
    /// in the log before, the bytes are not known: then `None` says nothing.
    ReadBack(Option<Bytes>),
}

impl RowWrite {
    /// Returns whether the write replaces an earlier version of a record.
    pub(crate) fn replaces_record(&self) -> bool {
        matches!(self.kind, RowKind::Record { replaces: Some(_), .. })
    }

    /// Returns the row of a record, and the version that the write leaves; `None` for other rows.
    pub(crate) fn version(&self) -> Option<(AppRow, Version)> {
        match self.kind {
            RowKind::Record { last, .. } => Some((self.row, last)),
            RowKind::Entry | RowKind::Marker | RowKind::Answer => None,
        }
    }

    /// Returns whether bytes in the row prove that this write was done: no other event writes the
    /// version of its record.
    pub(crate) fn is_written_as(&self, there: Option<&Bytes>) -> bool {
        self.version().is_some() && there == Some(&self.after)
    }

    /// Returns whether the write of a record may also have the changes of later events of its
    /// group: see [`Rules::plan`](super::Rules::plan).
    pub(super) fn takes_changes(&self) -> bool {
        let is_read_back = matches!(self.mode, WriteMode::ReadBack(_));
        !(is_read_back && self.order.is_first_wins())
    }

    /// The number of bytes of the call that writes the row.
    pub(crate) fn size(&self) -> usize {
        let before = match &self.mode {
            WriteMode::Conditional(Some(before)) => before.len(),
            _ => 0,
        };
        self.key.pkey.len() + self.key.ccols.len() + self.after.len() + before
    }

    /// Returns whether foreign bytes in the row are noticed, and left unchanged.
    pub(crate) fn is_judged(&self) -> bool {
        !matches!(self.mode, WriteMode::Ordered(_))
    }

    pub(crate) fn is_conditional(&self) -> bool {
        matches!(self.mode, WriteMode::Conditional(_))
    }

    /// Returns the bytes that the row must hold before the write; `None` for no row. `None` says
    /// nothing about an ordered write, nor about a write on the basis [`RecordBasis::InLog`].
    pub(crate) fn expected(&self) -> Option<&Bytes> {
        match &self.mode {
            WriteMode::Conditional(expected) | WriteMode::ReadBack(expected) => expected.as_ref(),
            WriteMode::Ordered(_) => None,
        }
    }

    /// Returns the write of a conditional row.
    pub(crate) fn conditional(&self) -> Conditional {
        let (ccols, value) = (self.key.ccols.clone(), self.after.clone());
        match &self.mode {
            WriteMode::Conditional(Some(old)) => {
                Conditional::Swap { ccols, old: old.clone(), new: value, ttl: None }
            }
            _ => Conditional::Insert { ccols, value, ttl: None },
        }
    }

    /// Returns the write of an ordered row.
    pub(crate) fn ordered(&self) -> OrderedPut {
        let ttl = match self.mode {
            WriteMode::Ordered(ttl) => ttl,
            WriteMode::Conditional(_) | WriteMode::ReadBack(_) => None,
        };
        OrderedPut { key: self.key.clone(), value: self.after.clone(), order: self.order, ttl }
    }
}
