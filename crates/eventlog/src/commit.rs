//! The writing of groups: their events into the log of the partition, then the other rows.
//!
//! Invariant: an error claims that an event was not written only if no attempt to write the event
//! can land any more.

use bytes::Bytes;
use clock::Instant;
use istorage::{AppStorageExt, Conflict, ErrorKind, Outcome};

use crate::{
    AppRow, Error, Log, PreparedEvent, Result, Violation, WriteOutcome,
    conflict::{self, PlogOccupant},
    log::{MAX_PAUSE, MIN_PAUSE},
    plan::{GroupWrites, NewRows, RowWrite, WriteMode, in_chunks},
};

impl Log {
    /// Writes consecutive events at the end of the log, and the rows that follow from them. If an
    /// event in the log could not be applied, [`Log::replay`] applies it.
    ///
    /// Invariant: a row that follows from an event is sent together with the event in one atomic
    /// call, or after the event is in the log. A simpler version sends all rows at once. Leader A's
    /// record of event 7 lands, and A stalls before event 7 lands; leader B replays the log, finds
    /// no event 7, and writes another one; so A's record follows from no event.
    ///
    /// # Cancel safety
    /// None: after a dropped call it is not known which rows are written. Let the call end.
    pub async fn write(&self, group: &[PreparedEvent]) -> WriteOutcome {
        self.set_last_error(None);
        let start = self.clock.now();
        let outcome = |committed, applied, commit_error| {
            let log_time = self.clock.now() - start;
            WriteOutcome { committed, applied, commit_error, log_time }
        };
        if let Some(row) = NewRows::default().first_repeated(group) {
            let what = format!("a group of events makes {row} twice: nothing was written");
            return outcome(0, Ok(()), Some(istorage::Error::invalid(what).into()));
        }
        let writes = match self.plan_writes(group) {
            Ok(writes) => writes,
            Err(error) => return outcome(0, Ok(()), Some(error)),
        };
        let can = self.storage().capabilities();
        if can.atomic.is_some_and(|limits| writes.fits(limits)) {
            return match self.write_atomically(&writes).await {
                Ok(()) => outcome(group.len(), Ok(()), None),
                Err(error) => outcome(0, Ok(()), Some(error)),
            };
        }
        let (mut committed, mut commit_error) = (0, None);
        for chunk in in_chunks(writes.plog, &can) {
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
            Ok((writes.rest, writes.changes))
        } else {
            self.plan_writes(&group[..committed]).map(|writes| (writes.rest, writes.changes))
        };
        let applied = match rest {
            Ok((rest, changes)) => self.apply(rest, changes).await,
            Err(error) => Err(error),
        };
        WriteOutcome { applied, ..outcome }
    }

    /// Returns the error for a row that is in the place of an event.
    ///
    /// Invariant: after an attempt without an answer, the write counts as not written only if
    /// another leader's event is in its place. Events are never removed, so the attempt cannot
    /// land. A simpler version also reports a foreign row as a violation, and claims that nothing
    /// was written. The first attempt gets no answer; the second attempt meets a foreign row; an
    /// operator removes that row; the first attempt lands.
    fn plog_error(&self, write: &RowWrite, there: Option<&Bytes>, was_unknown: bool) -> Error {
        let is_ours = |ws| self.has_workspace(ws);
        match conflict::judge_plog_row(write, self.fence.epoch(), there, is_ours) {
            PlogOccupant::Foreign(violation) if was_unknown => {
                Error::Unknown(istorage::Error::outcome_unknown(violation.to_string()))
            }
            PlogOccupant::LaterLeader(epoch) => self.note_later_leader(epoch),
            PlogOccupant::EarlierLeader(offset) => Error::UnexpectedEvent(offset),
            PlogOccupant::Missing if was_unknown => Error::Unknown(unexplained_refusal()),
            PlogOccupant::Missing => unexplained_refusal().into(),
            PlogOccupant::Foreign(violation) => violation.into(),
        }
    }

