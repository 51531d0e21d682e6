//! The writing of the rows that follow from events in the log of the partition.

mod again;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use clock::Instant;
use futures::{StreamExt, stream};
use istorage::{Conflict, ErrorKind, FoundRow, Key, Outcome};

use crate::{
    AppRow, Error, Result,
    acknowledged::AcknowledgedVersions,
    calls::Calls,
    conflict,
    plan::{RowWrite, WriteMode, in_chunks},
    settings::MIN_PAUSE,
    strays::Strays,
};

/// The number of ordered rows that are sent together, and the number of such chunks at a time. If a
/// storage cannot write them within one call, each chunk is written [in
/// parts](crate::calls::Calls::put_in_parts).
pub(crate) const ORDERED_CHUNK_ROWS: usize = 500;
const ORDERED_CHUNKS_AT_ONCE: usize = 4;

/// The number of chunks of conditional rows that are sent at a time. The rows of such a chunk are
/// in one storage partition.
const CONDITIONAL_CHUNKS_AT_ONCE: usize = 64;

/// Writes the rows that follow from events in the log.
#[derive(Debug)]
pub(crate) struct Applier {
    calls: Arc<Calls>,
    strays: Strays,
    pub(crate) acknowledged: AcknowledgedVersions,
    /// Whether a call that got no answer may still write rows of an event in the log.
    has_unsettled_writes: AtomicBool,
}

impl Applier {
    pub(crate) fn new(calls: Arc<Calls>, strays: Strays) -> Applier {
        let acknowledged = AcknowledgedVersions::new();
        Applier { calls, strays, acknowledged, has_unsettled_writes: AtomicBool::new(false) }
    }

    pub(crate) fn has_unsettled_writes(&self) -> bool {
        self.has_unsettled_writes.load(Ordering::Acquire)
    }

    pub(crate) fn note_applied(&self, applied: &Result<()>) {
        if applied.as_ref().is_err_and(|error| !error.is_lasting()) {
            self.has_unsettled_writes.store(true, Ordering::Release);
        }
    }

    /// Records that the log was replayed to its end.
    pub(crate) fn note_replayed(&self) {
        self.has_unsettled_writes.store(false, Ordering::Release);
    }

    /// Writes the rows that follow from events in the log. Rows that are already written are left
    /// unchanged.
    ///
    /// Invariant: a violation is returned only after all other rows are written. A simpler version
    /// returns at the first violation. Leader A's write in workspace 1 gets no answer; a row of
    /// workspace 2 is foreign; A reports the violation, is stopped, and releases its lease, because
    /// a violation leaves no write [unsettled](Applier::has_unsettled_writes); leader B begins. So
    /// A's write may still land while B leads.
    ///
    /// Invariant: a record that a group makes is changed only if its event made it. A simpler
    /// version writes both at once. In the example of [`Rules::plan`](crate::plan::Rules::plan),
    /// the write of event 9 meets the record of event 7 and is a violation; the write of event 10
    /// replaces it.
    pub(crate) async fn apply(&self, rest: Vec<RowWrite>, changes: Vec<RowWrite>) -> Result<()> {
        let until = self.calls.clock.now() + self.calls.settings.apply_for;
        let mut applied = self.write_rest(rest, until).await;
        // None of the changes was sent, so none of them can land later.
        if applied.is_ok() {
            applied = self.write_rest(changes, until).await;
        }
        self.note_applied(&applied);
        applied
    }

