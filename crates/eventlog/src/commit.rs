//! The writing of groups: their events into the log of the partition, then the other rows.
//!
//! Invariants:
//! 1. An error claims that an event was not written only if no attempt to write it can land any
//!    more.
//! 2. A row that follows from an event is sent together with it in one atomic call, or after it is
//!    in the log.
//! 3. An event counts as written only if the log shows it: after a refusal, the bytes decide.
//! 4. A row that no leader wrote is never replaced. A stray is, under the condition of its bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use istorage::{BatchLimits, Conflict, Key, Outcome};

use crate::{
    AppRow, Entry, Error, LogWriter, PreparedEvent, Result, Violation, WriteOutcome,
    apply::unexplained_refusal,
    conflict::{self, PlogOccupant},
    plan::{GroupWrites, NewRows, RowWrite, WriteMode, in_chunks},
};

impl LogWriter {
    /// Writes consecutive events at the end of the log, and the rows that follow from them. If an
    /// event in the log could not be applied, [`LogWriter::replay`] applies it. Calls do not
    /// overlap, and the caller counts the offsets.
    ///
    /// Invariant: a row that follows from an event is sent together with the event in one atomic
    /// call, or after the event is in the log. A simpler version sends all rows at once. Leader A's
    /// record of event 7 lands, and A stalls before event 7 lands; leader B replays the log, finds
    /// no event 7, and writes another one; so A's record follows from no event.
    ///
    /// # Cancel safety
    /// None: after a dropped call it is not known which rows are written. Let the call end.
    pub async fn write(&self, group: &[PreparedEvent]) -> WriteOutcome {
        self.calls.set_last_error(None);
        let start = self.calls.clock.now();
        let outcome = |committed, commit_error| {
            let log_time = self.calls.clock.now() - start;
            WriteOutcome { committed, applied: Ok(()), commit_error, log_time }
        };
        if let Some(row) = NewRows::default().first_repeated(group) {
            let what = format!(
                "a group of events makes {row} after another write of it: nothing was written"
            );
            return outcome(0, Some(istorage::Error::invalid(what).into()));
        }
        let mut writes = match self.plan_writes(group) {
            Ok(writes) => writes,
            Err(error) => return outcome(0, Some(error)),
        };
        let can = self.calls.storage().capabilities();
        if let Some(limits) = can.atomic {
            match self.write_atomically(&mut writes, limits).await {
                Ok(true) => return outcome(group.len(), None),
                Ok(false) => {}
                Err(error) => return outcome(0, Some(error)),
            }
        }
        let (committed, commit_error) = self.write_plog(writes.plog).await;
        let outcome = outcome(committed, commit_error);
        // The events in the log are applied, even if other events of the group are not in the log.
        if committed < group.len() {
            writes = match self.plan_writes(&group[..committed]) {
                Ok(writes) => writes,
                Err(error) => return WriteOutcome { applied: Err(error), ..outcome },
            };
        }
        let applied = self.applier.apply(writes.rest, writes.changes).await;
        WriteOutcome { applied, ..outcome }
    }

    /// Judges the row that is in the place of an event. Returns the condition under which the event
    /// replaces a stray. Any other row is an error.
    ///
    /// Invariant: after an attempt without an answer, the write counts as not written only if
    /// another leader's event is in its place. Events are never removed, so the attempt cannot
    /// land. A simpler version also reports a foreign row as a violation, and claims that nothing
    /// was written. The first attempt gets no answer; the second attempt meets a foreign row; an
    /// operator removes that row; the first attempt lands.
    async fn judge_plog_row(
        &self,
        write: &RowWrite,
        there: Option<&Bytes>,
        was_unknown: bool,
    ) -> Result<WriteMode> {
        let is_ours =
            |entry: &Entry| entry.partition(self.calls.reader.partitions()) == self.calls.partition;
        let AppRow::Plog(_, offset) = write.row else { return Err(unexplained_refusal().into()) };
        let (epoch, tail) = (self.calls.fence.epoch(), self.tail());
        // This leader wrote the events past the end of its replay.
        let in_front = if offset == tail.next { tail.epoch } else { epoch };
        let stray_bound = self.strays.bound_behind(in_front);
        Err(match conflict::judge_plog_row(write, epoch, stray_bound, there, is_ours) {
            PlogOccupant::LaterLeader(epoch) => self.calls.fence.note_later_leader(epoch).into(),
            PlogOccupant::EarlierLeader(offset) => Error::UnexpectedEvent(offset),
            PlogOccupant::Stray(of_row) => {
                match self.strays.is_stray_event(write.row, of_row).await {
                    Ok(true) => return Ok(WriteMode::Conditional(there.cloned())),
                    Ok(false) => Error::UnexpectedEvent(offset),
                    Err(error) => unsettled(error, was_unknown),
                }
            }
            PlogOccupant::Missing => unsettled(unexplained_refusal().into(), was_unknown),
            PlogOccupant::Foreign(violation) => unsettled(violation.into(), was_unknown),
        })
    }

