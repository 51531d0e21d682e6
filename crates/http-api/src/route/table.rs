//! The table of all endpoints of applications.
//!
//! The router, the checks of a request, the metrics and the description of the API read this table.
//! A new endpoint needs an entry here, an [`ApiOperation`], and the code that does it.

use access::Right;
use http_server::{
    problem::ProblemDetails,
    query::{DEFAULT_LIMIT, check_names},
};
use hyper::Method;
use vvm::eventlog::WsId;

use self::{
    AnswerKind::{
        BatchDone, Created, Documents, Done, Drawn, Events, Gaps, Next, OneRecord, OneSeries,
        Records, SeriesList,
    },
    RequestHeader::{IdempotencyKey, IfMatch, LastEventId},
    Segment::{Command, Is, Partition, Record, Series, Table, Workspace},
    Values::{Fields, Filter, Flag, Ids, Number, Offset, Order, Period, Word},
};
use super::operation::{ApiOperation as Op, LARGEST, name, path_number, record, series};
use crate::read::{MOST_DOCS, MOST_EVENTS, MOST_GAPS, MOST_IDS};

/// The parameter of a read that says where the answer may come from.
pub(crate) const CONSISTENCY: &str = "consistency";

/// The largest number of commands in a batch.
pub(crate) const MOST_COMMANDS: usize = 100;

/// An operation that clients can ask for: a path with a method.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// The path after the owner and the name of the application. The first variable part is the
    /// [place](Endpoint::place).
    pub(crate) path: &'static [Segment],
    /// The name of the operation in metrics and in the description.
    pub(crate) kind: &'static str,
    /// What the operation does, in one line.
    pub(crate) summary: &'static str,
    /// The right that a caller needs.
    pub(crate) right: Right,
    /// All parameters of the query. Any other is refused.
    pub(crate) parameters: &'static [Parameter],
    /// The headers that count for this operation, besides those that count for all.
    pub(crate) headers: &'static [RequestHeader],
    /// The body of the request; `None` if no body counts.
    pub(crate) body: Option<BodyKind>,
    pub(crate) answer: AnswerKind,
    /// Makes the operation from the variable parts of the path after the place.
    pub(crate) operation: fn([&str; 2]) -> Result<Op, ProblemDetails>,
}

/// A part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Is(&'static str),
    /// The number of a workspace.
    Workspace,
    /// The number of a partition.
    Partition,
    /// The name of a command.
    Command,
    /// The name of a table.
    Table,
    /// The id of a record.
    Record,
    /// The id of a series.
    Series,
}

/// A parameter of a query.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) values: Values,
    /// The meaning, in one line.
    pub(crate) summary: &'static str,
}

/// The values of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    Number {
        least: u64,
        most: Option<usize>,
        default: Option<usize>,
    },
    /// The offset of an event, or `end`.
    Offset,
    Flag,
    /// Only this word.
    Word(&'static str),
    /// A period of a series.
    Period,
    /// Ids of records, with commas between them.
    Ids {
        most: usize,
    },
    /// Names of fields, with commas between them.
    Fields,
    /// A JSON object with fields and the values that a document must have.
    Filter,
    /// `id` or `-id`.
    Order,
}

/// A header that counts for some operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestHeader {
    IdempotencyKey,
    IfMatch,
    LastEventId,
}

/// The form of the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Command,
    Batch,
    NewDoc,
    Change,
    Draw,
}

/// The form of an answer to a request that succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    Done,
    /// As `Done`, with the status code 201.
    Created,
    /// An answer for each command: as `Done`, or a problem.
    BatchDone,
    OneRecord,
    /// Records by their ids.
    Records,
    /// A list of documents.
    Documents,
    Events,
    SeriesList,
    OneSeries,
    Drawn,
    Next,
    Gaps,
}

impl Endpoint {
    /// Whether the operation only reads.
    pub(crate) fn is_read(&self) -> bool {
        self.right != Right::Write
    }

    /// Whether the operation reads a log.
    pub(crate) fn is_log(&self) -> bool {
        self.answer == Events
    }

    /// Refuses parameters that the operation does not have.
    pub(crate) fn check_query(&self, query: Option<&str>) -> Result<(), ProblemDetails> {
        check_names(self.parameters.iter().map(|parameter| parameter.name), query)
    }

    /// Whether the parts of a path are those of this endpoint.
    pub(super) fn has_path(&self, parts: &[&str]) -> bool {
        let is_part = |(segment, part): (&Segment, &&str)| match segment {
            Is(name) => name == part,
            _ => true,
        };
        self.path.len() == parts.len() && self.path.iter().zip(parts).all(is_part)
    }

