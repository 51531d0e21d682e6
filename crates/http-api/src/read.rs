//! Reading records, lists of documents, logs, and gaps between document numbers.

mod docs;
mod events;
mod filter;
mod gaps;
mod list;
mod list_query;
mod log;
mod record;
mod steps;

pub use self::record::{check_workspace_exists, read_problem};
pub(crate) use self::{
    docs::{DocsQuery, MOST_IDS, read_docs},
    events::LogEvents,
    gaps::{GapQuery, MOST_GAPS, list_gaps},
    list::list_docs,
    list_query::{ListQuery, MOST_DOCS},
    log::{MOST_EVENTS, send_log},
    record::{no_workspace, of_table, read_record},
};
