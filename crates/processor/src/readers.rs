//! Reads for clients of a partition, and the damaged rows that these reads meet.

use std::{ops::RangeInclusive, sync::Arc};

use base::with_causes;
use eventlog::{
    AppRow, Entry, Error, Offset, RecordBlock, RecordId, Result, StoredRecord, WsId,
    istorage::CorruptRow,
};
use futures::{Stream, StreamExt, TryFutureExt, TryStreamExt, stream::BoxStream};
use isequencer::{SeqId, standard};
use tracing::warn;

use crate::{Busy, Commands, LogName, LogWatch, outdated::OutdatedRecord};

impl Commands {
    /// Reads the WLog of a workspace from an event on, up to the last event that is applied.
    /// `stored` reads the stored last offset of the WLog. If an event up to the last offset is
    /// missing or damaged, the stream ends with an error, and [`Commands::damaged`] reports the
    /// row.
    ///
    /// # Errors
    /// The reason why the PLog was not read yet.
    pub fn wlog(
        &self,
        ws: WsId,
        from: Offset,
        stored: impl Future<Output = Result<Option<u64>>> + Send + 'static,
    ) -> std::result::Result<BoxStream<'static, Result<Entry>>, Busy> {
        // The end is read before the last offset. Events that are applied between the two reads are
        // not shown.
        let end = self.applied()?;
        let (commands, log) = (self.clone(), Arc::clone(&self.log));
        let entries = async move {
            let known = commands.last_number(ws, standard::WLOG_OFFSET, stored).await?.map(Offset);
            let mut next = from;
            let entries = log.reader().wlog(ws, from, known).inspect(move |read| {
                let row = AppRow::Wlog(ws, next);
                commands.note_read(row..=row, read);
                next = next.next();
            });
            // At trust level 2 a former leader may have left an event after the last offset. Such
            // an event is in the WLog and not in the PLog. At the other levels, and up to the last
            // offset, each event is in the PLog, and the check is not needed.
            let is_shown = move |entry: &Entry| {
                let (place, log) = (entry.place(), Arc::clone(&log));
                async move {
                    // Each entry of a WLog has a place in it.
                    let Some(place) = place.filter(|place| place.plog < end) else {
                        return Ok(false);
                    };
                    let is_known = known.is_some_and(|known| place.wlog <= known);
                    Ok(is_known || log.has_event(place).await?)
                }
            };
            Ok(entries.try_take_while(is_shown))
        };
        Ok(entries.try_flatten_stream().boxed())
    }

    /// The offset of the first event of a WLog that was not applied yet when this call began, or a
    /// later one if events were applied meanwhile. `stored` reads the stored last offset of the
    /// WLog.
    ///
    /// The last offset alone would be too high. The offsets of a group are known when its events
    /// are written, and those of a recovery when its events are read, before the events are
    /// applied. A reader that waited for the events after the last offset would miss these events.
    ///
    /// The last offset alone may also be too low, while the partition recovers from a failed group
    /// write. So the events after the last offset are read, too. Otherwise a reader would hear that
    /// the log ends before an event that a client knows.
    ///
    /// # Errors
    /// The reason why the PLog was not read yet, or the error of the storage.
    pub async fn wlog_end<F: Future<Output = Result<Option<u64>>> + Send + 'static>(
        &self,
        ws: WsId,
        stored: impl Fn() -> F,
    ) -> std::result::Result<Result<Offset>, Busy> {
        self.applied()?;
        let last = self.last_number(ws, standard::WLOG_OFFSET, stored()).await;
        let last = match last {
            Ok(last) => last.unwrap_or(0),
            Err(error) => return Ok(Err(error)),
        };
        let mut end = Offset(last.max(1));
        let mut is_behind_an_event = false;
        // The events that are not applied are those of one group, so there are few of them.
        loop {
            let mut entries = self.wlog(ws, end, stored())?;
            loop {
                match entries.try_next().await {
                    Ok(Some(_)) => {
                        end = end.next();
                        is_behind_an_event = true;
                    }
                    Ok(None) => break,
                    // A damaged event is there.
                    Err(error) if error.is_lasting() => return Ok(Ok(end.next())),
                    Err(error) => return Ok(Err(error)),
                }
            }
            if is_behind_an_event || end == Offset::FIRST {
                return Ok(Ok(end));
            }
            end = Offset(end.0 - 1);
        }
    }

    /// Reads the PLog from an entry on, up to the last entry that is applied: events, markers and
    /// fencing entries. If an event is missing or damaged, the stream ends with an error, and
    /// [`Commands::damaged`] reports the row.
    ///
    /// # Errors
    /// The reason why the PLog was not read yet.
    pub fn plog(
        &self,
        from: Offset,
    ) -> std::result::Result<BoxStream<'static, Result<Entry>>, Busy> {
        let end = self.applied()?;
        let (commands, partition) = (self.clone(), self.log.partition());
        let known = end.0.checked_sub(1).map(Offset);
        let mut next = from;
        let entries = self.log.reader().plog(partition, from, known).inspect(move |read| {
            let row = AppRow::Plog(partition, next);
            commands.note_read(row..=row, read);
            next = next.next();
        });
        let is_shown = move |entry: &Entry| std::future::ready(Ok(entry.plog() < end));
        Ok(entries.try_take_while(is_shown).boxed())
    }

    /// Watches a log of the partition.
    #[must_use]
    pub fn watch(&self, log: LogName) -> LogWatch {
        self.shared.watchers.watch(log)
    }

    /// Reads the records of a workspace, as [`Reader::records`](eventlog::Reader::records) does.
    /// [`Commands::damaged`] reports damaged rows.
    pub fn records(
        &self,
        ws: WsId,
        from: RecordId,
        last: RecordId,
    ) -> impl Stream<Item = Result<StoredRecord>> + Send + Unpin + use<> {
        self.checked(ws, from, self.log.reader().records(ws, from, last))
    }

    /// Reads the records in a block of ids, as [`Reader::block`](eventlog::Reader::block) does.
    /// [`Commands::damaged`] reports damaged rows.
    pub fn block(
        &self,
        ws: WsId,
        block: RecordBlock,
    ) -> impl Stream<Item = Result<StoredRecord>> + Send + Unpin + use<> {
        self.checked(ws, block.first(), self.log.reader().block(ws, block))
    }

    /// Notes the result of reading records from an id on. A record that is older than the last
    /// acknowledged version is read again by itself: see [`Commands::record`].
    fn checked(
        &self,
        ws: WsId,
        from: RecordId,
        records: BoxStream<'static, Result<StoredRecord>>,
    ) -> BoxStream<'static, Result<StoredRecord>> {
        let (commands, mut next) = (self.clone(), from);
        let checked = records.filter_map(move |read| {
            // An error that names no row comes from a row after the last one that was read.
            let id = read.as_ref().map_or(next, |stored| stored.record.id);
            let row = AppRow::Record(ws, id);
            let version = read.as_ref().ok().map(|stored| stored.version);
            let is_older = read.is_ok() && commands.log.acknowledged().check(row, version).is_err();
            if !is_older {
                commands.note_read(AppRow::Record(ws, next)..=row, &read);
            }
            next = RecordId(id.0.saturating_add(1));
            let again = is_older.then(|| commands.clone());
            async move {
                match again {
                    Some(commands) => commands.record(ws, id).await.transpose(),
                    None => Some(read),
                }
            }
        });
        checked.boxed()
    }

    /// Reads records by their ids, in the order of the ids, by one call. A record that does not
    /// exist is `None`. [`Commands::damaged`] reports damaged rows.
    ///
    /// # Errors
    /// Those of [`Reader::record`](eventlog::Reader::record).
    pub async fn records_by_ids(
        &self,
        ws: WsId,
        ids: &[RecordId],
    ) -> Result<Vec<Option<StoredRecord>>> {
        let acknowledged: Vec<_> = ids
            .iter()
            .map(|id| self.log.acknowledged().version_of(AppRow::Record(ws, *id)))
            .collect();
        let read = self.log.reader().records_by_ids(ws, ids).await;
        let checked = read.and_then(|found| {
            for ((id, acknowledged), found) in ids.iter().zip(acknowledged).zip(&found) {
                let version = found.as_ref().map(|stored| stored.version);
                AppRow::Record(ws, *id).check_version(acknowledged, version)?;
            }
            Ok(found)
        });
        match checked {
            Ok(found) => {
                for id in ids {
                    self.note_whole(AppRow::Record(ws, *id));
                }
                Ok(found)
            }
            // The error of a call may not name its row, so the records are read one by one.
            Err(error) if error.is_lasting() => {
                let mut found = Vec::with_capacity(ids.len());
                for id in ids {
                    found.push(self.record(ws, *id).await?);
                }
                Ok(found)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a record. [`Commands::damaged`] reports a damaged row.
    ///
    /// Invariant: the record is not older than the version that the storage had acknowledged when
    /// the read began. If it is, the storage has lost a write, and the partition stops. A simpler
    /// version compares with what is acknowledged when the read ends. A client begins to read, and
    /// the storage answers version 1; the leader puts version 2, reads it back and notes it as
    /// acknowledged; then the answer to the client arrives. Version 1 is a right answer, because
    /// the read began before; but the partition would stop.
    ///
    /// # Errors
    /// Those of [`Reader::record`](eventlog::Reader::record), and
    /// [`Outdated`](eventlog::DamagedRow::Outdated).
    pub async fn record(&self, ws: WsId, id: RecordId) -> Result<Option<StoredRecord>> {
        let row = AppRow::Record(ws, id);
        let acknowledged = self.log.acknowledged().version_of(row);
        let read = self.log.reader().record(ws, id).await.and_then(|found| {
            row.check_version(acknowledged, found.as_ref().map(|stored| stored.version))?;
            Ok(found)
        });
        self.note_read(row..=row, &read);
        read
    }

    /// The last number of a sequence of a workspace that an applied event contains. `stored` reads
    /// the last stored number. While the partition recovers from a failed group write, the numbers
    /// of the events of that group may be missing.
    ///
    /// # Errors
    /// Those of `stored`.
    pub async fn last_number(
        &self,
        ws: WsId,
        seq: SeqId,
        stored: impl Future<Output = Result<Option<u64>>>,
    ) -> Result<Option<u64>> {
        // The unflushed numbers are read before the storage, because a number that is no longer
        // unflushed is stored. In the other order a number could be missed.
        let waiting = self.numbers.unflushed_number(ws, seq);
        Ok(stored.await?.max(waiting))
    }

    /// Notes the result of reading rows. Each damage is logged once.
    fn note_read<T>(&self, rows: RangeInclusive<AppRow>, read: &Result<T>) {
        match read {
            Ok(_) => self.shared.damage.note_readable(rows),
            Err(error) if error.is_lasting() => {
                // The task of the partition looks at the record, and stops.
                if let Some(outdated) = OutdatedRecord::of(error) {
                    return self.shared.note_outdated(outdated, self.log.partition());
                }
                let row = match error {
                    Error::DamagedRow(broken) => broken.row(),
                    _ => *rows.start(),
                };
                let what = with_causes(error);
                if self.shared.damage.note_damage(row, &what) {
                    warn!(partition = self.log.partition(), error = what, "damaged row");
                }
            }
            Err(_) => {}
        }
    }

    /// The damaged rows that readers met: the first ones in the order of their names, and the
    /// number of all. A row stays here until a reader reads it without an error.
    pub fn damaged(&self) -> (Vec<String>, usize) {
        self.shared.damage.report()
    }

    /// The first damaged rows of the application that readers or commands met, and the first
    /// damaged rows of its numbers. Some may be whole again.
    pub fn damaged_rows(&self) -> (Vec<AppRow>, Vec<CorruptRow>) {
        self.shared.damage.known()
    }

    /// Forgets the damage of a row that is whole again.
    pub fn note_whole(&self, row: AppRow) {
        self.shared.damage.note_readable(row..=row);
    }

    /// Forgets the damage of a row of a number that has changed.
    pub fn note_changed(&self, row: &CorruptRow) {
        self.shared.damage.forget_number(row);
    }
}
