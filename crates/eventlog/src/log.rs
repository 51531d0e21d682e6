//! The log of a partition, for its leader, and the rows that follow from it.
//!
//! Invariant: an event in the log is not undone. All other rows follow from the events.

use std::{
    num::NonZeroU16,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, WallTime};
use istorage::{AppStorageExt, Conflict, ErrorKind, Outcome, SharedStorage};

use crate::{
    AppRow, Epoch, Error, EventPlace, Fence, LeadLost, Offset, PreparedEvent, Reader, Result,
    TrustLevel, Violation, WsId,
    conflict::{self, PlogOccupant},
    plan::{GroupRows, RowWrite, Rules, WriteMode, in_chunks},
};

pub(crate) const MIN_PAUSE: Duration = Duration::from_millis(5);
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The largest size of a marker without the bytes of its event: the place of the event, and up to a
/// hundred numbers.
const MAX_MARKER_OVERHEAD: usize = 2_048;

/// The settings of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// The number of partitions of the application. A workspace is in the partition of its number
    /// modulo this number.
    pub partitions: NonZeroU16,
    /// The way in which events and records are written.
    pub level: TrustLevel,
    /// The limit of each call to the storage. The lease reserves time for such a call.
    pub timeout: Duration,
    /// The time for tries to apply the events in the log. Afterwards the caller gets the error.
    pub apply_for: Duration,
    /// The time after an event for which its answer is kept. A command that is sent again in this
    /// time gets the first answer.
    pub answers_kept: Duration,
}