    async fn write_rest(&self, mut rest: Vec<RowWrite>, until: Instant) -> Result<()> {
        if rest.is_empty() {
            return Ok(());
        }
        rest.sort_by(|one, other| one.key.cmp(&other.key));
        let read_back: Vec<_> =
            rest.extract_if(.., |write| matches!(write.mode, WriteMode::ReadBack(_))).collect();
        let (conditional, ordered): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(RowWrite::is_conditional);
        let ordered = async {
            let mut chunks = Vec::with_capacity(ordered.len().div_ceil(ORDERED_CHUNK_ROWS));
            for chunk in ordered.chunks(ORDERED_CHUNK_ROWS) {
                chunks.push(self.calls.put_in_parts(chunk, &self.calls.parts.puts, until));
            }
            run_all(chunks, ORDERED_CHUNKS_AT_ONCE).await
        };
        let read_back = async {
            let mut chunks = Vec::with_capacity(read_back.len().div_ceil(ORDERED_CHUNK_ROWS));
            for chunk in read_back.chunks(ORDERED_CHUNK_ROWS) {
                chunks.push(self.write_and_read_back(chunk, until));
            }
            run_all(chunks, ORDERED_CHUNKS_AT_ONCE).await
        };
        let conditional = self.write_conditional_rows(conditional, until);
        let (conditional, ordered, read_back) =
            futures::future::join3(conditional, ordered, read_back).await;
        combined_result([conditional, ordered, read_back])
    }

    async fn write_conditional_rows(&self, writes: Vec<RowWrite>, until: Instant) -> Result<()> {
        let chunks = in_chunks(writes, &self.calls.storage().capabilities());
        let writes = chunks.into_iter().map(|chunk| self.write_conditional(chunk, until));
        run_all(writes, CONDITIONAL_CHUNKS_AT_ONCE).await
    }

    /// Writes rows by their orders, and reads them. Rows that hold other bytes than were written
    /// are judged, and written conditionally if they must be.
    ///
    /// Invariant: `Ok` means that each row holds the bytes of its event, or those of a later one,
    /// and no foreign row was replaced. A simpler version trusts the acknowledgement of the write.
    /// Another program puts a row, which hides every ordered write of its place; the write of the
    /// event is acknowledged. So the row of an acknowledged event would be missing.
    ///
    /// The writes of a leader that has lost its leadership do no harm: they follow from events in
    /// the log, and their orders are those of their events, so they never replace a later row.
    ///
    /// Invariant: a row is written conditionally only if it hides ordered writes, is missing, or is
    /// a stray in the place of a new row. A simpler version also replaces an older row in the
    /// bands. Leader A's condition holds for such a row, and A stalls before its write is
    /// committed; leader B puts the next version and reads it back; A's write is committed, and
    /// hides the version of B. A stray is in the band *last*, and wins over every put of a new row.
    /// So B cannot put anything above it either, and replaces it by consensus, too.
    async fn write_and_read_back(&self, writes: &[RowWrite], until: Instant) -> Result<()> {
        self.calls.put_in_parts(writes, &self.calls.parts.puts, until).await?;
        let values = self.calls.read_values(&keys_of(writes), until).await?;
        let is_odd =
            |(write, value): &(&RowWrite, Option<Bytes>)| value.as_ref() != Some(&write.after);
        let odd: Vec<_> =
            writes.iter().zip(values).filter(is_odd).map(|(write, _)| write).collect();
        let written = self.write_odd_rows(&odd, until).await;
        if written.is_ok() {
            self.acknowledged.note(writes.iter().filter_map(RowWrite::version));
        }
        written
    }

