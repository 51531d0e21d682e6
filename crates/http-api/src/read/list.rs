//! Reading a list of documents, page by page.
//!
//! Invariant: a page ends with the place where the list goes on, whatever records and gaps it
//! meets. Each page gets farther than the one before. A page has no documents only if the list ends
//! there, its time is over, or too many such pages are read at that moment.

use std::{collections::VecDeque, sync::Arc};

use clock::{Clock, Instant};
use futures::{Stream, TryStreamExt};
use http_server::{
    limits::{Limit, Permit},
    problem::ProblemDetails,
};
use serde_json::json;
use vvm::{
    eventlog::{self, RecordBlock, RecordId, StoredRecord},
    isequencer::standard::FIRST_CRECORD_ID,
};

use super::{
    list_query::{ListDirection, ListQuery},
    record::read_problem,
    steps::ReadSteps,
};
use crate::rows::json_of_record;

/// The number of bytes after which a page of documents ends. The last document may exceed it,
/// because documents may be large.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// The number of records after which a page with documents ends. Many records of other tables, and
/// many that the filter does not accept, may stand between two documents of a list. A block without
/// records counts as one.
///
/// A page without documents goes on, if one of the [long pages](crate::limits::Limits) is free. A
/// client would take an empty page for the end of the list, or else ask again at once.
const MOST_EXAMINED: u64 = 10_000;

/// The most ids of the first block that is read downwards. Each block is twice as large as the one
/// before. A block is read to its end although the page may be full before, so the first one is
/// small: its records may be large.
const FIRST_BLOCK: usize = 4;

/// A page of a list.
#[derive(Debug)]
pub(crate) struct ListedDocs {
    pub(crate) json: Vec<u8>,
    /// Whether the whole list has no documents.
    pub(crate) is_nothing: bool,
}

/// Lists documents of a collection in the order of their ids, and ends the page soon after `until`.
/// `last` is the last id, and `read` reads the records of a block.
pub(crate) async fn list_docs<S: Stream<Item = eventlog::Result<StoredRecord>> + Unpin>(
    query: &ListQuery<'_>,
    last: u64,
    clock: &Clock,
    until: Instant,
    long_pages: &Arc<Limit>,
    read: impl Fn(RecordBlock) -> S,
) -> Result<ListedDocs, ProblemDetails> {
    let mut page = DocsPage {
        query,
        docs: Vec::new(),
        count: 0,
        next: None,
        examined: 0,
        clock,
        until,
        long_pages,
        long_page: None,
        steps: ReadSteps::default(),
    };
    match query.order {
        ListDirection::Ascending => page.read_upwards(last, read).await,
        ListDirection::Descending => page.read_downwards(last, read).await,
    }
    .map_err(read_problem)?;
    Ok(ListedDocs { is_nothing: page.count == 0 && page.next.is_none(), json: page.into_json() })
}

/// A page of a list while it is read.
struct DocsPage<'q> {
    query: &'q ListQuery<'q>,
    /// The documents, with commas between them.
    docs: Vec<u8>,
    count: usize,
    /// Where the next page goes on; `None` at the end of the list.
    next: Option<u64>,
    examined: u64,
    clock: &'q Clock,
    until: Instant,
    long_pages: &'q Arc<Limit>,
    /// The permit of a page that goes on past [`MOST_EXAMINED`].
    long_page: Option<Permit>,
    steps: ReadSteps,
}

