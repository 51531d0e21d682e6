//! From the log to everything that follows from it: at the beginning of a lead, and after a write that failed.

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use istorage::Consistency;

use crate::{
    Broken, Entry, Epoch, Error, Log, Offset, Prepared, Result, Row, TrustLevel,
    apply::{first_open, unless_done},
    judge,
    layout::NEIGHBOURS_PER_PARTITION,
    log::Tail,
    plan::{RowWrite, What},
    reader::Logged,
};

/// How many events are applied together, and of how many bytes.
const EVENTS: usize = 256;
const BYTES: usize = 1 << 20;

impl Log {
    /// The log from an event on, to its end. An event comes when it is applied: when all that it says is stored.
    ///
    /// The end is where the first event is missing. It is certain: what an earlier leader may still write is refused, or is found by who writes
    /// there. Then [`Log::tail`] is known. Events behind one that is missing are [`Broken::Missing`].
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

/// How far a replay has come.
struct Replay<'l> {
    log: &'l Log,
    rows: Option<BoxStream<'static, Result<Logged>>>,
    /// Of what has been read.
    tail: Tail,
    /// The event before has been read.
    is_known: bool,
    /// It is told when what was read before it is applied.
    failed: Option<Error>,
    is_over: bool,
}

impl Replay<'_> {
    /// The next events, applied; `None` at the end.
    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        if !self.is_known {
            self.read_before().await?;
            self.is_known = true;
        }
        let mut batch: Vec<(Entry, Bytes)> = Vec::new();
        let mut bytes = 0;
        while batch.len() < EVENTS && bytes < BYTES && self.failed.is_none() && !self.is_over {
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
            self.log.settle();
            return Ok(None);
        }
        let group: Vec<Prepared> =
            batch.iter().map(|(entry, row)| Prepared::again(entry, row.clone())).collect();
        self.log.apply_again(&group).await?;
        Ok(Some(batch.into_iter().map(|(entry, _)| entry).collect()))
    }

    /// Its epoch and its time bind those behind it. Without it something is lost.
    async fn read_before(&mut self) -> Result<()> {
        let mut offset = self.tail.next;
        while offset > Offset::FIRST {
            offset = Offset(offset.0 - 1);
            let row = Row::Plog(self.log.partition, offset);
            let there = self.log.get(row).await?.ok_or(Broken::Missing(row))?;
            let before = self.log.reader.entry(row, &there)?;
            let epoch = before.place().epoch;
            if epoch > self.log.lead.epoch() {
                return Err(self.log.overthrown(epoch));
            }
            self.tail.epoch = self.tail.epoch.max(epoch);
            // One that cannot be read any more has no time: the one in front of it has.
            if let Entry::Event(event) = before {
                self.tail.time = event.time;
                break;
            }
        }
        Ok(())
    }

    /// The next event of the log.
    async fn next(&mut self) -> Result<Option<(Entry, Bytes)>> {
        let next = self.tail.next;
        let row = Row::Plog(self.log.partition, next);
        let bytes = match self.read_on(next).await? {
            Some((offset, bytes)) if offset == next => bytes,
            // It may have come while the others were read, or while those behind it were.
            _ => match self.log.get(row).await? {
                Some(bytes) => self.found_late(bytes),
                None => match self.log.beyond(next, self.tail.epoch).await? {
                    None => return Ok(None),
                    Some(_) => match self.log.get(row).await? {
                        Some(bytes) => self.found_late(bytes),
                        None => return Err(Broken::Missing(row).into()),
                    },
                },
            },
        };
        let entry = self.log.reader.entry(row, &bytes)?;
        let epoch = entry.place().epoch;
        if epoch > self.log.lead.epoch() {
            return Err(self.log.overthrown(epoch));
        }
        if epoch < self.tail.epoch {
            if self.log.settings.level == TrustLevel::Two {
                // Left behind by a leader that had lost the lead; whoever writes here replaces it.
                return match self.log.beyond(next, self.tail.epoch).await? {
                    None => Ok(None),
                    Some(_) => Err(Broken::Missing(row).into()),
                };
            }
            return Err(self.fell(row, epoch));
        }
        let time = match &entry {
            Entry::Event(event) => event.time.max(self.tail.time),
            Entry::Corrupted(_) => self.tail.time,
        };
        self.tail = Tail { next: next.next(), epoch, time };
        Ok(Some((entry, bytes)))
    }

    /// An event that was not there when the others were read, which are read again behind it.
    fn found_late(&mut self, bytes: Bytes) -> Bytes {
        self.rows = None;
        bytes
    }

    fn fell(&self, row: Row, epoch: Epoch) -> Error {
        Broken::EpochFell { row, epoch: epoch.0, before: self.tail.epoch.0 }.into()
    }

    async fn read_on(&mut self, from: Offset) -> Result<Option<Logged>> {
        let log = self.log;
        let rows = self.rows.get_or_insert_with(|| log.logged(from));
        rows.try_next().await
    }
}