    /// The variable parts of a path of this endpoint.
    pub(super) fn values_of<'p>(&self, parts: &[&'p str]) -> [&'p str; 3] {
        let is_variable = |(segment, _): &(&Segment, &&str)| !matches!(segment, Is(_));
        let mut variable = self.path.iter().zip(parts).filter(is_variable).map(|(_, part)| *part);
        [(); 3].map(|()| variable.next().unwrap_or_default())
    }

    /// The workspace that a path names; or the partition, as a workspace that stands for it.
    pub(crate) fn place(&self, number: &str) -> Result<WsId, ProblemDetails> {
        let (of, most) = match self.path.contains(&Partition) {
            true => ("the number of a partition", u16::MAX.into()),
            false => ("the number of a workspace", LARGEST),
        };
        path_number(number, of, most).map(WsId)
    }

    /// The methods of this endpoint, for the header `Allow`.
    pub(super) fn allowed(&self) -> &'static str {
        match self.method {
            Method::GET => "GET, HEAD",
            Method::POST => "POST",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "",
        }
    }
}

const RECORD: &[Segment] = &[Is("workspaces"), Workspace, Is("docs"), Table, Record];

const LOG: &[Parameter] = &[
    Parameter {
        name: "from",
        values: Offset,
        summary: "The first event. The default is 1. `end` needs `follow=true`.",
    },
    limit(MOST_EVENTS, "The largest number of events. A followed log has no default."),
    Parameter {
        name: "follow",
        values: Flag,
        summary: "Whether the answer goes on with the events that come.",
    },
];

const EVENTUAL: Parameter = Parameter {
    name: CONSISTENCY,
    values: Word("eventual"),
    summary: "Lets any node answer from the storage. The record may be outdated.",
};

const KEYS: Parameter = Parameter {
    name: "keys",
    values: Fields,
    summary: "The fields that the answer shows. The default is all fields.",
};

const PERIOD: Parameter = Parameter {
    name: "period",
    values: Period,
    summary: "The period of the counter. The default is the present one.",
};

const fn number(name: &'static str, summary: &'static str) -> Parameter {
    Parameter { name, values: Number { least: 0, most: None, default: None }, summary }
}

const fn limit(most: usize, summary: &'static str) -> Parameter {
    let (most, default) = (Some(most), Some(DEFAULT_LIMIT));
    Parameter { name: "limit", values: Number { least: 1, most, default }, summary }
}