    /// Sends a conditional write until there is a definite answer or the leadership is lost. The
    /// flag in the result tells whether an earlier attempt had no answer. The module
    /// `istorage::settle` settles only `write_if`, and only until a time that is fixed beforehand.
    /// A log also settles atomic writes. Without `until`, it goes on for as long as its lease is
    /// renewed. After `until`, a write without an answer is [`Error::Unknown`].
    ///
    /// Invariant: after an attempt without an answer, no error claims that nothing was written. A
    /// simpler version returns the error of the second attempt. Leader A's first attempt gets no
    /// answer; the second attempt fails because the server is out of reach; A answers that the
    /// command was not done; the first attempt lands; leader B replays its event. So the command
    /// was done.
    pub(crate) async fn write_settled<W>(
        &self,
        until: Option<Instant>,
        send: impl Fn() -> W,
    ) -> Result<(Outcome, bool)>
    where
        W: Future<Output = istorage::Result<Outcome>>,
    {
        let mut unknown = None;
        let mut pause = MIN_PAUSE;
        loop {
            if let Err(lost) = self.wait_to_send().await {
                return Err(unknown.map_or(lost.into(), Error::Unknown));
            }
            match send().await {
                Ok(outcome) => {
                    if unknown.is_some() {
                        self.set_last_error(None);
                    }
                    return Ok((outcome, unknown.is_some()));
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

    /// Writes all rows of a group in one atomic call.
    ///
    /// Invariant: `Ok` means that the events are in the log, and an error other than
    /// [`Error::Unknown`] means that they are not. A simpler version returns an error whenever the
    /// storage refuses the write. The first attempt gets no answer, but lands; the second attempt
    /// meets the rows of the first attempt and is refused. So the caller would take written events
    /// for events that were not written. Therefore the row of the log decides: if the row holds
    /// exactly the event of this group, the first attempt has landed.
    async fn write_atomically(&self, writes: &GroupWrites) -> Result<()> {
        let send = || self.storage().write_atomic(writes.atomic_batch(), self.reader.deadline());
        let (outcome, was_unknown) = self.write_settled(None, send).await?;
        let Outcome::NotApplied(conflicts) = outcome else { return Ok(()) };
        let found: Vec<(&RowWrite, Option<&Bytes>)> = conflicts
            .iter()
            .filter_map(|Conflict { op, actual }| Some((writes.conditional(*op)?, actual.as_ref())))
            .collect();
        let is_of_plog = |(write, _): &&(&RowWrite, _)| matches!(write.row, AppRow::Plog(..));
        let mut in_plog = found.iter().find(is_of_plog).copied();
        // A storage may report only one conflict. If it reported none in the PLog, the row of the
        // group's first event is read: this row shows whether the group was written.
        let read;
        if in_plog.is_none()
            && let Some(first) = writes.plog.first()
        {
            read = self.read_first_plog_row(first, was_unknown).await?;
            in_plog = read.as_ref().map(|there| (first, Some(there)));
        }
        match (in_plog, found.first()) {
            (Some((write, Some(there))), _) if *there == write.after => Ok(()),
            (Some((write, there)), _) => Err(self.plog_error(write, there, was_unknown)),
            // If an operator corrects the row, the attempt without an answer may still land.
            (None, _) if was_unknown => {
                let what = "an earlier attempt got no answer, and a row is not as expected";
                Err(Error::Unknown(istorage::Error::outcome_unknown(what)))
            }
            (None, Some((write, there))) => {
                let is_swap = matches!(write.mode, WriteMode::Conditional(Some(_)));
                let why =
                    if is_swap { "differs from the row that was read" } else { "already exists" };
                let is_record = there.is_some_and(|there| write.row.record(there).is_ok());
                let is_retryable = is_swap && is_record;
                let (found, expected) = (there.cloned(), write.after.clone());
                let (row, replaces_record) = (write.row, write.replaces_record());
                Err(Violation { row, found, expected, why, is_retryable, replaces_record }.into())
            }
            (None, None) => Err(unexplained_refusal().into()),
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
    /// row holds exactly the bytes of the write: they contain the epoch of this leadership, so an
    /// earlier attempt wrote them. A simpler version returns an error. The first attempt gets no
    /// answer, but lands; the second attempt meets the row of the first attempt and is refused. So
    /// the caller would take a written event for one that was not written.
    pub(crate) async fn write_plog(&self, chunk: &[RowWrite]) -> Result<()> {
        if !chunk[0].is_conditional() {
            return self.put_ordered(chunk, None).await;
        }
        let send = || {
            let ops = chunk.iter().map(RowWrite::conditional).collect();
            self.storage().write_if(chunk[0].key.pkey.clone(), ops, self.reader.deadline())
        };
        let (outcome, was_unknown) = self.write_settled(None, send).await?;
        let Outcome::NotApplied(conflicts) = outcome else { return Ok(()) };
        let found = conflicts
            .first()
            .and_then(|conflict| Some((chunk.get(conflict.op)?, conflict.actual.as_ref())));
        match found.unwrap_or((&chunk[0], None)) {
            // An earlier attempt wrote this row, and all rows of the chunk with it.
            (write, Some(there)) if *there == write.after => Ok(()),
            (write, there) => Err(self.plog_error(write, there, was_unknown)),
        }
    }
}

/// Returns the error for a refused write if all rows that the refusal names are as expected. The
/// rows may have changed since.
pub(crate) fn unexplained_refusal() -> istorage::Error {
    istorage::Error::unavailable("the storage refused a write, and no row conflicts with the write")
}
