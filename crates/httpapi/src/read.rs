//! Reading records, lists of documents, logs, and gaps between document numbers.

mod gaps;
mod list;
mod log;
mod record;

pub(crate) use self::{
    gaps::{GapQuery, MOST_GAPS, list_gaps},
    list::{MOST_DOCS, list_docs},
    log::{LogPermits, LogReads, MOST_EVENTS, event_json, stream_log},
    record::{check_workspace_exists, of_table, read_problem, read_record},
};

/// The share of memory that an answer takes before it is read: for a page of the storage, and for
/// the JSON of that page. Only records and events of more than about 1 MiB need more.
pub const READ_BYTES: usize = 2 << 20;
