//! The calls of a leader to the storage: under the fence, and made again if they fail.
//!
//! Many rows are read and written in parts that a slow storage can do within one call.
//!
//! Invariant: if the storage can read and write each row within one call, a replay goes on. A
//! simpler version reads or writes all rows of a batch by one call. A batch has the rows of 256
//! events, and the storage needs longer for them than a call may take. So each replay makes the
//! same call, and fails.
//!
//! | call | is made again until | the error, after an attempt that failed |
//! |---|---|---|
//! | reads in parts | all is read, the time is over, or the leadership is lost | the last one |
//! | `put_in_parts` | all is answered, the time is over, or the leadership is lost | the last one; if that one lasts, the one before it |
//! | `put_in_log` | it is answered or refused for good, or the leadership is lost | `Unknown` |
//! | `write_settled` | the answer is definite, the time is over, or the leadership is lost | `Unknown`, if an attempt got no answer |
//! | `write_conditional`, in the module `apply` | all is written or judged, the time is over, or the leadership is lost | the last one; if that one lasts or a row is foreign, the last one without an answer |

use std::{sync::Mutex, time::Duration};

use base::locks::lock;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::stream::BoxStream;
use istorage::{
    AppStorageExt, Consistency, ErrorKind, FoundRow, Key, Outcome, RowsAtOnce, SharedStorage,
};

use crate::{
    AppRow, DamagedRow, Entry, Error, LogFence, LogSettings, Offset, Reader, Result,
    plan::RowWrite,
    reader::LogRow,
    settings::{MAX_PAUSE, MIN_PAUSE},
};

/// The number of rows of one call, for each kind of call. The number for small rows would be too
/// high for large ones, such as those of the log. A log keeps the numbers after a replay that
/// failed, so the next replay begins with them.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) log_puts: RowsAtOnce,
    pub(crate) puts: RowsAtOnce,
    rows: RowsAtOnce,
    values: RowsAtOnce,
    /// When a part was last done.
    done_at: Mutex<Option<Instant>>,
}

/// The calls of a leader to the storage, for the log of a partition.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) reader: Reader,
    pub(crate) clock: Clock,
    pub(crate) fence: LogFence,
    pub(crate) partition: u16,
    pub(crate) settings: LogSettings,
    pub(crate) parts: Parts,
    /// The last error of the write under way, while a part of the write is sent again.
    pub(crate) last_error: Mutex<Option<String>>,
}

impl Calls {
    pub(crate) fn storage(&self) -> &SharedStorage {
        self.reader.storage()
    }

    /// Returns whether checked rows are put and read back: the storage cannot write all rows of a
    /// group atomically.
    pub(crate) fn reads_back(&self) -> bool {
        self.storage().capabilities().atomic.is_none()
    }

    pub(crate) fn set_last_error(&self, error: Option<String>) {
        *lock(&self.last_error) = error;
    }

    /// Reads a row.
    ///
    /// Invariant: a leader reads its log linearizably at every level. A simpler version reads
    /// plainly at level 2, where a leader puts its later events. Leader A stands still before it
    /// puts event 7; leader B inserts its own event 7 as its first one; servers accept the insert,
    /// and B dies before the insert is committed; the put of A lands; leader C reads and applies
    /// the event of A; C inserts event 8, which commits the insert of B. So the log has the event
    /// of B, and C has applied another one.
    pub(crate) async fn get(&self, row: AppRow) -> Result<Option<Bytes>> {
        let deadline = self.reader.deadline();
        Ok(self.storage().get_linearizable(&row.key(), deadline).await?)
    }

    /// Returns the entry at an offset of the log, where the log must have one.
    pub(crate) async fn entry_at(&self, offset: Offset) -> Result<Entry> {
        let row = AppRow::Plog(self.partition, offset);
        let there = self.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        self.reader.entry(row, &there)
    }

