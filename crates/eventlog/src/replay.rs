//! The replay of a log: at the beginning of a leadership, and after a write that failed.

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use istorage::Consistency;

use crate::{
    AppRow, DamagedRow, Entry, Epoch, Error, Log, Offset, PreparedEvent, Result, TrustLevel,
    apply::{first_unsettled_error, remaining_write},
    conflict,
    layout::NEIGHBOURS_PER_PARTITION,
    log::Tail,
    plan::{RowKind, RowWrite},
    reader::LogRow,
};

/// The limits of the events that are applied together: their number and their bytes.
const BATCH_EVENTS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

impl Log {
    /// Returns the entries of the log from an offset on, to its end. An entry is returned when it
    /// is applied: all rows that follow from it are stored.
    ///
    /// The log ends at the first offset without an event. This end is certain: a late write of an
    /// earlier leader is refused, or the next write at that offset finds it. At the end
    /// [`Log::tail`] is known. If there are events behind a missing event, the replay fails with
    /// [`DamagedRow::Missing`].
    pub fn replay(&self, from: Offset) -> BoxStream<'_, Result<Entry>> {
        let replay = Replay {
            log: self,
            rows: None,
            tail: Tail { next: from, ..Tail::NONE },
            is_known: false,
            failed: None,
            is_over: false,
        };
        let batches = stream::try_unfold(replay, |mut replay| async move {
            let batch = replay.batch().await?;
            Ok::<_, Error>(batch.map(|batch| (stream::iter(batch).map(Ok), replay)))
        });
        batches.try_flatten().boxed()
    }
}

/// The progress of a replay.
struct Replay<'l> {
    log: &'l Log,
    rows: Option<BoxStream<'static, Result<LogRow>>>,
    /// The tail of the events that were read.
    tail: Tail,
    /// Whether the event in front of the first one was read.
    is_known: bool,
    /// An error of reading. It is returned after the events that were read before it are applied.
    failed: Option<Error>,
    is_over: bool,
}

impl Replay<'_> {
    /// Returns the next events, applied; `None` at the end.
    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        if !self.is_known {
            self.read_before().await?;
            self.is_known = true;
        }
        let mut batch: Vec<(Entry, Bytes)> = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_EVENTS
            && bytes < BATCH_BYTES
            && self.failed.is_none()
            && !self.is_over
        {
            match self.next().await {
                Ok(Some((entry, row))) => {
                    bytes += row.len();
                    batch.push((entry, row));
                }
                Ok(None) => self.is_over = true,
                Err(error) => self.failed = Some(error),
            }
        }
        if batch.is_empty() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.log.set_tail(self.tail);
            self.log.note_replayed();
            return Ok(None);
        }
        let group: Vec<PreparedEvent> =
            batch.iter().map(|(entry, row)| PreparedEvent::again(entry, row.clone())).collect();
        self.log.apply_again(&group).await?;
        Ok(Some(batch.into_iter().map(|(entry, _)| entry).collect()))
    }

    /// Reads the event in front of the first one. The epochs and times of later events may not be
    /// lower than those of this event. If this event is missing, data is lost.
    ///
    /// Invariant: this leader never writes behind an event of a later epoch. A simpler version reads
    /// only from the stored offset on. Leader A stalls before it reads the
    /// log; leader B writes events and stores the offset behind them; A goes on from that offset
    /// and finds no event. So A would write behind events of a later epoch, and no later leader
    /// could read the log.
    async fn read_before(&mut self) -> Result<()> {
        let mut offset = self.tail.next;
        while offset > Offset::FIRST {
            offset = Offset(offset.0 - 1);
            let row = AppRow::Plog(self.log.partition, offset);
            let there = self.log.get(row).await?.ok_or(DamagedRow::Missing(row))?;
            let before = self.log.reader.entry(row, &there)?;
            let epoch = before.place().epoch;
            if epoch > self.log.fence.epoch() {
                return Err(self.log.note_later_leader(epoch));
            }
            self.tail.epoch = self.tail.epoch.max(epoch);
            // A marker has no time. The event in front of it has a time.
            if let Entry::Event(event) = before {
                self.tail.time = event.time;
                break;
            }
        }
        Ok(())
    }

    /// Returns the next entry of the log.
    ///
    /// Invariant: `None` means that the log ends in front of this offset, and
    /// [`DamagedRow::Missing`] means that an event is behind a gap. A simpler version trusts the
    /// rows that were read together. The read passes the empty offset 5; a late write of an earlier
    /// leader puts the events 5 and 6 into the log; the read returns event 6. So the version would
    /// report that event 5 is missing, although the log is whole.
    async fn next(&mut self) -> Result<Option<(Entry, Bytes)>> {
        let next = self.tail.next;
        let row = AppRow::Plog(self.log.partition, next);
        let bytes = match self.read_on(next).await? {
            Some((offset, bytes)) if offset == next => bytes,
            // The event may have landed after its neighbours were read, or while the events behind
            // it were read. So its row is read again before it counts as missing.
            _ => match self.log.get(row).await? {
                Some(bytes) => self.found_late(bytes),
                None => match self.log.event_beyond(next, self.tail.epoch).await? {
                    None => return Ok(None),
                    Some(_) => match self.log.get(row).await? {
                        Some(bytes) => self.found_late(bytes),
                        None => return Err(DamagedRow::Missing(row).into()),
                    },
                },
            },
        };
        let entry = self.log.reader.entry(row, &bytes)?;
        let epoch = entry.place().epoch;
        if epoch > self.log.fence.epoch() {
            return Err(self.log.note_later_leader(epoch));
        }
        if epoch < self.tail.epoch {
            if self.log.settings.level == TrustLevel::Two {
                // A leader that had lost its leadership left this event behind. The next write at
                // this offset replaces it.
                return match self.log.event_beyond(next, self.tail.epoch).await? {
                    None => Ok(None),
                    Some(_) => Err(DamagedRow::Missing(row).into()),
                };
            }
            return Err(self.epoch_fell(row, epoch));
        }
        let time = match &entry {
            Entry::Event(event) => event.time.max(self.tail.time),
            Entry::Marker(_) => self.tail.time,
        };
        self.tail = Tail { next: next.next(), epoch, time };
        Ok(Some((entry, bytes)))
    }

    /// Takes an event that was missing when its neighbours were read. The neighbours behind it are
    /// read again.
    fn found_late(&mut self, bytes: Bytes) -> Bytes {
        self.rows = None;
        bytes
    }

    fn epoch_fell(&self, row: AppRow, epoch: Epoch) -> Error {
        DamagedRow::EpochFell { row, epoch: epoch.0, before: self.tail.epoch.0 }.into()
    }

    async fn read_on(&mut self, from: Offset) -> Result<Option<LogRow>> {
        let log = self.log;
        let rows = self.rows.get_or_insert_with(|| log.log_rows(from));
        rows.try_next().await
    }
}

