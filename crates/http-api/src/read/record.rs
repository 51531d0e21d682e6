//! Reading a record, and the problem of a read that failed.

use http_server::problem::ProblemDetails;
use hyper::StatusCode;
use vvm::{
    LocalPartition,
    eventlog::{self, RecordId, StoredRecord, Table, WsId},
};

/// The number of bytes of an answer after which a step ends. A step should take less than a
/// millisecond, because the other requests on the same thread wait for it.
pub(super) const STEP_BYTES: usize = 64 << 10;

/// The problem of a read that failed.
pub fn read_problem(error: eventlog::Error) -> ProblemDetails {
    if error.is_lasting() {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        return ProblemDetails::new(
            status,
            "internal",
            format!("{error}: an operator must repair it"),
        );
    }
    ProblemDetails::unavailable("storage", error.to_string())
}

/// Checks that a workspace exists. An empty answer needs this check.
pub async fn check_workspace_exists(
    partition: &LocalPartition<'_>,
    ws: WsId,
) -> Result<(), ProblemDetails> {
    match partition.has_workspace(ws).await.map_err(read_problem)? {
        true => Ok(()),
        false => Err(no_workspace(ws)),
    }
}

pub(crate) fn no_workspace(ws: WsId) -> ProblemDetails {
    ProblemDetails::not_found(format!("workspace {} does not exist", ws.0))
}

/// Reads a record of a table.
pub(crate) async fn read_record(
    partition: &LocalPartition<'_>,
    ws: WsId,
    table: &Table,
    id: RecordId,
) -> Result<StoredRecord, ProblemDetails> {
    let stored = partition.record(ws, id).await.map_err(read_problem)?;
    of_table(stored, table, id)
}

/// The record that was read, if it belongs to this table.
pub(crate) fn of_table(
    stored: Option<StoredRecord>,
    table: &Table,
    id: RecordId,
) -> Result<StoredRecord, ProblemDetails> {
    let stored = stored.filter(|stored| stored.record.table == *table.name());
    stored.ok_or_else(|| {
        ProblemDetails::not_found(format!("{} {} does not exist", table.name(), id.0))
    })
}
