//! Reads and writes of many rows, in parts that a slow storage can do within one call.
//!
//! Invariant: if the storage can read and write each row within one call, a replay goes on. A
//! simpler version reads or writes all rows of a batch by one call. A batch has the rows of 256
//! events, and the storage needs longer for them than a call may take. So each replay makes the
//! same call, and fails.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use istorage::{FoundRow, Key, RowsAtOnce};

use crate::{Log, Result, log::MIN_PAUSE, plan::RowWrite};

/// The number of rows of one call, for each kind of call. The number for small rows would be too
/// high for large ones, such as those of the log. A log keeps the numbers after a replay that
/// failed, so the next replay begins with them.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) log_puts: RowsAtOnce,
    pub(crate) puts: RowsAtOnce,
    rows: RowsAtOnce,
    values: RowsAtOnce,
    /// The time at which a part was last done.
    done_at: Mutex<Option<Instant>>,
}

impl Parts {
    pub(crate) fn done_at(&self) -> Option<Instant> {
        *self.done_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_done_at(&self, now: Instant) {
        *self.done_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

impl Log {
    /// Reads rows, in their order. Fails as [`Log::put_in_parts`] does.
    pub(crate) async fn read_rows(
        &self,
        keys: &[Key],
        until: Instant,
    ) -> Result<Vec<Option<FoundRow>>> {
        let read = |part, deadline| self.storage().get_batch(part, deadline);
        self.read_in_parts(keys, &self.parts.rows, until, read).await
    }

    /// Reads the values of rows, in their order. Fails as [`Log::put_in_parts`] does.
    pub(crate) async fn read_values(
        &self,
        keys: &[Key],
        until: Instant,
    ) -> Result<Vec<Option<Bytes>>> {
        let read = |part, deadline| self.storage().get_values(part, deadline);
        self.read_in_parts(keys, &self.parts.values, until, read).await
    }

    async fn read_in_parts<'k, T, R>(
        &self,
        keys: &'k [Key],
        at_once: &RowsAtOnce,
        until: Instant,
        read: impl Fn(&'k [Key], Instant) -> R,
    ) -> Result<Vec<T>>
    where
        R: Future<Output = istorage::Result<Vec<T>>>,
    {
        let mut found = Vec::with_capacity(keys.len());
        let (mut pause, mut was_retried) = (MIN_PAUSE, false);
        while found.len() < keys.len() {
            let part = at_once.first(&keys[found.len()..]);
            let start = self.clock.now();
            match read(part, start + self.reader.timeout()).await {
                Ok(rows) => {
                    self.note_part(at_once, part.len(), start);
                    found.extend(rows);
                    pause = MIN_PAUSE;
                }
                Err(error) => {
                    pause = self.note_failed_part(at_once, part, start, pause);
                    drop(self.wait_to_retry(&mut pause, until, error).await?);
                    was_retried = true;
                }
            }
            if let Some(lost) = self.lost().filter(|_| found.len() < keys.len()) {
                return Err(lost.into());
            }
        }
        if was_retried {
            self.set_last_error(None);
        }
        Ok(found)
    }

    /// Writes ordered rows that follow from events in the log, or that are in the log already.
    /// Sends each part again until it is answered. Sending a row again is harmless: both writes
    /// have the same order and the same bytes.
    ///
    /// Fails after `until`, if also no part of any call of this log was done for the time to apply
    /// events.
    ///
    /// Invariant: an attempt without an answer is not forgotten when a part of its rows is written.
    /// A simpler version forgets it. The first attempt gets no answer; half of the rows are
    /// written; the attempt at the other half is refused for good; the version reports a lasting
    /// error, and the log counts as settled. So the first attempt may land while the next leader
    /// leads.
    pub(crate) async fn put_in_parts(
        &self,
        writes: &[RowWrite],
        at_once: &RowsAtOnce,
        until: Instant,
    ) -> Result<()> {
        let (mut left, mut pause, mut failed) = (writes, MIN_PAUSE, None);
        while !left.is_empty() {
            self.wait_to_send().await?;
            let part = at_once.first(left);
            let puts = part.iter().map(RowWrite::ordered).collect();
            let start = self.clock.now();
            match self.storage().put_ordered(puts, start + self.reader.timeout()).await {
                Ok(()) => {
                    self.note_part(at_once, part.len(), start);
                    left = &left[part.len()..];
                    pause = MIN_PAUSE;
                }
                Err(error) => {
                    pause = self.note_failed_part(at_once, part, start, pause);
                    match self.wait_to_retry(&mut pause, until, error).await {
                        Ok(error) => failed = Some(error),
                        Err(error) if error.is_lasting() => {
                            return Err(failed.map_or(error, Into::into));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        if failed.is_some() {
            self.set_last_error(None);
        }
        Ok(())
    }

    fn note_part(&self, at_once: &RowsAtOnce, rows: usize, start: Instant) {
        let now = self.clock.now();
        at_once.note_done(rows, now - start, self.reader.timeout());
        self.parts.set_done_at(now);
    }

    /// Returns the pause before the next call: a call for fewer rows is made at once.
    fn note_failed_part<R>(
        &self,
        at_once: &RowsAtOnce,
        part: &[R],
        start: Instant,
        pause: Duration,
    ) -> Duration {
        at_once.note_failed(part.len(), self.clock.now() - start);
        match at_once.first(part).len() < part.len() {
            true => Duration::ZERO,
            false => pause.max(MIN_PAUSE),
        }
    }
}
