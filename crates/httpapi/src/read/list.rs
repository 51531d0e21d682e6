//! Reading a list of documents, page by page.

use futures::TryStreamExt;
use serde_json::json;
use tokio::task::yield_now;
use vvm::{
    LocalPartition,
    eventlog::{RecordId, StoredRecord, Table, TableKind, WsId},
    isequencer::standard,
};

use super::record::{STEP_BYTES, check_workspace_exists, read_problem};
use crate::{
    problem::ProblemDetails,
    query::{limit, parameter},
    rows::json_of_record,
};

/// The largest number of documents in a list.
pub(crate) const MOST_DOCS: usize = 1_000;

/// The number of bytes after which a page of documents ends. The last document may exceed it,
/// because documents may be large.
const PAGE_BYTES: usize = 1 << 20;

/// The number of records that one step examines.
const STEP_RECORDS: usize = 100;

/// The number of records that one answer examines. Many records of other tables may stand between
/// two records of a table.
const MOST_EXAMINED: usize = 10_000;

/// Lists the documents of a collection in the order of their ids.
pub(crate) async fn list_docs(
    partition: &LocalPartition<'_>,
    ws: WsId,
    table: &Table,
    query: Option<&str>,
) -> Result<Vec<u8>, ProblemDetails> {
    if table.kind() != TableKind::CDoc {
        let reason = format!("{} is not a table of documents of a collection (CDoc)", table.name());
        return Err(ProblemDetails::bad_request(reason));
    }
    let limit = limit(query, MOST_DOCS)?;
    let first = standard::FIRST_CRECORD_ID;
    let after: u64 = parameter(query, "after")?.unwrap_or(0);
    let last = partition.last_number(ws, standard::CRECORD_ID).await;
    let last = last.map_err(read_problem)?;
    let from = RecordId(first.max(after.saturating_add(1)));
    let mut records = partition.records(ws, from, RecordId(last.unwrap_or(first)));
    let mut page = br#"{"docs":["#.to_vec();
    let (mut count, mut examined, mut next, mut step) = (0, 0, None, 0);
    while let Some(stored) = records.try_next().await.map_err(read_problem)? {
        examined += 1;
        let StoredRecord { record, .. } = &stored;
        let is_listed = record.table == *table.name() && record.is_active;
        if is_listed {
            if count > 0 {
                page.push(b',');
            }
            let doc = json_of_record(&stored).to_string();
            page.extend_from_slice(doc.as_bytes());
            count += 1;
        }
        if count == limit || examined == MOST_EXAMINED || page.len() >= PAGE_BYTES {
            next = Some(record.id.0);
            break;
        }
        if examined.is_multiple_of(STEP_RECORDS) || page.len() - step >= STEP_BYTES {
            step = page.len();
            yield_now().await;
        }
    }
    if count == 0 && next.is_none() {
        check_workspace_exists(partition, ws).await?;
    }
    page.extend_from_slice(format!(r#"],"next":{}}}"#, json!(next)).as_bytes());
    Ok(page)
}