impl Log {
    /// Returns the consistency of reads. Rows that are written conditionally are read linearizably,
    /// so that no event that was answered is missed.
    fn consistency(&self) -> Consistency {
        match self.settings.level {
            TrustLevel::Zero | TrustLevel::One => Consistency::Linearizable,
            TrustLevel::Two => Consistency::Plain,
        }
    }

    pub(crate) async fn get(&self, row: AppRow) -> Result<Option<Bytes>> {
        let deadline = self.reader.deadline();
        Ok(self.reader.storage().get(&row.key(), self.consistency(), deadline).await?)
    }

    /// Returns an event behind the end of the log, in this storage partition or in the next one. At
    /// level 2, events of an earlier epoch do not count: a leader that had lost its leadership left
    /// them behind.
    async fn event_beyond(&self, end: Offset, epoch: Epoch) -> Result<Option<Offset>> {
        let next_partition =
            Offset((end.0 / NEIGHBOURS_PER_PARTITION + 1) * NEIGHBOURS_PER_PARTITION);
        for from in [end.next(), next_partition] {
            let mut rows = self.log_rows(from);
            while let Some((offset, bytes)) = rows.try_next().await? {
                let row = AppRow::Plog(self.partition, offset);
                if self.settings.level != TrustLevel::Two
                    || self.reader.entry(row, &bytes)?.place().epoch >= epoch
                {
                    return Ok(Some(offset));
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn log_rows(&self, from: Offset) -> BoxStream<'static, Result<LogRow>> {
        let partition = self.partition;
        self.reader.log_rows(
            move |offset| AppRow::Plog(partition, offset),
            from,
            self.consistency(),
        )
    }

    /// Applies events that are in the log. Some of their rows may already be written.
    ///
    /// If a row conflicts with a write, all other rows are applied before the violation is returned.
    /// An earlier attempt at one of these rows may have had no answer, and is settled only when it is
    /// sent again.
    async fn apply_again(&self, group: &[PreparedEvent]) -> Result<()> {
        // An ordered row is not read first, because the row of the later event stays. But a marker
        // must not replace an event that is whole.
        let depends = |write: &RowWrite| write.is_conditional() || write.kind == RowKind::Marker;
        let (looked_at, mut rest): (Vec<_>, Vec<_>) =
            self.plan_rows(group)?.rest.into_iter().partition(depends);
        let keys: Vec<_> = looked_at.iter().map(|write| write.key.clone()).collect();
        let mut failed = Vec::new();
        if !keys.is_empty() {
            // These reads may be outdated. The conditions of the writes detect that.
            let there = self.reader.storage().get_batch(&keys, self.reader.deadline()).await?;
            for (write, there) in looked_at.into_iter().zip(there) {
                let left = match self.replace_across_marker(write, there.as_ref()).await {
                    Ok(write) => remaining_write(write, there.as_ref()),
                    Err(error) => Err(error),
                };
                match left {
                    Ok(left) => rest.extend(left),
                    Err(error) => failed.push(Err(error)),
                }
            }
        }
        failed.push(self.apply(rest).await);
        first_unsettled_error(failed)
    }

    /// Lets an event replace an older version of a record, if the event between the two versions is
    /// marked.
    ///
    /// A marked event is not applied, so the record may be older than the version that the next
    /// event replaces. The next event can replace the older version, because an event contains the
    /// whole of each record that it writes.
    async fn replace_across_marker(
        &self,
        mut write: RowWrite,
        there: Option<&Bytes>,
    ) -> Result<RowWrite> {
        let Some((older, replaced)) =
            there.and_then(|there| conflict::skipped_versions(&write, there))
        else {
            return Ok(write);
        };
        let row = AppRow::Plog(self.partition, replaced.plog);
        let entry = self.get(row).await?.map(|bytes| self.reader.entry(row, &bytes)).transpose()?;
        if let (Some(Entry::Marker(_)), RowKind::Record { replaces, .. }) = (entry, &mut write.kind)
        {
            *replaces = Some(older);
        }
        Ok(write)
    }
}
