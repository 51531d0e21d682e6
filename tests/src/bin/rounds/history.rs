//! What the clients of a run saw, and what the logs and records were at its end.

mod file;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::file::{HistoryWriter, Line, read};

/// The operations of a run, and the final state of the application.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    pub(crate) end: FinalState,
    /// What the run itself found broken, such as bounds that were exceeded.
    pub(crate) broken: Vec<String>,
}

/// What the nodes answered after the last fault was over and all nodes had recovered.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinalState {
    /// The log of each workspace.
    pub(crate) logs: BTreeMap<u64, Vec<Event>>,
    /// The log of each partition.
    pub(crate) partitions: BTreeMap<u16, Vec<PartitionEvent>>,
    pub(crate) records: BTreeMap<RecordKey, Record>,
    /// The records of the lists of all documents, also of inactive ones.
    pub(crate) listed: BTreeMap<RecordKey, Record>,
    /// The parts that are in the history from their beginnings to their ends. Only these prove that
    /// something is missing: the rest of a history may be cut out, or was not read.
    pub(crate) whole: BTreeSet<Part>,
    /// The parts that could not be read, and why.
    pub(crate) unreadable: BTreeMap<Part, String>,
}

/// A part of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Part {
    /// All operations of a workspace.
    Operations(u64),
    /// The log of a workspace.
    Log(u64),
    /// The records of a workspace by their ids.
    Records(u64),
    /// The list of the documents of a workspace.
    List(u64),
    /// The log of a partition.
    Partition(u16),
    /// All parts: the run did not come to its end.
    All,
}

impl FinalState {
    /// Whether all of a part is in the history.
    pub(crate) fn is_whole(&self, part: Part) -> bool {
        self.whole.contains(&part) && !self.unreadable.contains_key(&part)
    }
}

/// The workspace and the id of a record.
pub(crate) type RecordKey = (u64, u64);

/// A request of a client, and its outcome. Times are microseconds since the start of the run, by
/// the one clock of the program that runs the clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    /// The place of the operation in the run.
    pub(crate) number: u64,
    pub(crate) client: u32,
    /// The place of the node that a command was sent to. Other requests and the histories of
    /// earlier runs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<usize>,
    pub(crate) begin: u64,
    /// When the outcome was known.
    pub(crate) end: u64,
    pub(crate) ws: u64,
    pub(crate) request: Request,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Request {
    /// A command. The event of the command has its `id` as request id. With `has_key` the id was
    /// sent as the idempotency key, too, and further tries of the command have the same id.
    Write {
        id: String,
        has_key: bool,
        /// The place in the batch. All commands of a batch have its id.
        place: Option<u32>,
        change: Change,
        /// The rows that were sent.
        rows: Vec<SentRow>,
    },
    /// A read of one document by its id.
    Read { id: u64, eventual: bool },
    /// A page of the list of the active documents of a table, in the order of their ids. `after` is
    /// the id after which the page begins.
    List { table: String, after: u64 },
    /// A read of the log of the workspace from an offset to its end.
    Log { from: u64 },
    /// Events of a followed log. The operations of one `follower` continue each other.
    Follow { follower: u32, from: u64 },
    /// A follower stops, some time after the clients. It got all events before `next`.
    FollowEnd { follower: u32, next: u64 },
    /// A draw of document numbers of a fast series.
    Draw { series: String, count: u64 },
}

/// The change that a command makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "does", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Change {
    /// The command creates documents.
    Create,
    /// The command changes a document, if the document has the version of `if_match`.
    Update { id: u64, if_match: Option<Version> },
}

/// A row of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SentRow {
    /// The id of a record, or up to [`SentRow::LAST_RAW_ID`] the raw id of a new one.
    pub(crate) id: u64,
    pub(crate) table: String,
    /// The parent, by its raw id if the command creates it, too.
    pub(crate) parent: Option<Parent>,
    pub(crate) is_active: Option<bool>,
    /// An object. `null` empties a field.
    pub(crate) fields: Value,
}