    /// Writes all rows of a group in one atomic call. Returns `false` if they do not fit into one.
    ///
    /// Invariant: `Ok(true)` means that the events are in the log, and an error other than
    /// [`Error::Unknown`] means that they are not. A simpler version returns an error whenever the
    /// storage refuses the write. The first attempt gets no answer, but lands; the second attempt
    /// meets the rows of the first attempt and is refused. So the caller would take written events
    /// for events that were not written. Therefore the row of the log decides: if the row holds
    /// exactly the event of this group, the first attempt has landed.
    async fn write_atomically(&self, writes: &mut GroupWrites, most: BatchLimits) -> Result<bool> {
        let mut unknown = None;
        while writes.fits(most) {
            let send = || {
                self.calls
                    .storage()
                    .write_atomic(writes.atomic_batch(), self.calls.reader.deadline())
            };
            let (outcome, unanswered) = self.calls.write_settled(None, unknown, send).await?;
            unknown = unanswered;
            let Outcome::NotApplied(conflicts) = outcome else { return Ok(true) };
            let judged = self.judge_refusal(writes, &conflicts, unknown.is_some()).await?;
            let Refusal::OnlyStrays(conditions) = judged else { return Ok(true) };
            conditions.into_iter().for_each(|(key, mode)| writes.set_condition(&key, mode));
        }
        unknown.map_or(Ok(false), |error| Err(Error::Unknown(error)))
    }

    /// Judges an atomic write that was refused.
    ///
    /// A storage may report only one conflict, and at level 2 only the events of the first group
    /// after a replay have a condition. So if no row of the log is reported, the row of the group's
    /// first event is read: this row shows whether the group was written. At level 2 the row may be
    /// foreign, or of a later leader. Then a record shows the same: only this group writes the
    /// bytes of its version.
    async fn judge_refusal(
        &self,
        writes: &GroupWrites,
        conflicts: &[Conflict],
        was_unknown: bool,
    ) -> Result<Refusal> {
        // 1. The rows that refused the write. If none is of the log, the row of the first event.
        let found: Vec<(&RowWrite, Option<&Bytes>)> = conflicts
            .iter()
            .filter_map(|Conflict { op, actual }| Some((writes.conditional(*op)?, actual.as_ref())))
            .collect();
        let is_of_plog = |(write, _): &(&RowWrite, _)| matches!(write.row, AppRow::Plog(..));
        let (mut in_plog, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_of_plog);
        let read;
        if in_plog.is_empty()
            && let Some(first) = writes.plog.first()
        {
            read =
                self.calls.get(first.row).await.map_err(|error| unsettled(error, was_unknown))?;
            in_plog.extend(read.as_ref().map(|there| (first, Some(there))));
        }
        // 2. The rows of the log show whether an earlier attempt has landed.
        if in_plog.iter().any(|(write, there)| *there == Some(&write.after)) {
            return Ok(Refusal::WasWritten);
        }
        let mut conditions = Vec::new();
        for (write, there) in in_plog {
            match self.judge_plog_row(write, there, was_unknown).await {
                Ok(mode) if write.is_conditional() && mode != write.mode => {
                    conditions.push((write.key.clone(), mode));
                }
                Err(error) if write.is_conditional() => return Err(error),
                Err(error @ Error::LeadershipLost(_)) => return Err(error),
                // At level 2 the event replaces the row, or the row hides the event. A row that is
                // as expected explains no refusal.
                Ok(_) | Err(_) => {}
            }
        }
        // 3. So do the other rows. What is left is in the way, or a stray that may be replaced.
        if others.iter().any(|(write, there)| write.is_written_as(*there)) {
            return Ok(Refusal::WasWritten);
        }
        for (write, there) in others {
            let condition = match there {
                Some(there) if !write.replaces_record() => {
                    self.strays.condition_over_stray(write, there).await
                }
                _ => Ok(None),
            };
            match condition.map_err(|error| unsettled(error, was_unknown))? {
                // The row has changed since it refused the write, and is not judged.
                Some(mode) if mode == write.mode => {}
                Some(mode) => conditions.push((write.key.clone(), mode)),
                // If an operator corrects the row, an attempt without an answer may still land.
                None => return Err(unsettled(violation_of(write, there), was_unknown)),
            }
        }
        match conditions.is_empty() {
            true => Err(unsettled(unexplained_refusal().into(), was_unknown)),
            false => Ok(Refusal::OnlyStrays(conditions)),
        }
    }

