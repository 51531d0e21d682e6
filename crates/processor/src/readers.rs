//! What readers of a partition are told, and the damaged rows that they meet.

use std::{ops::RangeInclusive, sync::Arc};

use eventlog::{Entry, Error, Offset, RecordId, Result, Row, StoredRecord, WsId};
use futures::{Stream, StreamExt, TryFutureExt, TryStreamExt, stream::BoxStream};
use isequencer::{SeqId, standard};
use tracing::warn;

use crate::{Busy, Commands, in_full};

impl Commands {
    /// The log of a workspace from an event on, to the last event that is applied. `stored` reads the
    /// last stored number of the log's offsets. If an event up to the last offset is missing or
    /// damaged, the stream ends with an error, and [`Commands::damaged`] tells the row.
    ///
    /// # Errors
    /// Why the log of the partition was not read yet.
    pub fn wlog(
        &self,
        ws: WsId,
        from: Offset,
        stored: impl Future<Output = Result<Option<u64>>> + Send + 'static,
    ) -> std::result::Result<BoxStream<'static, Result<Entry>>, Busy> {
        // First the end, then the last offset: events that are applied between the two are not told.
        let end = self.applied()?;
        let (commands, log) = (self.clone(), Arc::clone(&self.log));
        let entries = async move {
            let known = commands.last_number(ws, standard::WLOG_OFFSET, stored).await?.map(Offset);
            let mut next = from;
            let entries = log.reader().wlog(ws, from, known).inspect(move |read| {
                let row = Row::Wlog(ws, next);
                commands.met(row..=row, read);
                next = next.next();
            });
            // At level 2 a former leader may have left an event behind the last offset. Such an event
            // is in the log of the workspace, and not in the log of the partition. At the other levels,
            // and up to the last offset, no event needs that look.
            let is_told = move |entry: &Entry| {
                let (place, log) = (entry.place(), Arc::clone(&log));
                let is_known = known.is_some_and(|known| place.wlog <= known);
                async move { Ok(place.plog < end && (is_known || log.has(place).await?)) }
            };
            Ok(entries.try_take_while(is_told))
        };
        Ok(entries.try_flatten_stream().boxed())
    }

    /// The records of a workspace, as [`Reader::records`](eventlog::Reader::records) reads them.
    /// [`Commands::damaged`] tells the rows that are damaged.
    pub fn records(
        &self,
        ws: WsId,
        from: RecordId,
        last: RecordId,
    ) -> impl Stream<Item = Result<StoredRecord>> + Send + Unpin + use<> {
        let (commands, mut next) = (self.clone(), from);
        self.log.reader().records(ws, from, last).inspect(move |read| {
            // An error that names no row is of a row behind the last one that was read.
            let id = read.as_ref().map_or(next, |stored| stored.record.id);
            commands.met(Row::Record(ws, next)..=Row::Record(ws, id), read);
            next = RecordId(id.0.saturating_add(1));
        })
    }

    /// A record. [`Commands::damaged`] tells a row that is damaged.
    ///
    /// # Errors
    /// As [`Reader::record`](eventlog::Reader::record).
    pub async fn record(&self, ws: WsId, id: RecordId) -> Result<Option<StoredRecord>> {
        let read = self.log.reader().record(ws, id).await;
        let row = Row::Record(ws, id);
        self.met(row..=row, &read);
        read
    }

    /// The last number of a sequence of a workspace that an applied event has. `stored` reads the
    /// last stored one. While a group with trouble is recovered, the numbers of its events may be
    /// missing.
    ///
    /// # Errors
    /// Those of `stored`.
    pub async fn last_number(
        &self,
        ws: WsId,
        seq: SeqId,
        stored: impl Future<Output = Result<Option<u64>>>,
    ) -> Result<Option<u64>> {
        // A number that waits no more is stored, so the storage is asked last.
        let waiting = self.numbers.unflushed_number(isequencer::WsId(ws.0), seq);
        Ok(stored.await?.max(waiting))
    }

    /// Notes how a reader fared with rows. Damage is logged once.
    fn met<T>(&self, rows: RangeInclusive<Row>, read: &Result<T>) {
        match read {
            Ok(_) => self.shared.damage.passed(rows),
            Err(error) if error.is_lasting() => {
                let row = match error {
                    Error::Broken(broken) => broken.row(),
                    _ => *rows.start(),
                };
                let what = in_full(error);
                if self.shared.damage.met(row, &what) {
                    warn!(partition = self.log.partition(), what, "damaged row");
                }
            }
            Err(_) => {}
        }
    }

    /// Damaged rows that readers met, each until a reader gets past that row: the first ones in the order of
    /// their names, and how many there are.
    pub fn damaged(&self) -> (Vec<String>, usize) {
        self.shared.damage.told()
    }
}