    /// Judges rows that hold other bytes than were put there, and writes them conditionally if they
    /// must be. The rows are read again, because only this read tells whether they hide ordered
    /// writes.
    async fn write_odd_rows(&self, writes: &[&RowWrite], until: Instant) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let keys: Vec<Key> = writes.iter().map(|write| write.key.clone()).collect();
        let found = self.calls.read_rows(&keys, until).await?;
        let (mut left, mut violations) = (Vec::new(), Vec::new());
        for (write, found) in writes.iter().copied().zip(found) {
            let there = found.as_ref().map(|row| &row.value);
            match conflict::judge_applied_row(write, there) {
                Ok(None) => {}
                // The recovery puts the row again.
                Ok(Some(_)) if found.as_ref().is_some_and(|row| !row.hides_ordered) => {
                    violations.push(Err(not_shown(write.row).into()));
                }
                Ok(Some(mode)) => left.push(RowWrite { mode, ..write.clone() }),
                Err(violation) => match self.over_stray(write, found).await {
                    Ok(Some(write)) => left.push(write),
                    Ok(None) => violations.push(Err(violation.into())),
                    Err(error) => violations.push(Err(error)),
                },
            }
        }
        violations.push(self.write_conditional_rows(left, until).await);
        combined_result(violations)
    }

    /// Checks that the storage shows rows that it has written conditionally.
    ///
    /// A simpler version trusts the answer. An operator repairs a record with a client whose clock
    /// is an hour ahead; an event updates the record under a condition, and the condition holds;
    /// but the storage keeps the row with the later time. So for an hour each update of the record
    /// would be acknowledged and missing. A deletion with such a time hides an inserted row
    /// likewise.
    pub(crate) async fn check_shown(&self, writes: &[RowWrite], until: Instant) -> Result<()> {
        if !self.calls.reads_back() {
            return Ok(());
        }
        let values = self.calls.read_values(&keys_of(writes), until).await?;
        let is_shown = |(write, there): &(&RowWrite, Option<Bytes>)| {
            matches!(conflict::judge_applied_row(write, there.as_ref()), Ok(None))
        };
        match writes.iter().zip(values).find(|pair| !is_shown(pair)) {
            Some((write, _)) => Err(not_shown(write.row).into()),
            None => Ok(()),
        }
    }

    /// Writes conditional rows of one storage partition. Each row that a refusal names is judged,
    /// and the other rows are written. If a refusal names no row, the same write is sent again, as
    /// after a failure.
    ///
    /// Invariant: if an attempt got no answer, its error is returned in place of a violation. A
    /// simpler version returns the violation. Leader A's first attempt gets no answer; the second
    /// attempt meets a foreign row; A is stopped, and releases its lease; an operator removes the
    /// row. So the first attempt may land while leader B leads. The next try finds the row again.
    async fn write_conditional(&self, mut writes: Vec<RowWrite>, until: Instant) -> Result<()> {
        let mut pause = MIN_PAUSE;
        let mut was_retried = false;
        let mut unanswered: Option<istorage::Error> = None;
        let mut conflict_error: Option<Error> = None;
        while let Some(first) = writes.first() {
            self.calls.fence.wait_to_send().await?;
            let pkey = first.key.pkey.clone();
            let ops = writes.iter().map(RowWrite::conditional).collect();
            match self.calls.storage().write_if(pkey, ops, self.calls.reader.deadline()).await {
                Ok(Outcome::Applied) => {
                    self.check_shown(&writes, until).await?;
                    self.acknowledged.note(writes.iter().filter_map(RowWrite::version));
                    writes.clear();
                }
                Ok(Outcome::NotApplied(conflicts)) => {
                    let left = self.remaining_writes(writes, conflicts).await;
                    writes = left.writes;
                    conflict_error = conflict_error.or(left.conflict_error);
                    if !left.is_explained {
                        let error = unexplained_refusal();
                        if !self.calls.may_try_again(&mut pause, until, &error).await {
                            return Err(error.into());
                        }
                        was_retried = true;
                    }
                }
                Err(error) => {
                    if !self.calls.may_try_again(&mut pause, until, &error).await {
                        let error = Error::from(error);
                        return Err(match unanswered {
                            Some(unanswered) if error.is_lasting() => unanswered.into(),
                            _ => error,
                        });
                    }
                    was_retried = true;
                    if error.kind() == ErrorKind::OutcomeUnknown {
                        unanswered = Some(error);
                    }
                }
            }
        }
        if was_retried {
            self.calls.set_last_error(None);
        }
        conflict_error.map_or(Ok(()), |refused| Err(unanswered.map_or(refused, Error::from)))
    }

    /// Returns the conditional write that replaces the stray in the row of a write that was read
    /// back; `None` if the row is no stray.
    async fn over_stray(
        &self,
        write: &RowWrite,
        found: Option<FoundRow>,
    ) -> Result<Option<RowWrite>> {
        let Some(found) = found else { return Ok(None) };
        if !self.strays.is_stray(write, &found).await? {
            return Ok(None);
        }
        // An update is above every stray of an earlier epoch, so the storage does not show its last
        // write.
        if write.replaces_record() && !found.hides_ordered {
            return Err(not_shown(write.row).into());
        }
        let mode = WriteMode::Conditional(Some(found.value));
        Ok(Some(RowWrite { mode, ..write.clone() }))
    }

    /// Returns the rest of a refused call.
    async fn remaining_writes(
        &self,
        writes: Vec<RowWrite>,
        conflicts: Vec<Conflict>,
    ) -> RemainingWrites {
        let mut conflicts = conflicts.into_iter().peekable();
        let mut left = RemainingWrites::default();
        for (op, mut write) in writes.into_iter().enumerate() {
            let Some(Conflict { actual, .. }) = conflicts.next_if(|conflict| conflict.op == op)
            else {
                left.writes.push(write);
                continue;
            };
            match self.remaining_condition(&write, actual.as_ref()).await {
                Ok(Some(mode)) => {
                    left.is_explained |= write.mode != mode;
                    write.mode = mode;
                    left.writes.push(write);
                }
                Ok(None) => left.is_explained = true,
                Err(error) => {
                    left.is_explained = true;
                    left.conflict_error.get_or_insert(error);
                }
            }
        }
        left
    }

    /// Returns the condition of a conditional write that was refused; `None` if the write is done.
    async fn remaining_condition(
        &self,
        write: &RowWrite,
        there: Option<&Bytes>,
    ) -> Result<Option<WriteMode>> {
        let violation = match conflict::judge_applied_row(write, there) {
            Ok(needed) => return Ok(needed),
            Err(violation) => violation,
        };
        let condition = match there {
            Some(there) => self.strays.condition_over_stray(write, there).await?,
            None => None,
        };
        condition.map_or(Err(violation.into()), |mode| Ok(Some(mode)))
    }
}