/// All endpoints. Those of one path stand together, and `Allow` names their methods in this order.
pub(crate) static ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        method: Method::POST,
        path: &[Is("workspaces"), Workspace, Is("commands"), Command],
        kind: "command",
        summary: "Runs a command.",
        right: Right::Write,
        parameters: &[],
        headers: &[IdempotencyKey],
        body: Some(BodyKind::Command),
        answer: Done,
        operation: |[command, _]| Ok(Op::Command(name(command)?)),
    },
    Endpoint {
        method: Method::POST,
        path: &[Is("workspaces"), Workspace, Is("commands")],
        kind: "command_batch",
        summary: "Runs several commands in their order. Each is done or refused by itself.",
        right: Right::Write,
        parameters: &[],
        headers: &[IdempotencyKey],
        body: Some(BodyKind::Batch),
        answer: BatchDone,
        operation: |_| Ok(Op::CommandBatch),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("workspaces"), Workspace, Is("docs")],
        kind: "read_docs",
        summary: "Reads records of any tables by their ids.",
        right: Right::Read,
        parameters: &[
            Parameter {
                name: "ids",
                values: Ids { most: MOST_IDS },
                summary: "The ids of the records, each once. They are needed.",
            },
            KEYS,
            EVENTUAL,
        ],
        headers: &[],
        body: None,
        answer: Records,
        operation: |_| Ok(Op::ReadDocs),
    },
    Endpoint {
        method: Method::POST,
        path: &[Is("workspaces"), Workspace, Is("docs"), Table],
        kind: "create_doc",
        summary: "Creates a document.",
        right: Right::Write,
        parameters: &[],
        headers: &[IdempotencyKey],
        body: Some(BodyKind::NewDoc),
        answer: Created,
        operation: |[table, _]| Ok(Op::CreateDoc(name(table)?)),
    },
    Endpoint {
        method: Method::GET,
        path: RECORD,
        kind: "read_doc",
        summary: "Reads a record.",
        right: Right::Read,
        parameters: &[EVENTUAL],
        headers: &[],
        body: None,
        answer: OneRecord,
        operation: |[table, id]| Ok(Op::ReadDoc(name(table)?, record(id)?)),
    },
    Endpoint {
        method: Method::PATCH,
        path: RECORD,
        kind: "change_doc",
        summary: "Changes a record.",
        right: Right::Write,
        parameters: &[],
        headers: &[IdempotencyKey, IfMatch],
        body: Some(BodyKind::Change),
        answer: Done,
        operation: |[table, id]| Ok(Op::ChangeDoc(name(table)?, record(id)?)),
    },
    Endpoint {
        method: Method::DELETE,
        path: RECORD,
        kind: "deactivate_doc",
        summary: "Deactivates a record.",
        right: Right::Write,
        parameters: &[],
        headers: &[IdempotencyKey, IfMatch],
        body: None,
        answer: Done,
        operation: |[table, id]| Ok(Op::DeactivateDoc(name(table)?, record(id)?)),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("workspaces"), Workspace, Is("cdocs"), Table],
        kind: "list_docs",
        summary: "Lists documents of a collection, in the order of their ids.",
        right: Right::Read,
        parameters: &[
            Parameter {
                name: "where",
                values: Filter,
                summary: "The documents to list. The default is the active ones.",
            },
            KEYS,
            Parameter {
                name: "order",
                values: Order,
                summary: "The order of the ids. The default is `id`.",
            },
            number("after", "The id after which the list begins: `next` of the last answer."),
            limit(MOST_DOCS, "The largest number of documents."),
        ],
        headers: &[],
        body: None,
        answer: Documents,
        operation: |[table, _]| Ok(Op::ListDocs(name(table)?)),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("workspaces"), Workspace, Is("wlog")],
        kind: "wlog",
        summary: "Reads or follows the log of a workspace.",
        right: Right::Read,
        parameters: LOG,
        headers: &[LastEventId],
        body: None,
        answer: Events,
        operation: |_| Ok(Op::Log),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("partitions"), Partition, Is("plog")],
        kind: "plog",
        summary: "Reads or follows the log of a partition.",
        // It has the events of all workspaces, in the order of the storage.
        right: Right::Admin,
        parameters: LOG,
        headers: &[LastEventId],
        body: None,
        answer: Events,
        operation: |_| Ok(Op::PartitionLog),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("workspaces"), Workspace, Is("numbers")],
        kind: "list_series",
        summary: "Lists the series of document numbers.",
        right: Right::Read,
        parameters: &[],
        headers: &[],
        body: None,
        answer: SeriesList,
        operation: |_| Ok(Op::ListSeries),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("workspaces"), Workspace, Is("numbers"), Series],
        kind: "read_series",
        summary: "Reads the definition of a series.",
        right: Right::Read,
        parameters: &[],
        headers: &[],
        body: None,
        answer: OneSeries,
        operation: |[id, _]| Ok(Op::ReadSeries(series(id)?)),
    },
    Endpoint {
        method: Method::POST,
        path: &[Is("workspaces"), Workspace, Is("numbers"), Series, Is("next")],
        kind: "draw_numbers",
        summary: "Draws numbers of a fast series.",
        right: Right::Write,
        parameters: &[],
        headers: &[],
        body: Some(BodyKind::Draw),
        answer: Drawn,
        operation: |[id, _]| Ok(Op::DrawNumbers(series(id)?)),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("workspaces"), Workspace, Is("numbers"), Series, Is("peek")],
        kind: "peek_number",
        summary: "Shows the next number of a series, and draws nothing.",
        right: Right::Read,
        parameters: &[],
        headers: &[],
        body: None,
        answer: Next,
        operation: |[id, _]| Ok(Op::PeekNumber(series(id)?)),
    },
    Endpoint {
        method: Method::GET,
        path: &[Is("workspaces"), Workspace, Is("numbers"), Series, Is("gaps")],
        kind: "list_gaps",
        summary: "Lists the ranges of numbers that were reserved and may not be all issued.",
        right: Right::Read,
        parameters: &[
            PERIOD,
            number("from", "The first counter of the first range, or a lower one."),
            limit(MOST_GAPS, "The largest number of ranges."),
        ],
        headers: &[],
        body: None,
        answer: Gaps,
        operation: |[id, _]| Ok(Op::ListGaps(series(id)?)),
    },
];
