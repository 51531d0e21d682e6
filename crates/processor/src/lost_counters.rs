//! The search for counter records that the storage has lost.
//!
//! A workspace has no counter record before the first number of a series. But a storage may also
//! lose the record: a bit of its key flips on the disk. If the record were made again, the series
//! would give its numbers a second time. So the last events of the workspace are searched for one
//! that wrote the record.

use std::{num::NonZeroUsize, sync::Mutex};

use base::locks::lock;
use eventlog::{
    AppRow, DamagedRow, Entry, Offset, Reader, RecordId, Result, WsId, istorage::Consistency,
};
use futures::TryStreamExt;
use lru::LruCache;

use crate::remembered;

/// The events that are searched: the last 1,000, and no more when they have 16 MiB. The other
/// commands of the partition wait for the search. If a series is added to an application, a search
/// without the limit could take longer than its command may, in a workspace with a long log.
const EVENTS: u64 = 1_000;
const BYTES: usize = 16 << 20;

/// The last events are read first, this many at a time.
const PIECE: u64 = 16;

/// The number of counter records that are remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("10,000 is not zero");

/// The absent counter records that a partition has searched for.
#[derive(Debug)]
pub(crate) struct LostCounters(Mutex<LruCache<(WsId, RecordId), Searched>>);

/// The result of a search.
#[derive(Clone, Copy, Debug)]
struct Searched {
    /// The events before this one were searched.
    until: Offset,
    /// The last event that wrote the record.
    writer: Option<Offset>,
}

impl Default for LostCounters {
    fn default() -> LostCounters {
        LostCounters(Mutex::new(remembered::at_most(REMEMBERED)))
    }
}

impl LostCounters {
    /// The last event that wrote a counter record, if the record is lost. The log of the workspace
    /// has all events before `until`.
    ///
    /// Each event is searched once: commands that draw and are then refused could make the
    /// partition read the same events again and again. A loss that was found stays found, even when
    /// its event is no longer among the last ones.
    pub(crate) async fn last_writer(
        &self,
        reader: &Reader,
        ws: WsId,
        id: RecordId,
        until: Offset,
    ) -> Result<Option<Offset>> {
        let before = lock(&self.0).get(&(ws, id)).copied();
        let before = before.unwrap_or(Searched { until: Offset::FIRST, writer: None });
        let writer = match before.writer {
            Some(writer) => Some(writer),
            None => search(reader, ws, id, before.until, until).await?,
        };
        lock(&self.0).put((ws, id), Searched { until, writer });
        Ok(writer)
    }
}

/// Searches the last of the events from `from` to `until`.
async fn search(
    reader: &Reader,
    ws: WsId,
    id: RecordId,
    from: Offset,
    until: Offset,
) -> Result<Option<Offset>> {
    let from = Offset(until.0.saturating_sub(EVENTS)).max(from);
    let (mut end, mut bytes) = (until, 0);
    while end > from && bytes < BYTES {
        let begin = Offset(end.0.saturating_sub(PIECE)).max(from);
        let place = move |offset| AppRow::Wlog(ws, offset);
        let mut rows = reader.log_rows(place, begin, Consistency::Plain);
        let (mut next, mut writer) = (begin, None);
        while next < end {
            let row = match rows.try_next().await? {
                Some((offset, row)) if offset == next => row,
                // An event that is absent may be the one that wrote the record.
                _ => return Err(DamagedRow::Missing(place(next)).into()),
            };
            bytes += row.len();
            if let Entry::Event(event) = place(next).entry(&row, reader.partitions())?
                && event.changes.iter().any(|change| change.record.id == id)
            {
                writer = Some(next);
            }
            next = next.next();
        }
        if writer.is_some() {
            return Ok(writer);
        }
        end = begin;
    }
    Ok(None)
}
