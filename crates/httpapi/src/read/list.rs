//! Reading a list of documents, page by page.

use std::collections::VecDeque;

use futures::TryStreamExt;
use serde_json::json;
use vvm::{
    LocalPartition,
    eventlog::{RecordBlock, RecordId, StoredRecord, WsId},
    isequencer::standard::{CRECORD_ID, FIRST_CRECORD_ID},
};

use super::{
    list_query::{ListOrder, ListQuery},
    record::{check_workspace_exists, read_problem},
    steps::ReadSteps,
};
use crate::{problem::ProblemDetails, rows::json_of_record};

/// The number of bytes after which a page of documents ends. The last document may exceed it,
/// because documents may be large.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// The number of records that one answer examines; downwards, the number of ids. Many records of
/// other tables, and many that the filter does not accept, may stand between two documents of a list.
const MOST_EXAMINED: usize = 10_000;

/// The number of ids of the first block that is read downwards, and of the largest. A block is read
/// to its end although the page may be full before, so the first one is small.
const FIRST_BLOCK: u64 = 16;
const LARGEST_BLOCK: u64 = 512;

/// Lists documents of a collection in the order of their ids.
pub(crate) async fn list_docs(
    partition: &LocalPartition<'_>,
    ws: WsId,
    query: &ListQuery,
) -> Result<Vec<u8>, ProblemDetails> {
    let last = partition.last_number(ws, CRECORD_ID).await;
    let last = last.map_err(read_problem)?.unwrap_or(FIRST_CRECORD_ID);
    let mut page = DocsPage::new(query);
    match query.order {
        ListOrder::Ascending => page.read_upwards(partition, ws, last).await?,
        ListOrder::Descending => page.read_downwards(partition, ws, last).await?,
    }
    if page.count == 0 && page.next.is_none() {
        check_workspace_exists(partition, ws).await?;
    }
    Ok(page.into_json())
}

/// A page of a list while it is read.
struct DocsPage<'q> {
    query: &'q ListQuery,
    /// The documents, with commas between them.
    docs: Vec<u8>,
    count: usize,
    /// The place at which the next page goes on; `None` at the end of the list.
    next: Option<u64>,
    steps: ReadSteps,
}

impl<'q> DocsPage<'q> {
    fn new(query: &'q ListQuery) -> DocsPage<'q> {
        DocsPage { query, docs: Vec::new(), count: 0, next: None, steps: ReadSteps::default() }
    }

    /// The JSON of a record; `None` if the record is not listed.
    fn json_of(&self, stored: &StoredRecord) -> Option<String> {
        let record = &stored.record;
        let is_listed = record.table == self.query.table && self.query.filter.accepts(record);
        is_listed.then(|| json_of_record(stored, &self.query.shown).to_string())
    }

    fn add(&mut self, json: &str) {
        if self.count > 0 {
            self.docs.push(b',');
        }
        self.docs.extend_from_slice(json.as_bytes());
        self.count += 1;
    }

    fn is_full(&self) -> bool {
        self.count == self.query.limit || self.docs.len() >= PAGE_BYTES
    }

    async fn read_upwards(
        &mut self,
        partition: &LocalPartition<'_>,
        ws: WsId,
        last: u64,
    ) -> Result<(), ProblemDetails> {
        let after = self.query.after.unwrap_or(0);
        let from = FIRST_CRECORD_ID.max(after.saturating_add(1));
        let mut records = partition.records(ws, RecordId(from), RecordId(last));
        let mut examined = 0;
        while let Some(stored) = records.try_next().await.map_err(read_problem)? {
            examined += 1;
            let json = self.json_of(&stored);
            self.steps.examined(json.as_ref().map_or(0, String::len)).await;
            json.iter().for_each(|json| self.add(json));
            if examined == MOST_EXAMINED || self.is_full() {
                self.next = Some(stored.record.id.0);
                break;
            }
        }
        Ok(())
    }

    /// Reads blocks of ids, from the last one on. The storage reads each block upwards.
    ///
    /// Of each block only the last documents are kept that fill the page, so a page takes as little
    /// memory as one that is read upwards.
    async fn read_downwards(
        &mut self,
        partition: &LocalPartition<'_>,
        ws: WsId,
        last: u64,
    ) -> Result<(), ProblemDetails> {
        let mut behind = last.saturating_add(1).min(self.query.after.unwrap_or(u64::MAX));
        let (mut examined, mut ids) = (0, FIRST_BLOCK);
        while behind > FIRST_CRECORD_ID {
            let may_examine = MOST_EXAMINED as u64 - examined;
            let ids_left = ids.min(behind - FIRST_CRECORD_ID).min(may_examine);
            let block = RecordBlock::ending_with(RecordId(behind - 1), ids_left);
            let docs = self.last_docs_of(partition, ws, block).await?;
            for (id, json) in docs.iter().rev() {
                self.add(json);
                if self.is_full() {
                    self.next = Some(*id);
                    return Ok(());
                }
            }
            behind = block.first().0;
            examined += block.ids();
            if examined >= MOST_EXAMINED as u64 && behind > FIRST_CRECORD_ID {
                self.next = Some(behind);
                return Ok(());
            }
            ids = (ids * 2).min(LARGEST_BLOCK);
        }
        Ok(())
    }

    /// The last documents of a block: as many as the page has room for, or a few more.
    async fn last_docs_of(
        &mut self,
        partition: &LocalPartition<'_>,
        ws: WsId,
        block: RecordBlock,
    ) -> Result<VecDeque<(u64, String)>, ProblemDetails> {
        let (mut docs, mut bytes) = (VecDeque::<(u64, String)>::new(), 0);
        let mut records = partition.block(ws, block);
        while let Some(stored) = records.try_next().await.map_err(read_problem)? {
            let json = self.json_of(&stored);
            self.steps.examined(json.as_ref().map_or(0, String::len)).await;
            let Some(json) = json else { continue };
            bytes += json.len();
            docs.push_back((stored.record.id.0, json));
            // The documents behind the first one fill the page without it.
            while let Some((_, first)) = docs.front()
                && (docs.len() > self.query.limit - self.count
                    || self.docs.len() + bytes - first.len() >= PAGE_BYTES)
            {
                bytes -= first.len();
                docs.pop_front();
            }
        }
        Ok(docs)
    }

    fn into_json(self) -> Vec<u8> {
        let mut json = br#"{"docs":["#.to_vec();
        json.extend_from_slice(&self.docs);
        json.extend_from_slice(format!(r#"],"next":{}}}"#, json!(self.next)).as_bytes());
        json
    }
}