impl Default for LogSettings {
    /// Returns the default: one partition, level 0, 2 s for a call, 5 s to apply, 24 h for answers.
    fn default() -> LogSettings {
        LogSettings {
            partitions: NonZeroU16::MIN,
            level: TrustLevel::Zero,
            timeout: Duration::from_secs(2),
            apply_for: Duration::from_secs(5),
            answers_kept: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The outcome of writing a group of events.
#[derive(Debug)]
#[must_use]
pub struct WriteOutcome {
    /// The number of events in the log of the partition, counted from the first of the group.
    pub committed: usize,
    /// Whether the events in the log are applied.
    pub applied: Result<()>,
    /// The reason for which the other events are not in the log. After [`Error::Unknown`] they may
    /// be in the log.
    pub commit_error: Option<Error>,
    /// The time until the outcome of the log was known. Unless the storage writes everything in one
    /// call, the other rows were written after that.
    pub log_time: Duration,
}

/// The end of a log, and the values of the last event that bind later events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The offset of the next event.
    pub next: Offset,
    /// The epoch of the last event.
    pub epoch: Epoch,
    /// The time of the last event. No later event may have an earlier time.
    pub time: WallTime,
}

impl Tail {
    /// The tail of an empty log.
    pub(crate) const NONE: Tail =
        Tail { next: Offset::FIRST, epoch: Epoch(0), time: WallTime::from_nanos(0) };
}

/// The log of a partition, under one leadership.
#[derive(Debug)]
pub struct Log {
    pub(crate) reader: Reader,
    pub(crate) clock: Clock,
    pub(crate) fence: Arc<dyn Fence>,
    pub(crate) partition: u16,
    pub(crate) settings: LogSettings,
    tail: Mutex<Tail>,
    overthrown: OnceLock<LeadLost>,
    /// The last error of the write under way, while a part of the write is sent again.
    trouble: Mutex<Option<String>>,
    /// Whether a call that got no answer may still write rows of an event in the log.
    is_open: AtomicBool,
}

impl Log {
    /// Makes a log. This neither reads nor writes.
    pub fn new(
        storage: SharedStorage,
        clock: Clock,
        fence: Arc<dyn Fence>,
        partition: u16,
        settings: LogSettings,
    ) -> Log {
        let reader = Reader::new(storage, clock.clone(), settings.timeout, settings.partitions);
        let (tail, overthrown) = (Mutex::new(Tail::NONE), OnceLock::new());
        let (trouble, is_open) = (Mutex::default(), AtomicBool::new(false));
        Log { reader, clock, fence, partition, settings, tail, overthrown, trouble, is_open }
    }

    /// Returns the number of the partition.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// Returns the clock of the log.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the epoch of the leadership.
    pub fn epoch(&self) -> Epoch {
        self.fence.epoch()
    }

    /// Returns whether the success of a write may be reported.
    pub fn may_answer(&self) -> bool {
        self.overthrown.get().is_none() && self.fence.may_send(Duration::ZERO)
    }

    /// Returns a reader of the application's rows.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the largest size of an event or a record. The storage allows rows that are larger,
    /// so that a marker around an event fits, too.
    pub fn largest_row(&self) -> usize {
        self.storage().capabilities().row.value.saturating_sub(MAX_MARKER_OVERHEAD)
    }

    /// Returns the end of the log as of the last [replay](Log::replay). Before the first replay the
    /// end is not known.
    pub fn tail(&self) -> Tail {
        *self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_tail(&self, tail: Tail) {
        *self.tail.lock().unwrap_or_else(PoisonError::into_inner) = tail;
    }

    /// Returns the last error of the write under way, while a part of the write is sent again.
    /// Returns `None` when the storage has answered that part. If several parts are sent again, it
    /// stays `None` until the next error of another part.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Returns whether rows of events in the log may still be written: a call had no answer, and
    /// the log was not [replayed](Log::replay) to its end since.
    ///
    /// A later error, such as a conflicting row, does not settle the outcome of that call.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn note_applied(&self, applied: &Result<()>) {
        if applied.as_ref().is_err_and(|error| !error.is_lasting()) {
            self.is_open.store(true, Ordering::Release);
        }
    }

    /// Records that the log was replayed to its end.
    pub(crate) fn settle(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    pub(crate) fn storage(&self) -> &SharedStorage {
        self.reader.storage()
    }

    fn rules(&self) -> Rules {
        Rules {
            partition: self.partition,
            level: self.settings.level,
            answers: self.settings.answers_kept,
            now: self.clock.wall(),
        }
    }

    pub(crate) fn rows(&self, group: &[PreparedEvent]) -> Result<GroupRows> {
        if let Some(event) = group.iter().find(|event| !self.has_workspace(event.place.ws)) {
            let what =
                format!("workspace {} is not in partition {}", event.place.ws.0, self.partition);
            return Err(istorage::Error::invalid(what).into());
        }
        Ok(GroupRows::plan(group, self.rules())?)
    }

    /// Returns whether a workspace is in the partition of this log.
    pub fn has_workspace(&self, ws: WsId) -> bool {
        self.reader.partition_of(ws) == self.partition
    }

    /// Writes consecutive events at the end of the log, and the rows that follow from them.
    ///
    /// An event in the log is not undone any more. If an event could not be applied,
    /// [`Log::replay`] applies it.
    ///
    /// # Cancel safety
    /// None: after a dropped call it is not known which rows are written. Let the call end.
    pub async fn write(&self, group: &[PreparedEvent]) -> WriteOutcome {
        self.set_trouble(None);
        let start = self.clock.now();
        let outcome = |committed, applied, commit_error| {
            let log_time = self.clock.now() - start;
            WriteOutcome { committed, applied, commit_error, log_time }
        };
        let rows = match self.rows(group) {
            Ok(rows) => rows,
            Err(error) => return outcome(0, Ok(()), Some(error)),
        };
        let can = self.storage().capabilities();
        if can.atomic.is_some_and(|limits| rows.fits(limits)) {
            return match self.write_atomically(&rows).await {
                Ok(()) => outcome(group.len(), Ok(()), None),
                Err(error) => outcome(0, Ok(()), Some(error)),
            };
        }
        let (mut committed, mut commit_error) = (0, None);
        for chunk in in_chunks(rows.plog, &can) {
            match self.write_plog(&chunk).await {
                Ok(()) => committed += chunk.len(),
                Err(error) => {
                    commit_error = Some(error);
                    break;
                }
            }
        }
        let outcome = outcome(committed, Ok(()), commit_error);
        // The events in the log are applied, even if other events of the group are not in the log.
        let rest = if committed == group.len() {
            Ok(rows.rest)
        } else {
            self.rows(&group[..committed]).map(|rows| rows.rest)
        };
        let applied = match rest {
            Ok(rest) => self.apply(rest).await,
            Err(error) => Err(error),
        };
        WriteOutcome { applied, ..outcome }
    }

    /// Returns whether an event is in the log, for a caller that has found another row of the
    /// event. Where the log is written conditionally, such an event is in the log. At level 2
    /// another event may have replaced it.
    ///
    /// # Errors
    /// Fails with the errors of the storage. Also fails if the event cannot be read, because it is
    /// then not known whether the event is this one.
    pub async fn has_event(&self, place: EventPlace) -> Result<bool> {
        if self.settings.level != TrustLevel::Two {
            return Ok(true);
        }
        let row = AppRow::Plog(self.partition, place.plog);
        let Some(there) = self.get(row).await? else { return Ok(false) };
        Ok(self.reader.entry(row, &there)?.place() == place)
    }

    /// Returns whether a statement about the log stays true after this node has lost the
    /// leadership. At level 2 another leader may replace events of this one.
    pub fn is_final(&self) -> bool {
        self.settings.level != TrustLevel::Two
    }

    /// Waits until the fence permits a write that is given up after the
    /// [timeout](LogSettings::timeout) of a call. Every write under the leadership waits here first,
    /// also a write of another crate.
    ///
    /// # Errors
    /// Fails if no write may ever be sent again.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn wait_to_send(&self) -> std::result::Result<(), LeadLost> {
        while !self.may_send() {
            match self.lost() {
                Some(lost) => return Err(lost),
                // The lease is renewed soon, or the leadership ends.
                None => self.clock.sleep(MIN_PAUSE).await,
            }
        }
        Ok(())
    }

    fn may_send(&self) -> bool {
        self.overthrown.get().is_none() && self.fence.may_send(self.settings.timeout)
    }

    /// Returns the reason for which no write will ever be sent here again; `None` while a write may
    /// still be sent.
    pub fn lost(&self) -> Option<LeadLost> {
        self.overthrown.get().cloned().or_else(|| self.fence.lost())
    }

    /// Records that an event of a later leader was seen. This node does not lead, even if its lease
    /// says that it does.
    pub(crate) fn overthrown(&self, by: Epoch) -> Error {
        let lost = LeadLost(format!("the log has an event of the later epoch {}", by.0));
        self.overthrown.get_or_init(|| lost).clone().into()
    }

    /// Returns the error for a row that is in the place of an event.
    ///
    /// Invariant: after an attempt without an answer, only an event of another leader settles the
    /// outcome, because events are not removed. Interleaving: the first attempt gets no answer; the
    /// second attempt meets a foreign row; an operator removes that row; the first attempt lands.
    /// A simpler version reports a violation, and claims that nothing was written.
    fn plog_error(&self, write: &RowWrite, there: Option<&Bytes>, was_unknown: bool) -> Error {
        let is_ours = |ws| self.has_workspace(ws);
        match conflict::judge_plog_row(write, self.fence.epoch(), there, is_ours) {
            PlogOccupant::Foreign(violation) if was_unknown => {
                Error::Unknown(istorage::Error::outcome_unknown(violation.to_string()))
            }
            PlogOccupant::LaterLeader(epoch) => self.overthrown(epoch),
            PlogOccupant::EarlierLeader(offset) => Error::Overtaken(offset),
            PlogOccupant::Missing if was_unknown => Error::Unknown(unexplained()),
            PlogOccupant::Missing => unexplained().into(),
            PlogOccupant::Foreign(violation) => violation.into(),
        }
    }

    /// Sends a conditional write until there is a definite answer or the leadership is lost. The
    /// flag in the result tells whether an earlier attempt had no answer.
    ///
    /// Invariant: after an attempt without an answer, no error claims that nothing was written. A
    /// simpler version returns the error of the second attempt. The first attempt gets no answer;
    /// the second attempt fails because the server is out of reach; the first attempt lands. So the
    /// caller would take a written event for one that was not written.
    pub(crate) async fn write_settled<W>(&self, write: impl Fn() -> W) -> Result<(Outcome, bool)>
    where
        W: Future<Output = istorage::Result<Outcome>>,
    {
        let mut unknown = None;
        let mut pause = MIN_PAUSE;
        loop {
            if let Err(lost) = self.wait_to_send().await {
                return Err(unknown.map_or(lost.into(), Error::Unknown));
            }
            match write().await {
                Ok(outcome) => {
                    if unknown.is_some() {
                        self.set_trouble(None);
                    }
                    return Ok((outcome, unknown.is_some()));
                }
                Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                    self.set_trouble(Some(error.to_string()));
                    unknown = Some(error);
                }
                Err(error) if unknown.is_none() => return Err(error.into()),
                // This answer says nothing about the earlier attempts.
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    self.set_trouble(Some(error.to_string()));
                }
                Err(error) => return Err(Error::Unknown(error)),
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Writes all rows of a group in one atomic call.
    ///
    /// Invariant: `Ok` means that the events are in the log, and an error other than
    /// [`Error::Unknown`] means that they are not. A simpler version returns an error whenever the
    /// storage refuses the write. The first attempt gets no answer, but lands; the second attempt
    /// meets the rows of the first attempt and is refused. So the caller would take written events
    /// for events that were not written. The row of the log therefore decides: if it holds exactly
    /// the event of this group, the first attempt has landed.
    async fn write_atomically(&self, rows: &GroupRows) -> Result<()> {
        let write = || self.storage().write_atomic(rows.atomic_batch(), self.reader.deadline());
        let (outcome, was_unknown) = self.write_settled(write).await?;
        let Outcome::NotApplied(conflicts) = outcome else { return Ok(()) };
        let found: Vec<(&RowWrite, Option<&Bytes>)> = conflicts
            .iter()
            .filter_map(|Conflict { op, actual }| Some((rows.conditional(*op)?, actual.as_ref())))
            .collect();
        let is_of_plog = |(write, _): &&(&RowWrite, _)| matches!(write.row, AppRow::Plog(..));
        let mut in_plog = found.iter().find(is_of_plog).copied();
        // A storage may report only one failed condition. The row of the first event in the log
        // decides most, so it is read if no row of the log was reported.
        let read;
        if in_plog.is_none()
            && let Some(first) = rows.plog.first()
        {
            read = self.read_first_plog_row(first, was_unknown).await?;
            in_plog = read.as_ref().map(|there| (first, Some(there)));
        }
        match (in_plog, found.first()) {
            (Some((write, Some(there))), _) if *there == write.after => Ok(()),
            (Some((write, there)), _) => Err(self.plog_error(write, there, was_unknown)),
            // An operator may correct the conflicting row, and the unanswered attempt may land then.
            (None, _) if was_unknown => {
                let what = "an earlier attempt got no answer, and a row is not as expected";
                Err(Error::Unknown(istorage::Error::outcome_unknown(what)))
            }
            (None, Some((write, there))) => {
                let is_swap = matches!(write.mode, WriteMode::Conditional(Some(_)));
                let why =
                    if is_swap { "differs from the row that was read" } else { "already exists" };
                let is_record = there.is_some_and(|there| write.row.record(there).is_ok());
                let may_pass = is_swap && is_record;
                let (there, wanted) = (there.cloned(), write.after.clone());
                Err(Violation { row: write.row, there, wanted, why, may_pass }.into())
            }
            (None, None) => Err(unexplained().into()),
        }
    }

    /// Reads the row in the place of the first event of a group.
    async fn read_first_plog_row(
        &self,
        first: &RowWrite,
        was_unknown: bool,
    ) -> Result<Option<Bytes>> {
        let read = self.storage().get_linearizable(&first.key, self.reader.deadline()).await;
        read.map_err(|error| if was_unknown { Error::Unknown(error) } else { error.into() })
    }

    /// Writes rows of the log.
    ///
    /// Invariant: `Ok` means that the rows are in the log. A refused write also returns `Ok` if the
    /// row holds exactly the bytes of the write: the first attempt got no answer, but landed; the
    /// second attempt met the row of the first attempt. A simpler version returns an error, and the
    /// caller would take a written event for one that was not written.
    async fn write_plog(&self, chunk: &[RowWrite]) -> Result<()> {
        if !chunk[0].is_conditional() {
            return self.put_ordered(chunk, None).await;
        }
        let write = || {
            let ops = chunk.iter().map(RowWrite::conditional).collect();
            self.storage().write_if(chunk[0].key.pkey.clone(), ops, self.reader.deadline())
        };
        let (outcome, was_unknown) = self.write_settled(write).await?;
        let Outcome::NotApplied(conflicts) = outcome else { return Ok(()) };
        let found = conflicts
            .first()
            .and_then(|conflict| Some((chunk.get(conflict.op)?, conflict.actual.as_ref())));
        match found.unwrap_or((&chunk[0], None)) {
            // The rows of a chunk are written together or not at all, and no other node writes
            // these bytes.
            (write, Some(there)) if *there == write.after => Ok(()),
            (write, there) => Err(self.plog_error(write, there, was_unknown)),
        }
    }

    /// Returns whether the row of a violation still holds the conflicting bytes.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn is_unchanged(&self, violation: &Violation) -> Result<bool> {
        if violation.may_pass {
            return Ok(false);
        }
        let deadline = self.reader.deadline();
        let there = self.storage().get_linearizable(&violation.row.key(), deadline).await?;
        Ok(there == violation.there)
    }
}

/// Returns the error for a refused write if all rows that the refusal names are as expected. The
/// rows may have changed since.
pub(crate) fn unexplained() -> istorage::Error {
    istorage::Error::unavailable("the storage refused a write, and no row conflicts with the write")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DrawnNumber, Entry, EventPlace, Marker};

    #[test]
    fn the_largest_event_has_room_to_be_marked() {
        let most = u64::MAX;
        let place = EventPlace {
            epoch: Epoch(most),
            plog: Offset(most),
            ws: WsId(most),
            wlog: Offset(most),
        };
        let drawn = (0..100).map(|n| DrawnNumber { seq: u16::MAX - n, last: most }).collect();
        let bytes = Bytes::from(vec![7; 100_000]);
        let size = bytes.len();
        let marker = Entry::Marker(Marker { place, marked: Epoch(most), drawn, bytes });
        assert!(marker.to_bytes().len() - size <= MAX_MARKER_OVERHEAD);
    }
}
