//! The log of a partition in the hands of its leader, and the logs and records that follow from it.

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
    Epoch, Error, Lead, LeadLost, Offset, Place, Prepared, Reader, Result, Row, TrustLevel,
    Violation, WsId,
    judge::{self, InPlog},
    plan::{How, RowWrite, Rows, Rules, in_chunks},
};

pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(5);
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a marker has besides the bytes of the event that it stands for: its place, and up to a hundred numbers.
const ROOM_TO_MARK: usize = 2_048;

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many partitions the application has. A workspace is in the partition of its number modulo this.
    pub partitions: NonZeroU16,
    /// How events and records are written.
    pub level: TrustLevel,
    /// How long each call to the storage may take. The lease reckons with it.
    pub timeout: Duration,
    /// How long it is tried to apply what is in the log, before whoever waits for it is told that it was not.
    pub apply_for: Duration,
    /// How long a command that is sent again gets the first answer, from its event on.
    pub answers_kept: Duration,
}

impl Default for Settings {
    /// One partition, level 0, 2 s for a call, 5 s to apply, 24 h for answers.
    fn default() -> Settings {
        Settings {
            partitions: NonZeroU16::MIN,
            level: TrustLevel::Zero,
            timeout: Duration::from_secs(2),
            apply_for: Duration::from_secs(5),
            answers_kept: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// What became of a group of events.
#[derive(Debug)]
#[must_use]
pub struct Fate {
    /// So many of them, from the first, are in the log of the partition.
    pub committed: usize,
    /// Whether these are applied.
    pub applied: Result<()>,
    /// Why the others are not in the log; with [`Error::Unknown`] they may be.
    pub others: Option<Error>,
    /// How long it took until it was known what is in the log. Where that is not one call with the rest, the rest came after it.
    pub to_log: Duration,
}

/// The last event of a log, as far as those behind it depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Of the next event.
    pub next: Offset,
    /// Of the last event.
    pub epoch: Epoch,
    /// Of the last event; none may be before.
    pub time: WallTime,
}

impl Tail {
    /// Of an empty log.
    pub(crate) const NONE: Tail =
        Tail { next: Offset::FIRST, epoch: Epoch(0), time: WallTime::from_nanos(0) };
}

/// The log of a partition, under one lead.
#[derive(Debug)]
pub struct Log {
    pub(crate) reader: Reader,
    pub(crate) clock: Clock,
    pub(crate) lead: Arc<dyn Lead>,
    pub(crate) partition: u16,
    pub(crate) settings: Settings,
    tail: Mutex<Tail>,
    overthrown: OnceLock<LeadLost>,
    /// The last error of the write under way, while a part of the write is sent again.
    trouble: Mutex<Option<String>>,
    /// Rows of an event in the log may still be written by a call that had no answer.
    is_open: AtomicBool,
}

impl Log {
    /// Nothing is read or written yet.
    pub fn new(
        storage: SharedStorage,
        clock: Clock,
        lead: Arc<dyn Lead>,
        partition: u16,
        settings: Settings,
    ) -> Log {
        let reader = Reader::new(storage, clock.clone(), settings.timeout, settings.partitions);
        let (tail, overthrown) = (Mutex::new(Tail::NONE), OnceLock::new());
        let (trouble, is_open) = (Mutex::default(), AtomicBool::new(false));
        Log { reader, clock, lead, partition, settings, tail, overthrown, trouble, is_open }
    }

    /// Which partition it is of.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// By which it goes.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Under which it is written.
    pub fn epoch(&self) -> Epoch {
        self.lead.epoch()
    }

    /// Whether the success of a write may be told.
    pub fn may_answer(&self) -> bool {
        self.overthrown.get().is_none() && self.lead.may_send(Duration::ZERO)
    }

    /// Reads what the application has stored.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// How large a row can be: no event, and no record, may be larger. There is room left for a marker around it.
    pub fn largest_row(&self) -> usize {
        self.storage().capabilities().row.value.saturating_sub(ROOM_TO_MARK)
    }

    /// Where the log ended when it was [replayed](Log::replay) last; before that nothing is known of it.
    pub fn tail(&self) -> Tail {
        *self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_tail(&self, tail: Tail) {
        *self.tail.lock().unwrap_or_else(PoisonError::into_inner) = tail;
    }

    /// The last error of the write under way, while a part of the write is sent again. `None` when the storage has answered that part:
    /// if several parts are sent again, the next error of another part is told.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Whether rows of events in the log may still be written: a call had no answer, and the log was
    /// not [replayed](Log::replay) to its end since. A later error, such as a row that stands in the
    /// way, does not settle what that call does.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn note_applied(&self, applied: &Result<()>) {
        if applied.as_ref().is_err_and(|error| !error.is_lasting()) {
            self.is_open.store(true, Ordering::Release);
        }
    }

    /// The log was replayed to its end.
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

    pub(crate) fn rows(&self, group: &[Prepared]) -> Result<Rows> {
        if let Some(event) = group.iter().find(|event| !self.has_workspace(event.place.ws)) {
            let what =
                format!("workspace {} is not in partition {}", event.place.ws.0, self.partition);
            return Err(istorage::Error::invalid(what).into());
        }
        Ok(Rows::of(group, self.rules())?)
    }

    /// Whether a workspace is in the partition of this log.
    pub fn has_workspace(&self, ws: WsId) -> bool {
        self.reader.partition_of(ws) == self.partition
    }

    /// Writes events that follow one another at the end of the log, and what they say. What is in the log is not undone any more: if it could not be
    /// applied, [`Log::replay`] applies it.
    ///
    /// # Cancel safety
    /// None: nobody knows then what is written. Let it end.
    pub async fn write(&self, group: &[Prepared]) -> Fate {
        self.set_trouble(None);
        let start = self.clock.now();
        let fate = |committed, applied, others| {
            let to_log = self.clock.now() - start;
            Fate { committed, applied, others, to_log }
        };
        let rows = match self.rows(group) {
            Ok(rows) => rows,
            Err(error) => return fate(0, Ok(()), Some(error)),
        };
        let can = self.storage().capabilities();
        if can.atomic.is_some_and(|limits| rows.fit(limits)) {
            return match self.at_once(&rows).await {
                Ok(()) => fate(group.len(), Ok(()), None),
                Err(error) => fate(0, Ok(()), Some(error)),
            };
        }
        let (mut committed, mut others) = (0, None);
        for chunk in in_chunks(rows.plog, &can) {
            match self.to_plog(&chunk).await {
                Ok(()) => committed += chunk.len(),
                Err(error) => {
                    others = Some(error);
                    break;
                }
            }
        }
        let fate = fate(committed, Ok(()), others);
        // What is in the log is applied, although others did not get there.
        let rest = if committed == group.len() {
            Ok(rows.rest)
        } else {
            self.rows(&group[..committed]).map(|rows| rows.rest)
        };
        let applied = match rest {
            Ok(rest) => self.apply(rest).await,
            Err(error) => Err(error),
        };
        Fate { applied, ..fate }
    }

    /// Whether an event that left something is in the log. Where the log is written conditionally, it is; at level 2 another one may have replaced it.
    ///
    /// # Errors
    /// Those of the storage. An event that cannot be read is an error, too: nobody knows whether it is this one.
    pub async fn has(&self, place: Place) -> Result<bool> {
        if self.settings.level != TrustLevel::Two {
            return Ok(true);
        }
        let row = Row::Plog(self.partition, place.plog);
        let Some(there) = self.get(row).await? else { return Ok(false) };
        Ok(self.reader.entry(row, &there)?.place() == place)
    }

    /// Whether what is told of the log stays true when this node leads no more: at level 2 another one may replace what this one wrote.
    pub fn is_final(&self) -> bool {
        self.settings.level != TrustLevel::Two
    }

    /// Waits until a write may be sent that is given up after the [timeout](Settings::timeout) of a call.
    /// Every write under the lead asks here first, also a write of another crate.
    ///
    /// # Errors
    /// If no write may ever be sent again.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn clearance(&self) -> std::result::Result<(), LeadLost> {
        while !self.may_send() {
            match self.lost() {
                Some(lost) => return Err(lost),
                // A renewal is awaited, or the end.
                None => self.clock.sleep(PAUSE_MIN).await,
            }
        }
        Ok(())
    }

    fn may_send(&self) -> bool {
        self.overthrown.get().is_none() && self.lead.may_send(self.settings.timeout)
    }

    /// Why nothing will ever be written here again; `None` while something may.
    pub fn lost(&self) -> Option<LeadLost> {
        self.overthrown.get().cloned().or_else(|| self.lead.lost())
    }

    /// An event of a later leader was seen: whatever this one was told, it does not lead.
    pub(crate) fn overthrown(&self, by: Epoch) -> Error {
        let lost = LeadLost(format!("there is an event of the later epoch {}", by.0));
        self.overthrown.get_or_init(|| lost).clone().into()
    }

    /// What stands where an event was to be written.
    fn in_plog(&self, write: &RowWrite, there: Option<&Bytes>, was_unknown: bool) -> Error {
        let is_ours = |ws| self.has_workspace(ws);
        match judge::in_plog(write, self.lead.epoch(), there, is_ours) {
            // When that is removed, an attempt without an answer may land.
            InPlog::Wrong(violation) if was_unknown => {
                Error::Unknown(istorage::Error::outcome_unknown(violation.to_string()))
            }
            InPlog::Later(epoch) => self.overthrown(epoch),
            InPlog::Earlier(offset) => Error::Overtaken(offset),
            InPlog::Gone if was_unknown => Error::Unknown(unexplained()),
            InPlog::Gone => unexplained().into(),
            InPlog::Wrong(violation) => violation.into(),
        }
    }

    /// Sends a write with conditions until there is a definite answer, or the lead is lost: what is open must not be left so while it can be settled.
    pub(crate) async fn settled<W>(&self, write: impl Fn() -> W) -> Result<(Outcome, bool)>
    where
        W: Future<Output = istorage::Result<Outcome>>,
    {
        let mut unknown = None;
        let mut pause = PAUSE_MIN;
        loop {
            if let Err(lost) = self.clearance().await {
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
                // It says nothing about the attempts before it.
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    self.set_trouble(Some(error.to_string()));
                }
                Err(error) => return Err(Error::Unknown(error)),
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn at_once(&self, rows: &Rows) -> Result<()> {
        let write = || self.storage().write_atomic(rows.at_once(), self.reader.deadline());
        let (outcome, was_unknown) = self.settled(write).await?;
        let Outcome::NotApplied(conflicts) = outcome else { return Ok(()) };
        let found: Vec<(&RowWrite, Option<&Bytes>)> = conflicts
            .iter()
            .filter_map(|Conflict { op, actual }| Some((rows.conditional(*op)?, actual.as_ref())))
            .collect();
        let is_of_plog = |(write, _): &&(&RowWrite, _)| matches!(write.row, Row::Plog(..));
        let mut in_plog = found.iter().find(is_of_plog).copied();
        // A storage may tell of one condition that failed, and the one that says most may be another.
        let read;
        if in_plog.is_none()
            && let Some(first) = rows.plog.first()
        {
            read = self.in_first_place(first, was_unknown).await?;
            in_plog = read.as_ref().map(|there| (first, Some(there)));
        }
        match (in_plog, found.first()) {
            (Some((write, Some(there))), _) if *there == write.after => Ok(()),
            (Some((write, there)), _) => Err(self.in_plog(write, there, was_unknown)),
            // What stands in the way may be mended, and an attempt without an answer may land then.
            (None, _) if was_unknown => {
                let what = "an attempt without an answer met a row that is not what was read";
                Err(Error::Unknown(istorage::Error::outcome_unknown(what)))
            }
            (None, Some((write, there))) => {
                let is_swap = matches!(write.how, How::If(Some(_)));
                let why = if is_swap { "is not what was read" } else { "is there already" };
                let is_record = there.is_some_and(|there| write.row.record(there).is_ok());
                let may_pass = is_swap && is_record;
                let (there, wanted) = (there.cloned(), write.after.clone());
                Err(Violation { row: write.row, there, wanted, why, may_pass }.into())
            }
            (None, None) => Err(unexplained().into()),
        }
    }

    /// What stands where the first event of a group was to be written.
    async fn in_first_place(&self, first: &RowWrite, was_unknown: bool) -> Result<Option<Bytes>> {
        let read = self.storage().get_linearizable(&first.key, self.reader.deadline()).await;
        read.map_err(|error| if was_unknown { Error::Unknown(error) } else { error.into() })
    }

    /// Confirmed when it returns.
    async fn to_plog(&self, chunk: &[RowWrite]) -> Result<()> {
        if !chunk[0].is_conditional() {
            return self.put_ordered(chunk, None).await;
        }
        let write = || {
            let ops = chunk.iter().map(RowWrite::conditional).collect();
            self.storage().write_if(chunk[0].key.pkey.clone(), ops, self.reader.deadline())
        };
        let (outcome, was_unknown) = self.settled(write).await?;
        let Outcome::NotApplied(conflicts) = outcome else { return Ok(()) };
        let found = conflicts
            .first()
            .and_then(|conflict| Some((chunk.get(conflict.op)?, conflict.actual.as_ref())));
        match found.unwrap_or((&chunk[0], None)) {
            // They are all or nothing, and nobody else writes these bytes.
            (write, Some(there)) if *there == write.after => Ok(()),
            (write, there) => Err(self.in_plog(write, there, was_unknown)),
        }
    }

    /// Whether a row is as it was found when it stood in the way, and is in the way still.
    ///
    /// # Errors
    /// Those of the storage.
    pub async fn is_still(&self, violation: &Violation) -> Result<bool> {
        if violation.may_pass {
            return Ok(false);
        }
        let deadline = self.reader.deadline();
        let there = self.storage().get_linearizable(&violation.row.key(), deadline).await?;
        Ok(there == violation.there)
    }
}

/// A storage refused a write, and all rows that it names are as the write expects them: they may have changed since.
pub(crate) fn unexplained() -> istorage::Error {
    istorage::Error::unavailable("a write was refused, and no row is in the way")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corrupted, Drawn, Entry, Place};

    #[test]
    fn the_largest_event_has_room_to_be_marked() {
        let most = u64::MAX;
        let place =
            Place { epoch: Epoch(most), plog: Offset(most), ws: WsId(most), wlog: Offset(most) };
        let drawn = (0..100).map(|n| Drawn { seq: u16::MAX - n, last: most }).collect();
        let bytes = Bytes::from(vec![7; 100_000]);
        let size = bytes.len();
        let marker = Entry::Corrupted(Corrupted { place, marked: Epoch(most), drawn, bytes });
        assert!(marker.to_bytes().len() - size <= ROOM_TO_MARK);
    }
}
