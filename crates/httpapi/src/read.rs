//! Reading records, lists of documents and logs.

mod list;
mod log;
mod next_number;
mod record;

pub(crate) use self::{
    list::list_docs,
    log::{LogPermits, stream_log},
    next_number::next_number,
    record::{check_workspace_exists, read_record},
};

/// The share of memory that an answer takes before it is read: for a page of the storage, and for
/// the JSON of that page. Only records and events of more than about 1 MiB need more.
pub const READ_BYTES: usize = 2 << 20;