/// Returns the error for a refused write if all rows that the refusal names are as expected. The
/// rows may have changed since.
pub(crate) fn unexplained_refusal() -> istorage::Error {
    istorage::Error::unavailable("the storage refused a write, and no row conflicts with the write")
}

/// The error for a row that does not hold what the storage has acknowledged.
pub(crate) fn not_shown(row: AppRow) -> istorage::Error {
    istorage::Error::unavailable(format!(
        "the storage does not show its last write of {row}: it has lost the write, or another program \
         has written or deleted the row with a time that is ahead"
    ))
}

fn keys_of(writes: &[RowWrite]) -> Vec<Key> {
    writes.iter().map(|write| write.key.clone()).collect()
}

/// Runs all writes, up to `at_once` of them at a time.
pub(crate) async fn run_all<W>(writes: impl IntoIterator<Item = W>, at_once: usize) -> Result<()>
where
    W: Future<Output = Result<()>>,
{
    let written: Vec<_> = stream::iter(writes).buffer_unordered(at_once).collect().await;
    combined_result(written)
}

/// Returns one result for several writes: the first error after which a write may still land, or
/// else the first error. So a violation is reported only when everything else is settled. The next
/// try finds the row again.
fn combined_result(written: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let failed = written.into_iter().filter_map(Result::err).min_by_key(Error::is_lasting);
    failed.map_or(Ok(()), Err)
}

/// The rest of a refused call.
#[derive(Default)]
struct RemainingWrites {
    /// The writes to send again.
    writes: Vec<RowWrite>,
    /// Whether the refusal names a row that is written, needs another condition, or is foreign.
    is_explained: bool,
    /// The violation of the first foreign row.
    conflict_error: Option<Error>,
}