/// The record that contains a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parent {
    pub(crate) id: u64,
    pub(crate) container: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "was", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Outcome {
    /// The command is done.
    Written(Written),
    /// The node refused the request. A refused command has no effect.
    Refused {
        status: u16,
        code: String,
    },
    /// Nothing is known of the effect: no answer, a part of an answer, or
    /// 504 `unknown`.
    Unknown {
        why: String,
    },
    /// The API does not document this answer for the request: for example 500, or a body that makes
    /// no sense. Nothing is known of the effect.
    Wrong {
        why: String,
    },
    /// The record, or `None` if there is none. `says_eventual` is whether the answer said that it
    /// may be old.
    Document {
        record: Option<Record>,
        says_eventual: bool,
    },
    /// The documents of a page. `next` is the id after which the list goes on.
    Listed {
        documents: Vec<(u64, Version)>,
        next: Option<u64>,
    },
    /// The events of a log, in the order of their arrival.
    Events {
        events: Vec<Event>,
    },
    Drawn {
        numbers: Vec<String>,
    },
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Written {
    pub(crate) wlog: u64,
    pub(crate) version: Version,
    /// The raw and the real ids of the new records, in the order of the raw ids.
    pub(crate) ids: Vec<(u64, u64)>,
    pub(crate) repeated: bool,
    /// The node of a cluster that did the command. `None` if the node is alone.
    pub(crate) served_by: Option<String>,
}

/// The event that wrote a record last: the epoch of the leader, and the offset in the log of the
/// partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Version {
    pub(crate) epoch: u64,
    pub(crate) offset: u64,
}

/// An event of the log of a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    pub(crate) wlog: u64,
    pub(crate) version: Version,
    pub(crate) request: String,
    /// Microseconds since 1970, by the clock of the leader. Histories of earlier runs have none.
    pub(crate) time_micros: Option<u64>,
    /// The records as they were after the event.
    pub(crate) rows: Vec<Row>,
}

/// A record as an event left it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) id: u64,
    pub(crate) table: String,
    pub(crate) is_active: bool,
    pub(crate) parent: Option<Parent>,
    pub(crate) fields: Value,
}

/// An entry of the log of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PartitionEvent {
    pub(crate) version: Version,
    /// The workspace; 0 for a fencing entry, which has no event.
    pub(crate) ws: u64,
    pub(crate) wlog: u64,
    pub(crate) request: String,
    /// As in [`Event`].
    pub(crate) time_micros: Option<u64>,
}

/// A record as a read returned it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) row: Row,
    pub(crate) version: Version,
}

impl PartitionEvent {
    /// Whether this is a fencing entry: no workspace has the number 0.
    pub(crate) fn is_fencing(&self) -> bool {
        self.ws == 0
    }
}

impl Outcome {
    /// Whether the answer says that the command is in the log, and is not applied yet.
    pub(crate) fn says_not_applied(&self) -> bool {
        let Outcome::Unknown { why } = self else { return false };
        why.strip_prefix("500: ").is_some_and(|problem| problem.contains("\"not_applied\""))
    }

    /// Whether a node answered that it does not know the outcome.
    pub(crate) fn says_unknown(&self) -> bool {
        matches!(self, Outcome::Unknown { why } if why.starts_with("504: "))
    }
}

impl SentRow {
    pub(crate) const LAST_RAW_ID: u64 = 65_535;

    pub(crate) fn is_new(&self) -> bool {
        self.id <= SentRow::LAST_RAW_ID
    }
}

impl Operation {
    /// The command, and the answer if it is done.
    pub(crate) fn write(&self) -> Option<(CommandId<'_>, Option<&Written>)> {
        let Request::Write { id, place, .. } = &self.request else { return None };
        let command = CommandId { request: id, place: *place };
        match &self.outcome {
            Outcome::Written(written) => Some((command, Some(written))),
            _ => Some((command, None)),
        }
    }
}

/// All tries of a command have its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CommandId<'h> {
    pub(crate) request: &'h str,
    pub(crate) place: Option<u32>,
}

impl fmt::Display for CommandId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{place} of batch {:?}", self.request),
            None => write!(f, "{:?}", self.request),
        }
    }
}