impl DocsPage<'_> {
    /// The JSON of a record; `None` if the record is not listed.
    async fn examine(&mut self, stored: &StoredRecord) -> Option<String> {
        let record = &stored.record;
        let is_listed =
            record.table == *self.query.table.name() && self.query.filter.accepts(record);
        let json = is_listed
            .then(|| json_of_record(stored, &self.query.shown, Some(self.query.table)).to_string());
        self.examined += 1;
        self.steps.examined(json.as_ref().map_or(0, String::len)).await;
        json
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

    fn is_late(&self) -> bool {
        self.clock.now() >= self.until
    }

    /// Whether the page has cost as much as a page may.
    fn is_used_up(&mut self) -> bool {
        if self.examined < MOST_EXAMINED || self.is_late() {
            return self.is_late();
        }
        if self.count == 0 && self.long_page.is_none() {
            self.long_page = self.long_pages.try_take(None, 1).ok();
        }
        self.count > 0 || self.long_page.is_none()
    }

    /// The most ids of the next block that is read downwards. A page that goes on past
    /// [`MOST_EXAMINED`] has no documents, so only the storage limits its blocks.
    fn most_ids(&self) -> u64 {
        match MOST_EXAMINED.saturating_sub(self.examined) {
            0 => u64::MAX,
            left => left,
        }
    }

    /// Counts a block, if it had no records. `before` is the number of records before the block.
    async fn count_block(&mut self, before: u64) {
        if self.examined == before {
            self.examined += 1;
            self.steps.examined(0).await;
        }
    }

    /// Reads blocks that are whole storage partitions.
    async fn read_upwards<S: Stream<Item = eventlog::Result<StoredRecord>> + Unpin>(
        &mut self,
        last: u64,
        read: impl Fn(RecordBlock) -> S,
    ) -> eventlog::Result<()> {
        let mut first = FIRST_CRECORD_ID.max(self.query.after.unwrap_or(0).saturating_add(1));
        loop {
            let block = RecordBlock::beginning_with(RecordId(first));
            let (mut records, before) = (read(block), self.examined);
            while let Some(stored) = records.try_next().await? {
                let json = self.examine(&stored).await;
                json.iter().for_each(|json| self.add(json));
                if self.is_full() || self.is_used_up() {
                    self.next = Some(stored.record.id.0);
                    return Ok(());
                }
            }
            let is_empty = self.examined == before;
            self.count_block(before).await;
            let end = block.last().0;
            // A command that is applied meanwhile may have written records after the last one.
            let Some(behind) = end.checked_add(1).filter(|_| !is_empty || end < last) else {
                return Ok(());
            };
            if self.is_used_up() {
                self.next = Some(end);
                return Ok(());
            }
            first = behind;
        }
    }

    /// Reads blocks of ids, from the last one on. The storage reads each block upwards.
    async fn read_downwards<S: Stream<Item = eventlog::Result<StoredRecord>> + Unpin>(
        &mut self,
        last: u64,
        read: impl Fn(RecordBlock) -> S,
    ) -> eventlog::Result<()> {
        let mut behind = last.saturating_add(1).min(self.query.after.unwrap_or(u64::MAX));
        let mut ids = FIRST_BLOCK.min(self.query.limit) as u64;
        let mut is_first = true;
        while behind > FIRST_CRECORD_ID {
            let block = RecordBlock::ending_with(
                RecordId(behind - 1),
                ids.min(behind - FIRST_CRECORD_ID).min(self.most_ids()),
            );
            let before = self.examined;
            let Some(docs) = self.last_docs_of(read(block), is_first).await? else {
                self.next = Some(behind);
                return Ok(());
            };
            for (id, json) in docs.iter().rev() {
                self.add(json);
                if self.is_full() {
                    self.next = Some(*id);
                    return Ok(());
                }
            }
            behind = block.first().0;
            self.count_block(before).await;
            if self.is_used_up() && behind > FIRST_CRECORD_ID {
                self.next = Some(behind);
                return Ok(());
            }
            (ids, is_first) = (ids.saturating_mul(2), false);
        }
        Ok(())
    }

    /// The last documents of a block: as many as the page has room for, or a few more. So a page
    /// takes as little memory as one that is read upwards.
    ///
    /// `None` if the time is over before the end of the block, which is then of no use. The first
    /// block is read in any case, so that the list goes on.
    async fn last_docs_of<S: Stream<Item = eventlog::Result<StoredRecord>> + Unpin>(
        &mut self,
        mut records: S,
        is_first: bool,
    ) -> eventlog::Result<Option<VecDeque<(u64, String)>>> {
        let (mut docs, mut bytes) = (VecDeque::<(u64, String)>::new(), 0);
        while let Some(stored) = records.try_next().await? {
            let json = self.examine(&stored).await;
            if !is_first && self.is_late() {
                return Ok(None);
            }
            let Some(json) = json else { continue };
            bytes += json.len();
            docs.push_back((stored.record.id.0, json));
            // The documents after the first one fill the page without it.
            while let Some((_, first)) = docs.front()
                && (docs.len() > self.query.limit - self.count
                    || self.docs.len() + bytes - first.len() >= PAGE_BYTES)
            {
                bytes -= first.len();
                docs.pop_front();
            }
        }
        Ok(Some(docs))
    }

    fn into_json(self) -> Vec<u8> {
        let mut json = br#"{"docs":["#.to_vec();
        json.extend_from_slice(&self.docs);
        json.extend_from_slice(format!(r#"],"next":{}}}"#, json!(self.next)).as_bytes());
        json
    }
}

#[cfg(test)]
mod tests;
