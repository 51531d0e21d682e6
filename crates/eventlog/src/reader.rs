//! A reader of an application's logs and records. It needs no leadership.

mod records;

use std::{num::NonZeroU16, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{
    StreamExt, TryStreamExt,
    future::ready,
    stream::{self, BoxStream},
};
use istorage::{Consistency, FoundRow, Key, Range, RowStream, SharedStorage};

pub use self::records::RecordBlock;
use crate::{
    AppRow, DamagedRow, Entry, Error, Offset, RecordId, Result, StoredRecord, Version, WsId,
    layout::NEIGHBOURS,
};

/// A row of a log as it is stored.
pub(crate) type LogRow = (Offset, Bytes);

/// Reads the logs and records of an application. A reader needs no leadership.
#[derive(Clone, Debug)]
pub struct Reader {
    storage: SharedStorage,
    clock: Clock,
    timeout: Duration,
    partitions: NonZeroU16,
}

impl Reader {
    /// Makes a reader. `timeout` is the limit of each call to the storage, and of each page of a
    /// log. `partitions` is the number of partitions of the application.
    pub fn new(
        storage: SharedStorage,
        clock: Clock,
        timeout: Duration,
        partitions: NonZeroU16,
    ) -> Reader {
        Reader { storage, clock, timeout, partitions }
    }

    /// Returns the partition of a workspace.
    pub fn partition_of(&self, ws: WsId) -> u16 {
        ws.partition(self.partitions)
    }

    /// Returns the number of partitions of the application.
    pub fn partitions(&self) -> NonZeroU16 {
        self.partitions
    }

    /// Reads the entry in a row of a log.
    pub(crate) fn entry(&self, row: AppRow, bytes: &[u8]) -> Result<Entry> {
        Ok(row.entry(bytes, self.partitions)?)
    }

    /// Returns the keyspace of the application.
    pub fn storage(&self) -> &SharedStorage {
        &self.storage
    }

    /// Returns the limit of each call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the deadline of a call that begins now.
    pub fn deadline(&self) -> Instant {
        self.clock.now() + self.timeout
    }

    /// Returns the entries of the log of a partition from an offset on, up to the first offset
    /// without an event.
    ///
    /// The log is known to have all events up to `known`. If one of these is missing, the stream
    /// ends with [`DamagedRow::Missing`]. The stream is lazy, and reads logs of any length in
    /// bounded memory.
    pub fn plog(
        &self,
        partition: u16,
        from: Offset,
        known: Option<Offset>,
    ) -> BoxStream<'static, Result<Entry>> {
        self.log(move |offset| AppRow::Plog(partition, offset), from, known)
    }

    /// Returns the entries of the log of a workspace, as [`Reader::plog`] does.
    pub fn wlog(
        &self,
        ws: WsId,
        from: Offset,
        known: Option<Offset>,
    ) -> BoxStream<'static, Result<Entry>> {
        self.log(move |offset| AppRow::Wlog(ws, offset), from, known)
    }

    fn log(
        &self,
        row: impl Fn(Offset) -> AppRow + Copy + Send + Sync + 'static,
        from: Offset,
        known: Option<Offset>,
    ) -> BoxStream<'static, Result<Entry>> {
        let rows = self.log_rows(row, from, Consistency::Plain);
        let partitions = self.partitions;
        let dense = stream::try_unfold((rows, from), move |(mut rows, next)| async move {
            match rows.try_next().await? {
                Some((offset, bytes)) if offset == next => {
                    let entry = row(offset).entry(&bytes, partitions)?;
                    Ok(Some((entry, (rows, next.next()))))
                }
                _ if known.is_some_and(|last| next <= last) => {
                    Err(DamagedRow::Missing(row(next)).into())
                }
                // Events after a gap prove nothing, because the events of a group are written at
                // the same time.
                _ => Ok(None),
            }
        });
        dense.boxed()
    }

    /// Returns the stored rows of a log from an offset on, up to the first storage partition that
    /// lacks its last row. There may be gaps between the rows. `row` names the row at an offset.
    pub fn log_rows(
        &self,
        row: impl Fn(Offset) -> AppRow + Send + Sync + 'static,
        from: Offset,
        consistency: Consistency,
    ) -> BoxStream<'static, Result<(Offset, Bytes)>> {
        struct LogCursor {
            storage: SharedStorage,
            rows: Option<RowStream>,
            next: Offset,
        }
        let cursor =
            LogCursor { storage: SharedStorage::clone(&self.storage), rows: None, next: from };
        let timeout = self.timeout;
        let read = move |mut cursor: LogCursor| {
            let place = row(cursor.next);
            let key = place.key();
            async move {
                let first = cursor.next.0 - cursor.next.0 % NEIGHBOURS;
                let rows = cursor.rows.get_or_insert_with(|| {
                    let range = Range::from(key.ccols);
                    cursor.storage.read(key.pkey, range, consistency, timeout)
                });
                let Some(read) = rows.try_next().await? else { return Ok(None) };
                let offset = Offset(first + neighbour_position(place, &read.ccols)?);
                cursor.next = offset.next();
                if cursor.next.0.is_multiple_of(NEIGHBOURS) {
                    cursor.rows = None;
                }
                Ok(Some(((offset, read.value), cursor)))
            }
        };
        stream::try_unfold(cursor, read).boxed()
    }

    /// Returns the records of a workspace from an id on, in the order of ids. After `last`, the
    /// stream ends at the first storage partition without records. The stream is lazy, and reads
    /// any number of records in bounded memory. It ends after a damaged record.
    pub fn records(
        &self,
        ws: WsId,
        from: RecordId,
        last: RecordId,
    ) -> BoxStream<'static, Result<StoredRecord>> {
        let rows = self.record_rows(ws, from, last);
        let record = move |row: Result<(RecordId, Bytes)>| {
            row.and_then(|(id, bytes)| Ok(AppRow::Record(ws, id).record(&bytes)?))
        };
        let until_error = |has_failed: &mut bool, record: Result<StoredRecord>| {
            let record = (!*has_failed).then_some(record);
            *has_failed = record.as_ref().is_none_or(Result::is_err);
            ready(record)
        };
        rows.map(record).scan(false, until_error).boxed()
    }

    /// Returns the stored rows of records of a workspace, as [`Reader::records`] does.
    pub fn record_rows(
        &self,
        ws: WsId,
        from: RecordId,
        last: RecordId,
    ) -> BoxStream<'static, Result<(RecordId, Bytes)>> {
        struct RecordCursor {
            storage: SharedStorage,
            rows: Option<RowStream>,
            next: RecordId,
            is_empty: bool,
        }
        let storage = SharedStorage::clone(&self.storage);
        let cursor = RecordCursor { storage, rows: None, next: from, is_empty: true };
        let timeout = self.timeout;
        let read = move |mut cursor: RecordCursor| async move {
            loop {
                let key = AppRow::Record(ws, cursor.next).key();
                let first = cursor.next.0 - cursor.next.0 % NEIGHBOURS;
                let rows = cursor.rows.get_or_insert_with(|| {
                    let range = Range::from(key.ccols);
                    cursor.storage.read(key.pkey, range, Consistency::Plain, timeout)
                });
                if let Some(row) = rows.try_next().await? {
                    let id = RecordId(
                        first + neighbour_position(AppRow::Record(ws, cursor.next), &row.ccols)?,
                    );
                    cursor.is_empty = false;
                    return Ok(Some(((id, row.value), cursor)));
                }
                // There may be no storage partition after the largest ids.
                let Some(next) = first.checked_add(NEIGHBOURS) else {
                    return Ok(None);
                };
                if cursor.is_empty && next > last.0 {
                    return Ok(None);
                }
                cursor =
                    RecordCursor { rows: None, next: RecordId(next), is_empty: true, ..cursor };
            }
        };
        stream::try_unfold(cursor, read).boxed()
    }

    /// Returns a record.
    ///
    /// # Errors
    /// Fails with the errors of the storage, [`DamagedRow::Unreadable`] and
    /// [`DamagedRow::Misplaced`].
    pub async fn record(&self, ws: WsId, id: RecordId) -> Result<Option<StoredRecord>> {
        let row = AppRow::Record(ws, id);
        Ok(self.row(row).await?.map(|bytes| row.record(&bytes)).transpose()?)
    }

    /// Returns whether a record is still older than a version that the storage has acknowledged. A
    /// record that cannot be read counts as older.
    ///
    /// Invariant: after `false` the storage keeps this version or a later one. A simpler version
    /// reads linearizably, and such a read repairs nothing but what consensus has left open. One
    /// server of three still has version 2; the read asks this server and finds version 2; the
    /// partition goes on, and the server is lost. So version 2 is lost although the storage
    /// acknowledged it, and an operator heard that all is well.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn is_outdated(&self, row: AppRow, acknowledged: Version) -> Result<bool> {
        let found = self.row(row).await?.map(|bytes| row.record(&bytes)).transpose();
        Ok(!matches!(found, Ok(Some(stored)) if stored.version >= acknowledged))
    }

    /// Returns the bytes of a row. [`AppRow::record`] and [`AppRow::answer`] read these bytes.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn row(&self, row: AppRow) -> Result<Option<Bytes>> {
        Ok(self.storage.get(&row.key(), Consistency::Plain, self.deadline()).await?)
    }

    /// Returns whether the bytes of a row can be read, and belong to the row. A missing event is
    /// damage; any other missing row is normal.
    pub fn is_whole(&self, row: AppRow, bytes: Option<&Bytes>) -> bool {
        let Some(bytes) = bytes else { return !matches!(row, AppRow::Plog(..) | AppRow::Wlog(..)) };
        match row {
            AppRow::Plog(..) | AppRow::Wlog(..) => self.entry(row, bytes).is_ok(),
            AppRow::Record(..) => row.record(bytes).is_ok(),
            AppRow::Answer(..) => row.answer(bytes).is_ok(),
        }
    }

    /// Returns a row, and whether it hides ordered writes. A command that updates a record reads
    /// the record in this way.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn found_row(&self, row: AppRow) -> Result<Option<FoundRow>> {
        Ok(self.found_rows(&[row]).await?.pop().flatten())
    }

    /// Returns several rows as [`Reader::found_row`] does, in their order, by one call.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn found_rows(&self, rows: &[AppRow]) -> Result<Vec<Option<FoundRow>>> {
        let keys: Vec<Key> = rows.iter().map(AppRow::key).collect();
        Ok(self.storage.get_batch(&keys, self.deadline()).await?)
    }

    /// Returns the bytes of several rows, in their order, by one call.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn rows(&self, rows: &[AppRow]) -> Result<Vec<Option<Bytes>>> {
        let found = self.found_rows(rows).await?;
        Ok(found.into_iter().map(|row| row.map(|row| row.value)).collect())
    }
}

/// Returns the position of a row in its storage partition. `neighbour` is a row of the same storage
/// partition.
fn neighbour_position(neighbour: AppRow, ccols: &[u8]) -> Result<u64> {
    let within = ccols.try_into().map(u16::from_be_bytes).map(u64::from).ok();
    within.filter(|within| *within < NEIGHBOURS).ok_or_else(|| {
        let what = format!(
            "a row beside {neighbour} has the clustering columns {ccols:02x?}: it was not written by this program; remove the row"
        );
        Error::Storage(istorage::Error::corrupt(what))
    })
}
