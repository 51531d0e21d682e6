//! Copies of a log: the rows of a log that was read elsewhere.
//!
//! A copy is written into a keyspace that nobody else uses. [`LogWriter::replay`] writes the other
//! rows later, as after a crash right after the last event.

use bytes::Bytes;

use crate::{
    AppRow, Entry, LogWriter, Offset, PreparedEvent, Result, StoredRecord,
    apply::{ORDERED_CHUNK_ROWS, run_all},
    plan::{RowWrite, in_chunks},
    prepared::RecordWrite,
};

/// The number of calls that write entries at the same time. The entries of a copy are written in
/// any order, because nobody reads the log before all of them are there.
const CHUNKS_AT_ONCE: usize = 8;

/// Writes the rows of a log that was read in another keyspace.
#[derive(Clone, Copy, Debug)]
pub struct LogCopier<'l> {
    log: &'l LogWriter,
}

impl<'l> LogCopier<'l> {
    /// Makes the copier into a log. This neither reads nor writes.
    pub fn new(log: &'l LogWriter) -> LogCopier<'l> {
        LogCopier { log }
    }

    /// Writes entries into the log of the partition, as they were stored in another keyspace. No
    /// other row is written.
    ///
    /// # Errors
    /// Fails with the errors of a [write](LogWriter::write). Then any of the entries may be
    /// written, even later.
    pub async fn write_copies(&self, entries: &[(Entry, Bytes)]) -> Result<()> {
        let copy = |(entry, bytes): &(Entry, Bytes)| PreparedEvent::again(entry, bytes.clone());
        let group: Vec<PreparedEvent> = entries.iter().map(copy).collect();
        let writes = self.log.plan_writes(&group)?.plog;
        let (conditional, ordered): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(RowWrite::is_conditional);
        let chunks = in_chunks(conditional, &self.log.calls.storage().capabilities());
        let write = async |chunk| match self.log.write_plog(chunk).await {
            (_, Some(error)) => Err(error),
            (_, None) => Ok(()),
        };
        run_all(chunks.into_iter().map(write), CHUNKS_AT_ONCE).await?;
        let chunks = ordered.chunks(ORDERED_CHUNK_ROWS);
        run_all(chunks.map(|chunk| self.log.calls.put_in_log(chunk)), CHUNKS_AT_ONCE).await
    }

    /// Writes the copy of a marked event in the log of its workspace. The copy is whole, and the
    /// marker in the log of the partition does not replace it.
    ///
    /// # Errors
    /// Fails with the errors of a [write](LogWriter::write).
    pub async fn write_copy_of_marked(&self, entry: &Entry, bytes: Bytes) -> Result<()> {
        let copy = PreparedEvent { records: Vec::new(), ..PreparedEvent::again(entry, bytes) };
        let writes = self.log.plan_writes(&[PreparedEvent { answer: None, ..copy }])?;
        self.log.applier.apply(writes.rest, writes.changes).await
    }

    /// Writes a record that no event has any more, because its event is marked.
    ///
    /// The record is written as an update, so no earlier event that is replayed later replaces it.
    ///
    /// # Errors
    /// Fails with the errors of a [write](LogWriter::write).
    pub async fn write_record_of_marked(&self, record: &StoredRecord, bytes: Bytes) -> Result<()> {
        let StoredRecord { ws, version, record } = record;
        let write =
            RecordWrite { id: record.id, replaces: Some(*version), before: None, after: bytes };
        let copy = PreparedEvent {
            in_ws: Some((*ws, Offset::FIRST)),
            in_log: true,
            records: vec![write],
            ..PreparedEvent::bare(version.epoch, version.plog, Bytes::new())
        };
        let mut rows = self.log.plan_writes(&[copy])?.rest;
        rows.retain(|write| matches!(write.row, AppRow::Record(..)));
        self.log.applier.apply(rows, Vec::new()).await
    }
}

/// Returns the size of the largest row of an entry: the entry itself, a record, or the answer.
pub fn largest_row_of(entry: &Entry, bytes: &Bytes) -> usize {
    PreparedEvent::again(entry, bytes.clone()).largest_row()
}