impl Log {
    /// Rows that are written conditionally are read so that none that was answered is missed.
    fn consistency(&self) -> Consistency {
        match self.settings.level {
            TrustLevel::Zero | TrustLevel::One => Consistency::Linearizable,
            TrustLevel::Two => Consistency::Plain,
        }
    }

    pub(crate) async fn get(&self, row: Row) -> Result<Option<Bytes>> {
        let deadline = self.reader.deadline();
        Ok(self.reader.storage().get(&row.key(), self.consistency(), deadline).await?)
    }

    /// An event behind the end of the log, in this partition of the storage or in the next. At level 2 those do not count that a leader wrote who had
    /// lost the lead.
    async fn beyond(&self, end: Offset, epoch: Epoch) -> Result<Option<Offset>> {
        let next_partition =
            Offset((end.0 / NEIGHBOURS_PER_PARTITION + 1) * NEIGHBOURS_PER_PARTITION);
        for from in [end.next(), next_partition] {
            let mut rows = self.logged(from);
            while let Some((offset, bytes)) = rows.try_next().await? {
                let row = Row::Plog(self.partition, offset);
                if self.settings.level != TrustLevel::Two
                    || self.reader.entry(row, &bytes)?.place().epoch >= epoch
                {
                    return Ok(Some(offset));
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn logged(&self, from: Offset) -> BoxStream<'static, Result<Logged>> {
        let partition = self.partition;
        self.reader.logged(move |offset| Row::Plog(partition, offset), from, self.consistency())
    }

    /// Applies events that are in the log, whatever of them is applied already. A row that stands in
    /// the way is told when all other rows are applied: an earlier attempt at one of those may have
    /// had no answer, and is settled only when it is sent again.
    async fn apply_again(&self, group: &[Prepared]) -> Result<()> {
        // An ordered row needs no look: the later event's stays. But a marker must not hide an event that is whole.
        let depends = |write: &RowWrite| write.is_conditional() || write.what == What::Marker;
        let (looked_at, mut rest): (Vec<_>, Vec<_>) =
            self.rows(group)?.rest.into_iter().partition(depends);
        let keys: Vec<_> = looked_at.iter().map(|write| write.key.clone()).collect();
        let mut failed = Vec::new();
        if !keys.is_empty() {
            // What is read here may be old: the conditions notice.
            let there = self.reader.storage().get_batch(&keys, self.reader.deadline()).await?;
            for (write, there) in looked_at.into_iter().zip(there) {
                let left = match self.over_marked(write, there.as_ref()).await {
                    Ok(write) => unless_done(write, there.as_ref()),
                    Err(error) => Err(error),
                };
                match left {
                    Ok(left) => rest.extend(left),
                    Err(error) => failed.push(Err(error)),
                }
            }
        }
        failed.push(self.apply(rest).await);
        first_open(failed)
    }

    /// A marked event is not applied, so a record may be older than the version that the next event replaces. If the event of that version is
    /// marked, the next event replaces the older one: an event has all of each record that it writes.
    async fn over_marked(&self, mut write: RowWrite, there: Option<&Bytes>) -> Result<RowWrite> {
        let Some((older, replaced)) = there.and_then(|there| judge::behind(&write, there)) else {
            return Ok(write);
        };
        let row = Row::Plog(self.partition, replaced.plog);
        let entry = self.get(row).await?.map(|bytes| self.reader.entry(row, &bytes)).transpose()?;
        if let (Some(Entry::Corrupted(_)), What::Record { replaces, .. }) = (entry, &mut write.what)
        {
            *replaces = Some(older);
        }
        Ok(write)
    }
}
