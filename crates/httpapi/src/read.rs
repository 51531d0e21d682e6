//! Reading records, lists of documents, logs, and gaps between document numbers.

mod docs;
mod events;
mod filter;
mod gaps;
mod list;
mod list_query;
mod log;
mod places;
mod record;
mod steps;

pub(crate) use self::{
    docs::{DocsQuery, MOST_IDS, read_docs},
    events::LogEvents,
    gaps::{GapQuery, MOST_GAPS, list_gaps},
    list::{LONG_PAGES, list_docs},
    list_query::{ListQuery, MOST_DOCS},
    log::{LogPermits, LogReads, MOST_EVENTS, cut_at, stream_log},
    places::SendPlaces,
    record::{check_workspace_exists, no_workspace, of_table, read_problem, read_record},
};

/// The share of memory that an answer takes before it is read: for a page of the storage, and for
/// the JSON of that page. Only records and events of more than about 1 MiB need more.
pub const READ_BYTES: usize = 2 << 20;
