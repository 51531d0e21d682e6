//! Events and entries of logs.

use std::num::NonZeroU16;

use base::{Epoch, Offset, WsId};
use bytes::Bytes;
use clock::WallTime;
use serde::{Deserialize, Serialize};

use crate::{QName, Record, Version};

/// The place of an event in the logs, and the epoch of its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct EventPlace {
    /// The epoch of the leader that wrote the event.
    pub epoch: Epoch,
    /// The offset in the log of the partition.
    pub plog: Offset,
    /// The workspace.
    pub ws: WsId,
    /// The offset in the log of the workspace.
    pub wlog: Offset,
}

/// The last number that an event drew from a sequence of its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct DrawnNumber {
    /// The sequence.
    pub seq: u16,
    /// The number.
    pub last: u64,
}

/// The idempotency key and the answer of a command, so that the same command, sent again, gets the
/// first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The hash of the sender and of the idempotency key. The answer is stored under this hash.
    pub key: [u8; 32],
    /// The hash of the body of the command.
    pub body: [u8; 32],
    /// The answer to the command.
    pub answer: Bytes,
}

/// The stored answer to a command, for the next time that the command is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The place of the event of the command.
    pub place: EventPlace,
    /// The hash of the sender and of the idempotency key. The answer is stored under this hash.
    pub key: [u8; 32],
    /// The hash of the body of the command.
    pub body: [u8; 32],
    /// The answer.
    pub answer: Bytes,
}

/// A record as it is after the event.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordChange {
    /// The version that the event found and replaced; `None` if the event made the record.
    pub replaces: Option<Version>,
    /// The whole record.
    pub record: Record,
}

/// Everything that one command did. Logs and records follow from events.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The place of the event.
    pub place: EventPlace,
    /// The time of the event, in microseconds. Times never fall along the log of a partition.
    pub time: WallTime,
    /// The name of the request that caused the event.
    pub request: String,
    /// The sender of the command; empty if the sender is not known.
    pub principal: String,
    /// The idempotency key and the answer, if the command may be sent again.
    pub idempotency: Option<Idempotency>,
    /// The name of the command.
    pub command: QName,
    /// The input of the command except for documents, as it was sent.
    pub params: Bytes,
    /// All records that the event wrote, including documents of the operation.
    pub changes: Vec<RecordChange>,
    /// The last number of each sequence that the event drew from.
    pub drawn: Vec<DrawnNumber>,
}

impl Event {
    /// Creates an event without params, changes, numbers, a name of the request, a sender, and an
    /// idempotency key.
    pub fn new(place: EventPlace, time: WallTime, command: QName) -> Event {
        let (params, changes, drawn) = (Bytes::new(), Vec::new(), Vec::new());
        let (request, principal, idempotency) = (String::new(), String::new(), None);
        Event { place, time, request, principal, idempotency, command, params, changes, drawn }
    }
}

/// A marker: an entry in the place of an event that cannot be read. An operator put the marker
/// there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The place of the event.
    pub place: EventPlace,
    /// The epoch of the leader under which the event was marked.
    pub marked: Epoch,
    /// The numbers that the event drew.
    pub drawn: Vec<DrawnNumber>,
    /// The bytes of the event.
    pub bytes: Bytes,
}

/// A fencing entry: an entry of the log of a partition without an event.
///
/// A leader writes a fencing entry at the end of the log that it found, before it answers anything
/// that a late write of a former leader could contradict. The former leader inserts its event at
/// the end of the log that it knew, which is not after the fencing entry. So the late insert is
/// refused. No other row follows from a fencing entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencingEntry {
    /// The epoch of the leader that wrote the entry.
    pub epoch: Epoch,
    /// The partition.
    pub partition: u16,
    /// The offset in the log of the partition.
    pub plog: Offset,
    /// The time of the entry, in microseconds. Times never fall along the log of a partition.
    pub time: WallTime,
}

/// An entry of a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// An event.
    Event(Box<Event>),
    /// A marker in the place of an event that cannot be read any more.
    Marker(Marker),
    /// An entry without an event. Only logs of partitions have fencing entries.
    Fencing(FencingEntry),
}

impl Entry {
    /// Returns the place of the event; `None` for a fencing entry, which is in no workspace.
    pub fn place(&self) -> Option<EventPlace> {
        match self {
            Entry::Event(event) => Some(event.place),
            Entry::Marker(marker) => Some(marker.place),
            Entry::Fencing(_) => None,
        }
    }

    /// Returns the epoch of the leader that wrote the entry. For a marker: the epoch of its event.
    pub fn epoch(&self) -> Epoch {
        match self {
            Entry::Event(event) => event.place.epoch,
            Entry::Marker(marker) => marker.place.epoch,
            Entry::Fencing(fencing) => fencing.epoch,
        }
    }

    /// Returns the offset in the log of the partition.
    pub fn plog(&self) -> Offset {
        match self {
            Entry::Event(event) => event.place.plog,
            Entry::Marker(marker) => marker.place.plog,
            Entry::Fencing(fencing) => fencing.plog,
        }
    }

    /// Returns the partition of the entry, in an application with this many partitions.
    pub fn partition(&self, partitions: NonZeroU16) -> u16 {
        match self {
            Entry::Event(event) => event.place.ws.partition(partitions),
            Entry::Marker(marker) => marker.place.ws.partition(partitions),
            Entry::Fencing(fencing) => fencing.partition,
        }
    }

    /// Returns the time of the entry; `None` for a marker, which has no time.
    pub fn time(&self) -> Option<WallTime> {
        match self {
            Entry::Event(event) => Some(event.time),
            Entry::Marker(_) => None,
            Entry::Fencing(fencing) => Some(fencing.time),
        }
    }

    /// Returns the last number of each sequence that the event drew from.
    pub fn drawn(&self) -> &[DrawnNumber] {
        match self {
            Entry::Event(event) => &event.drawn,
            Entry::Marker(marker) => &marker.drawn,
            Entry::Fencing(_) => &[],
        }
    }
}
