//! What the storage of the model holds.

use std::fmt;

use crate::decide::{Place, Progress, StoredIndex};

/// The epoch of a leader and the offset of its event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) epoch: u32,
    pub(crate) plog: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordId {
    pub(crate) ws: u8,
    pub(crate) id: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) is_active: bool,
    /// The fields of the index: `equal = [a], order = [b]`.
    pub(crate) a: Option<u8>,
    pub(crate) b: u8,
    /// The unique field.
    pub(crate) u: Option<u8>,
}

/// What a list names: a workspace and a key in it.
pub(crate) type Equal = (u8, u8);
pub(crate) type RecordPlace = Place<Equal, u8>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Definition {
    Index,
    Unique,
}

pub(crate) type IndexList = Vec<StoredIndex<Definition>>;

impl Definition {
    pub(crate) const ALL: [Definition; 2] = [Definition::Index, Definition::Unique];

    pub(crate) fn place(self, ws: u8, record: &Record) -> Option<RecordPlace> {
        let (field, order) = match self {
            Definition::Index => (record.a, record.b),
            Definition::Unique => (record.u, 0),
        };
        Some(Place { equal: (ws, field.filter(|_| record.is_active)?), order })
    }
}

#[derive(Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) id: u64,
    pub(crate) replaces: Option<Version>,
    pub(crate) record: Record,
}

/// An entry of the log.
#[derive(Clone, PartialEq)]
pub(crate) struct LogEntry {
    pub(crate) version: Version,
    pub(crate) ws: u8,
    /// The last id that the entry drew.
    pub(crate) drawn: Option<u64>,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Event(Vec<Change>),
    Fence,
    /// The content of the event is lost. The changes that were applied before are here for the
    /// judge alone.
    Marker(Vec<Change>),
}

impl LogEntry {
    /// The changes that a leader can read.
    pub(crate) fn changes(&self) -> &[Change] {
        match &self.content {
            Content::Event(changes) => changes,
            Content::Fence | Content::Marker(_) => &[],
        }
    }

    pub(crate) fn is_marker(&self) -> bool {
        matches!(self.content, Content::Marker(_))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Deployment,
    StoredOffset,
    Plog(u64),
    Progress(u32),
    Record(RecordId),
    Entry(u32, RecordPlace, u64),
    /// The only row of a unique key, in the design that was tried first.
    Holder(u32, Equal),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    List(IndexList),
    Offset(u64),
    Log(LogEntry),
    Progress(Progress),
    Record(Record, Version),
    Live,
    Empty,
    Holder(Option<u64>),
    /// Another program wrote the row.
    Foreign,
    /// The row cannot be read, and every write of it fails.
    Damaged,
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.plog)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ws, self.id)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { is_active, a, b, u } = self;
        let field = |value: &Option<u8>| value.map_or("-".to_owned(), |value| value.to_string());
        write!(
            f,
            "a={} b={b} u={}{}",
            field(a),
            field(u),
            if *is_active { "" } else { " inactive" }
        )
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { id, replaces, record } = self;
        match replaces {
            Some(version) => write!(f, "{id} over {version:?}: {record:?}"),
            None => write!(f, "new {id}: {record:?}"),
        }
    }
}

impl fmt::Debug for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {:?} of {}: {:?}", self.version, self.ws, self.content)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Deployment => write!(f, "deployment"),
            Key::StoredOffset => write!(f, "stored offset"),
            Key::Plog(offset) => write!(f, "plog {offset}"),
            Key::Progress(number) => write!(f, "progress {number}"),
            Key::Record(id) => write!(f, "record {id:?}"),
            Key::Entry(number, place, id) => {
                write!(f, "entry {number} {:?} {} {id}", place.equal, place.order)
            }
            Key::Holder(number, equal) => write!(f, "holder {number} {equal:?}"),
        }
    }
}
