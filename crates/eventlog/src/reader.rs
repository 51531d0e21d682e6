//! Reading what an application has stored, for anybody.

use std::{num::NonZeroU16, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use istorage::{Consistency, Key, Range, RowStream, SharedStorage};

use crate::{
    Broken, Entry, Error, Offset, RecordId, Result, Row, StoredRecord, WsId,
    layout::NEIGHBOURS_PER_PARTITION,
};

/// A row of a log as it is stored.
pub(crate) type Logged = (Offset, Bytes);

/// Reads what an application has stored. It needs no lead.
#[derive(Clone, Debug)]
pub struct Reader {
    storage: SharedStorage,
    clock: Clock,
    timeout: Duration,
    partitions: NonZeroU16,
}

impl Reader {
    /// `timeout` is for each call to the storage, and for each page of a log. The application has so many
    /// `partitions`.
    pub fn new(
        storage: SharedStorage,
        clock: Clock,
        timeout: Duration,
        partitions: NonZeroU16,
    ) -> Reader {
        Reader { storage, clock, timeout, partitions }
    }

    /// The partition that a workspace is in.
    pub fn partition_of(&self, ws: WsId) -> u16 {
        ws.partition(self.partitions)
    }

    /// A row of a log, understood.
    pub(crate) fn entry(&self, row: Row, bytes: &[u8]) -> Result<Entry> {
        Ok(row.entry(bytes, self.partitions)?)
    }

    /// The keyspace of the application.
    pub fn storage(&self) -> &SharedStorage {
        &self.storage
    }

    /// Until when a call that begins now may take.
    pub fn deadline(&self) -> Instant {
        self.clock.now() + self.timeout
    }

    /// The log of a partition from an event on, to the first offset without an event. The log is known to have
    /// all events up to `known`: if one of them is not there, the stream ends with [`Broken::Missing`]. The
    /// stream is lazy, and reads any length in bounded memory.
    pub fn plog(
        &self,
        partition: u16,
        from: Offset,
        known: Option<Offset>,
    ) -> BoxStream<'static, Result<Entry>> {
        self.log(move |offset| Row::Plog(partition, offset), from, known)
    }

    /// The log of a workspace, in the same way.
    pub fn wlog(
        &self,
        ws: WsId,
        from: Offset,
        known: Option<Offset>,
    ) -> BoxStream<'static, Result<Entry>> {
        self.log(move |offset| Row::Wlog(ws, offset), from, known)
    }

    fn log(
        &self,
        row: impl Fn(Offset) -> Row + Copy + Send + Sync + 'static,
        from: Offset,
        known: Option<Offset>,
    ) -> BoxStream<'static, Result<Entry>> {
        let rows = self.logged(row, from, Consistency::Plain);
        let partitions = self.partitions;
        let dense = stream::try_unfold((rows, from), move |(mut rows, next)| async move {
            match rows.try_next().await? {
                Some((offset, bytes)) if offset == next => {
                    let entry = row(offset).entry(&bytes, partitions)?;
                    Ok(Some((entry, (rows, next.next()))))
                }
                _ if known.is_some_and(|last| next <= last) => {
                    Err(Broken::Missing(row(next)).into())
                }
                // Events behind the hole are no proof: the events of a group are written side by side.
                _ => Ok(None),
            }
        });
        dense.boxed()
    }

    /// What there is of a log from an offset on: up to the first partition of the storage that is not full to its end.
    pub(crate) fn logged(
        &self,
        row: impl Fn(Offset) -> Row + Send + Sync + 'static,
        from: Offset,
        consistency: Consistency,
    ) -> BoxStream<'static, Result<Logged>> {
        struct At {
            storage: SharedStorage,
            rows: Option<RowStream>,
            next: Offset,
        }
        let at = At { storage: SharedStorage::clone(&self.storage), rows: None, next: from };
        let timeout = self.timeout;
        let read = move |mut at: At| {
            let place = row(at.next);
            let key = place.key();
            async move {
                let first = at.next.0 - at.next.0 % NEIGHBOURS_PER_PARTITION;
                let rows = at.rows.get_or_insert_with(|| {
                    let range = Range::from(key.ccols);
                    at.storage.read(key.pkey, range, consistency, timeout)
                });
                let Some(read) = rows.try_next().await? else { return Ok(None) };
                let offset = Offset(first + within(place, &read.ccols)?);
                at.next = offset.next();
                if at.next.0.is_multiple_of(NEIGHBOURS_PER_PARTITION) {
                    at.rows = None;
                }
                Ok(Some(((offset, read.value), at)))
            }
        };
        stream::try_unfold(at, read).boxed()
    }

    /// The records of a workspace from an id on, in the order of ids: all up to `last`, and those behind it that follow without a large gap. It is lazy, and
    /// reads any number in bounded memory.
    pub fn records(
        &self,
        ws: WsId,
        from: RecordId,
        last: RecordId,
    ) -> BoxStream<'static, Result<StoredRecord>> {
        struct At {
            storage: SharedStorage,
            rows: Option<RowStream>,
            next: RecordId,
            is_empty: bool,
        }
        let storage = SharedStorage::clone(&self.storage);
        let at = At { storage, rows: None, next: from, is_empty: true };
        let timeout = self.timeout;
        let read = move |mut at: At| async move {
            loop {
                let key = Row::Record(ws, at.next).key();
                let first = at.next.0 - at.next.0 % NEIGHBOURS_PER_PARTITION;
                let rows = at.rows.get_or_insert_with(|| {
                    let range = Range::from(key.ccols);
                    at.storage.read(key.pkey, range, Consistency::Plain, timeout)
                });
                if let Some(row) = rows.try_next().await? {
                    let id = RecordId(first + within(Row::Record(ws, at.next), &row.ccols)?);
                    let stored = Row::Record(ws, id).record(&row.value)?;
                    at.is_empty = false;
                    return Ok(Some((stored, at)));
                }
                // There may be none behind the largest ids.
                let Some(next) = first.checked_add(NEIGHBOURS_PER_PARTITION) else {
                    return Ok(None);
                };
                if at.is_empty && next > last.0 {
                    return Ok(None);
                }
                at = At { rows: None, next: RecordId(next), is_empty: true, ..at };
            }
        };
        stream::try_unfold(at, read).boxed()
    }

    /// A record.
    ///
    /// # Errors
    /// Those of the storage, [`Broken::Unreadable`] and [`Broken::Misplaced`].
    pub async fn record(&self, ws: WsId, id: RecordId) -> Result<Option<StoredRecord>> {
        let row = Row::Record(ws, id);
        Ok(self.row(row).await?.map(|bytes| row.record(&bytes)).transpose()?)
    }

    /// The bytes of a row. [`Row::record`] and [`Row::answer`] understand them.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn row(&self, row: Row) -> Result<Option<Bytes>> {
        Ok(self.storage.get(&row.key(), Consistency::Plain, self.deadline()).await?)
    }

    /// The bytes of rows, in their order, by one call.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn rows(&self, rows: &[Row]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<Key> = rows.iter().map(Row::key).collect();
        Ok(self.storage.get_batch(&keys, self.deadline()).await?)
    }
}

/// Where a row is in the partition of the storage that `neighbour` is in, too.
fn within(neighbour: Row, ccols: &[u8]) -> Result<u64> {
    let within = ccols.try_into().map(u16::from_be_bytes).map(u64::from).ok();
    within.filter(|within| *within < NEIGHBOURS_PER_PARTITION).ok_or_else(|| {
        let what = format!(
            "beside {neighbour} there is a row with the clustering columns {ccols:02x?}: it is none of this program, remove it"
        );
        Error::Storage(istorage::Error::corrupt(what))
    })
}
