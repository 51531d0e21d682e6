//! What happened.

use std::num::NonZeroU16;

use bytes::Bytes;
use clock::WallTime;

use crate::{QName, Record, Version};

/// The fencing token of a leader. It has at most 23 bits: what it is written with is an order of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A place in a log, of a partition or of a workspace. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// Where a log begins.
    pub const FIRST: Offset = Offset(1);

    /// The place after this one.
    #[must_use]
    pub const fn next(self) -> Offset {
        Offset(self.0.saturating_add(1))
    }
}

/// A workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WsId(pub u64);

impl WsId {
    /// The partition that the workspace is in: its number modulo the number of partitions.
    pub fn partition(self, partitions: NonZeroU16) -> u16 {
        // The remainder is less than a number of 16 bits.
        (self.0 % u64::from(partitions.get())) as u16
    }
}

/// Where an event is in the logs, and who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of the leader.
    pub epoch: Epoch,
    /// In the log of the partition.
    pub plog: Offset,
    /// The workspace.
    pub ws: WsId,
    /// In the log of the workspace.
    pub wlog: Offset,
}

/// The last number that an event drew from a sequence of its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The sequence.
    pub seq: u16,
    /// The number.
    pub last: u64,
}

/// So that the same command, sent again, gets the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Who sent it.
    pub principal: String,
    /// The hash of who sent it and of the key that it came with: under this its answer is found.
    pub key: [u8; 32],
    /// The hash of what it said.
    pub body: [u8; 32],
    /// What it was answered.
    pub answer: Bytes,
}

/// What a command was answered, for whoever sends it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// Where its event is.
    pub place: Place,
    /// The hash of who sent the command and of its key: the answer is stored under this hash.
    pub key: [u8; 32],
    /// The hash of what the command said.
    pub body: [u8; 32],
    /// The answer.
    pub answer: Bytes,
}

/// A row as it is after the event.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What the event found there and replaced; `None` if it made the row.
    pub replaces: Option<Version>,
    /// All of it.
    pub record: Record,
}

/// Everything that a command did. Logs and tables are functions of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Where it is.
    pub place: Place,
    /// When it happened, to the microsecond; never before the event in front of it in the log of its partition.
    pub time: WallTime,
    /// What the request was called that caused it.
    pub request: String,
    /// If its command may be sent again.
    pub idempotency: Option<Idempotency>,
    /// What was asked for.
    pub command: QName,
    /// With what, besides documents: as it came.
    pub params: Bytes,
    /// All rows that it wrote, documents of the operation among them.
    pub changes: Vec<Change>,
    /// The last number of each sequence that it drew from.
    pub drawn: Vec<Drawn>,
}

/// What stands in a log in the place of an event that cannot be read. An operator put it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupted {
    /// Where the event was.
    pub place: Place,
    /// Of the leader under whom it was marked.
    pub marked: Epoch,
    /// What it drew.
    pub drawn: Vec<Drawn>,
    /// Its bytes.
    pub bytes: Bytes,
}

/// A row of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// What happened.
    Event(Box<Event>),
    /// Something happened that cannot be read any more.
    Corrupted(Corrupted),
}

impl Entry {
    /// Where it is.
    pub fn place(&self) -> Place {
        match self {
            Entry::Event(event) => event.place,
            Entry::Corrupted(corrupted) => corrupted.place,
        }
    }

    /// The last number of each sequence that was drawn from.
    pub fn drawn(&self) -> &[Drawn] {
        match self {
            Entry::Event(event) => &event.drawn,
            Entry::Corrupted(corrupted) => &corrupted.drawn,
        }
    }
}