    pub(crate) fn log_rows(&self, from: Offset) -> BoxStream<'static, Result<LogRow>> {
        let partition = self.partition;
        self.reader.log_rows(
            move |offset| AppRow::Plog(partition, offset),
            from,
            Consistency::Linearizable,
        )
    }

    /// Reads rows, in their order. Fails as [`Calls::put_in_parts`] does.
    pub(crate) async fn read_rows(
        &self,
        keys: &[Key],
        until: Instant,
    ) -> Result<Vec<Option<FoundRow>>> {
        let read = |part, deadline| self.storage().get_batch(part, deadline);
        self.read_in_parts(keys, &self.parts.rows, until, read).await
    }

    /// Reads the values of rows, in their order. Fails as [`Calls::put_in_parts`] does.
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
                    if !self.may_try_again(&mut pause, until, &error).await {
                        return Err(error.into());
                    }
                    was_retried = true;
                }
            }
            if let Some(lost) = self.fence.lost().filter(|_| found.len() < keys.len()) {
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
    /// Fails when `until` has passed and no part of any call of this log was done within the last
    /// `apply_for` of the settings.
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
        let (mut left, mut pause) = (writes, MIN_PAUSE);
        // Also after `Unavailable`: any part of an ordered batch may still be written.
        // `write_conditional` keeps only `OutcomeUnknown`: a conditional write that is
        // `Unavailable` is not done.
        let mut failed: Option<istorage::Error> = None;
        while !left.is_empty() {
            self.fence.wait_to_send().await?;
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
                    if !self.may_try_again(&mut pause, until, &error).await {
                        let error = Error::from(error);
                        return Err(match failed {
                            Some(unanswered) if error.is_lasting() => unanswered.into(),
                            _ => error,
                        });
                    }
                    failed = Some(error);
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
        *lock(&self.parts.done_at) = Some(now);
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

    /// Writes the ordered rows of a log by one call, and sends them again until they are answered.
    /// Sending a row again is harmless: both writes have the same order and the same bytes.
    ///
    /// Invariant: after a failed attempt, the error is [`Error::Unknown`]. A simpler version
    /// returns the last error. The first attempt gets no answer; the lease expires; the version
    /// returns [`Error::LeadershipLost`], and the command is answered as not done; the first
    /// attempt lands, and the next leader applies its event.
    pub(crate) async fn put_in_log(&self, writes: &[RowWrite]) -> Result<()> {
        let mut pause = MIN_PAUSE;
        let mut failed = None;
        loop {
            if let Err(lost) = self.fence.wait_to_send().await {
                return Err(failed.map_or(lost.into(), Error::Unknown));
            }
            let puts = writes.iter().map(RowWrite::ordered).collect();
            match self.storage().put_ordered(puts, self.reader.deadline()).await {
                Ok(()) => {
                    if failed.is_some() {
                        self.set_last_error(None);
                    }
                    return Ok(());
                }
                Err(error) => {
                    if !self.may_try_again(&mut pause, Instant::FAR_FUTURE, &error).await {
                        return Err(match failed {
                            Some(_) => Error::Unknown(error),
                            None => error.into(),
                        });
                    }
                    failed = Some(error);
                }
            }
        }
    }

    /// Sends a conditional write until there is a definite answer or the leadership is lost.
    /// `unknown` is the error of an earlier attempt without an answer. The result has the error of
    /// the last such attempt. The module `istorage::settle` settles only `write_if`, and only until
    /// a time that is fixed beforehand. A log also settles atomic writes. Without `until`, it goes
    /// on for as long as its lease is renewed. After `until`, a write without an answer is
    /// [`Error::Unknown`].
    ///
    /// Invariant: after an attempt without an answer, no error claims that nothing was written. A
    /// simpler version returns the error of the second attempt. Leader A's first attempt gets no
    /// answer; the second attempt fails because the server is out of reach; A answers that the
    /// command was not done; the first attempt lands; leader B replays its event. So the command
    /// was done.
    pub(crate) async fn write_settled<W>(
        &self,
        until: Option<Instant>,
        mut unknown: Option<istorage::Error>,
        send: impl Fn() -> W,
    ) -> Result<(Outcome, Option<istorage::Error>)>
    where
        W: Future<Output = istorage::Result<Outcome>>,
    {
        let mut pause = MIN_PAUSE;
        loop {
            if let Err(lost) = self.fence.wait_to_send().await {
                return Err(unknown.map_or(lost.into(), Error::Unknown));
            }
            match send().await {
                Ok(outcome) => {
                    if unknown.is_some() {
                        self.set_last_error(None);
                    }
                    return Ok((outcome, unknown));
                }
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                    self.set_last_error(Some(error.to_string()));
                    unknown = Some(error);
                }
                Err(error) if unknown.is_none() => return Err(error.into()),
                // This answer says nothing about the earlier attempts.
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    self.set_last_error(Some(error.to_string()));
                }
                Err(error) => return Err(Error::Unknown(error)),
            }
            let is_late = until.is_some_and(|until| self.clock.now() + pause >= until);
            if let Some(error) = unknown.take_if(|_| is_late) {
                return Err(Error::Unknown(error));
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Waits before a call that failed is made again. Returns `false` at once if another attempt is
    /// useless or comes too late: when `until` has passed and the last part was done longer than
    /// `apply_for` ago.
    pub(crate) async fn may_try_again(
        &self,
        pause: &mut Duration,
        until: Instant,
        error: &istorage::Error,
    ) -> bool {
        let done_at = *lock(&self.parts.done_at);
        let until = done_at.map_or(until, |at| until.max(at + self.settings.apply_for));
        let is_retryable =
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown);
        if !is_retryable || self.clock.now() + *pause >= until {
            return false;
        }
        self.set_last_error(Some(error.to_string()));
        self.clock.sleep(*pause).await;
        *pause = (*pause * 2).min(MAX_PAUSE);
        true
    }
}