    /// Writes rows of the log, chunk by chunk. Returns the number of rows in the log, and why the
    /// others are not.
    pub(crate) async fn write_plog(&self, rows: Vec<RowWrite>) -> (usize, Option<Error>) {
        let can = self.calls.storage().capabilities();
        let mut chunks = VecDeque::from(in_chunks(rows, &can));
        let (mut committed, mut unknown) = (0, None);
        while let Some(mut chunk) = chunks.pop_front() {
            let written = match chunk[0].is_conditional() {
                true => self.insert_plog_chunk(&mut chunk, unknown.take()).await,
                false => self.calls.put_in_log(&chunk).await.map(|()| PlogChunk::Written),
            };
            match written {
                Ok(PlogChunk::Written) => {
                    if let Err(error) = self.check_first_events(&chunk).await {
                        return (committed, Some(unsettled(error, true)));
                    }
                    committed += chunk.len();
                }
                // The expected bytes make the chunk larger, so it is split again. An attempt
                // without an answer cannot land once a part of its chunk is written.
                Ok(PlogChunk::OverStrays { unanswered }) => {
                    unknown = unanswered;
                    in_chunks(chunk, &can).into_iter().rev().for_each(|part| {
                        chunks.push_front(part);
                    });
                }
                Err(error) => return (committed, Some(error)),
            }
        }
        (committed, None)
    }

    /// Checks that the storage shows the first events after a replay.
    ///
    /// A simpler version trusts the answer, as for later events. Another program puts a row past
    /// the end of the log and deletes it, with a clock that is ahead. The event is inserted, and
    /// the deletion hides it. So an acknowledged event would be missing. A foreign row stops the
    /// leader, so the events that meet its deletion are the first ones after a replay.
    async fn check_first_events(&self, chunk: &[RowWrite]) -> Result<()> {
        let first = AppRow::Plog(self.calls.partition, self.tail().next);
        match chunk.first() {
            Some(write) if write.row == first => {
                self.applier
                    .check_shown(chunk, self.calls.clock.now() + self.calls.settings.apply_for)
                    .await
            }
            _ => Ok(()),
        }
    }

    /// Inserts a chunk of rows of the log, or lets its rows replace the strays in their places.
    ///
    /// Invariant: `Written` means that the rows are in the log. A refused write is also `Written`
    /// if the row holds exactly the bytes of the write: they contain the epoch of this leadership,
    /// so an earlier attempt wrote them. A simpler version returns an error. The first attempt gets
    /// no answer, but lands; the second attempt meets the row of the first attempt and is refused.
    /// So the caller would take a written event for one that was not written.
    async fn insert_plog_chunk(
        &self,
        chunk: &mut [RowWrite],
        unknown: Option<istorage::Error>,
    ) -> Result<PlogChunk> {
        let send = || {
            let ops = chunk.iter().map(RowWrite::conditional).collect();
            self.calls.storage().write_if(
                chunk[0].key.pkey.clone(),
                ops,
                self.calls.reader.deadline(),
            )
        };
        let (outcome, unanswered) = self.calls.write_settled(None, unknown, send).await?;
        let Outcome::NotApplied(conflicts) = outcome else { return Ok(PlogChunk::Written) };
        let mut is_explained = false;
        for Conflict { op, actual } in conflicts {
            let Some(write) = chunk.get_mut(op) else { continue };
            // An earlier attempt wrote this row, and all rows of the chunk with it.
            if actual.as_ref() == Some(&write.after) {
                return Ok(PlogChunk::Written);
            }
            let mode = self.judge_plog_row(write, actual.as_ref(), unanswered.is_some()).await?;
            is_explained |= mode != write.mode;
            write.mode = mode;
        }
        match is_explained {
            true => Ok(PlogChunk::OverStrays { unanswered }),
            false => Err(unsettled(unexplained_refusal().into(), unanswered.is_some())),
        }
    }
}

/// The rows that refused an atomic write.
enum Refusal {
    /// The rows of this write: an earlier attempt has landed.
    WasWritten,
    /// Only strays. The write replaces them under these conditions.
    OnlyStrays(Vec<(Key, WriteMode)>),
}

/// The outcome of writing a chunk of the log.
enum PlogChunk {
    Written,
    /// Nothing was written. The rows now have the conditions under which they replace the strays in
    /// their places. An earlier attempt may have had no answer.
    OverStrays {
        unanswered: Option<istorage::Error>,
    },
}

/// Returns an error that makes no claim about the write, if an attempt got no answer.
fn unsettled(error: Error, was_unknown: bool) -> Error {
    match error {
        error if !was_unknown => error,
        Error::Storage(error) => Error::Unknown(error),
        error => Error::unknown(error),
    }
}

/// Returns the violation of a row that refused an atomic write.
fn violation_of(write: &RowWrite, there: Option<&Bytes>) -> Error {
    let is_swap = matches!(write.mode, WriteMode::Conditional(Some(_)));
    let why = if is_swap { conflict::CHANGED } else { "already exists" };
    let is_record = there.is_some_and(|there| write.row.record(there).is_ok());
    let is_retryable = is_swap && is_record;
    let (found, expected) = (there.cloned(), write.after.clone());
    let (row, replaces_record) = (write.row, write.replaces_record());
    Box::new(Violation { row, found, expected, why, is_retryable, replaces_record }).into()
}
