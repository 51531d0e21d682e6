//! Marking an event that cannot be read, with the numbers that the event drew.
//!
//! Invariant: a marker never lets a number be given twice if the numbers that the operator gives
//! are not below those that the event drew. Its other numbers come from the copy of the event, or
//! are the stored numbers of the workspace.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use eventlog::{
    AppRow, DamagedEvent, DamagedFencing, DamagedRow, DrawnNumber, Entry, EventNeighbours,
    EventPlace, LogRepair, Marker, Offset, PlaceEvidence, Repair, WsId,
};
use isequencer::{SeqId, Sequence, standard};

use crate::{PartitionStorage, view::PLOG_OFFSET_SEQ};

/// The largest number of records that a command makes. A command of `sys` draws at most this many
/// numbers of a sequence for one field of each of its new rows.
pub(crate) const MOST_RECORDS: u64 = 4_096;

/// Why an event is not marked. The log is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The event can be read, so there is nothing to mark.
    #[error("event {} can be read: there is nothing to mark", .0.0)]
    Readable(Offset),
    /// The copy of the event in the log of the workspace cannot be read. So the caller must give
    /// the numbers that the event drew. The error has a safe number for each missing one: 4,096
    /// above the last known number of its sequence, or the last number of the sequence. A command
    /// makes at most 4,096 records.
    #[error("the log of the workspace has no copy that can be read: give the last number that the event drew of each missing sequence (`--number SEQUENCE:NUMBER` for each), or state that it drew none (`--no-numbers`); safe numbers are {}", list(.0))]
    NumbersNeeded(Vec<DrawnNumber>),
    /// The given numbers contradict the given offset in the log of the workspace.
    #[error("the given offset in the log of the workspace is {}, and the given numbers have the offset {}", .wlog.0, .given.0)]
    OtherOffset {
        /// The given offset.
        wlog: Offset,
        /// The offset among the given numbers.
        given: Offset,
    },
    /// A sequence is given twice. Only the last number of a sequence counts.
    #[error(
        "sequence {0} is given twice: give the last number that the event drew of each sequence, once"
    )]
    Twice(u16),
    /// The event cannot have drawn the given number.
    #[error("number {} of sequence {} is not above the last known number, {known}, or does not belong to the sequence: give the last number that the event drew, or a higher one", .drawn.last, .drawn.seq)]
    NotAbove {
        /// The given number and its sequence.
        drawn: DrawnNumber,
        /// The highest number that is stored, or that an event before the marked one drew.
        known: u64,
    },
    /// The event cannot be at the given offset in the log of the workspace.
    #[error("the event cannot be at offset {} of the log of its workspace, because the next event that can be read is at offset {}", .wlog.0, .next.0)]
    NotBefore {
        /// The given offset.
        wlog: Offset,
        /// The offset of the next event that can be read.
        next: Offset,
    },
    /// An earlier event has this offset or a higher one.
    #[error("the event cannot be at offset {} of the log of its workspace: it is at least at offset {}", .wlog.0, .least.0)]
    TooLow {
        /// The given offset.
        wlog: Offset,
        /// The lowest offset that the event can have.
        least: Offset,
    },
    /// No event of the workspace can be at the given offset.
    #[error("the event cannot be at offset {} of the log of its workspace: it is at most at offset {}", .wlog.0, .most.0)]
    TooFar {
        /// The given offset.
        wlog: Offset,
        /// The highest offset that the event can have.
        most: Offset,
    },
    /// The damaged bytes still name another place.
    #[error("the damaged bytes name event {} of workspace {}: give this place, or ignore the damaged bytes", .0.wlog.0, .0.ws.0)]
    OtherPlace(EventPlace),
    /// The damaged bytes still name a fencing entry.
    #[error(
        "the damaged bytes name a fencing entry, which has no workspace: write the entry again (`--fencing`), or ignore the damaged bytes"
    )]
    IsFencing,
    /// The workspace is in another partition. No leader of this partition would read a marker in
    /// its log.
    #[error("workspace {} is not in partition {partition}", .ws.0)]
    OtherPartition {
        /// The given workspace.
        ws: WsId,
        /// The partition of the log that is to be marked.
        partition: u16,
    },
    /// At this trust level the log may trust a put of the row, and a removal could hide the put. So
    /// the row must never be removed.
    #[error(
        "{0} is not removed at this trust level: the removal could hide later writes, so write the right bytes into the row instead"
    )]
    Ordered(AppRow),
    /// The row may be a damaged event.
    #[error("{0} may be a damaged event: mark the event, or state that it is none")]
    MayBeEvent(AppRow),
    /// The row was an event: the log goes on after it, or other rows name it.
    #[error("the row at offset {} was an event, because the log goes on after it, or other rows name it: mark the event", .0.0)]
    WasEvent(Offset),
    /// The row must exist.
    #[error("{0} must exist: restore it, or put back its former bytes")]
    NotForeign(AppRow),
    /// Another version of the program wrote the row. The row is whole.
    #[error("another version of the program wrote {0}: run that version")]
    OtherVersion(AppRow),
    /// There is no row at the given offset of the log.
    #[error(
        "there is no row of {0}: check the offset against `vvm repair list`; if the list says that an event is missing, restore its row"
    )]
    NoRow(AppRow),
    /// An error of the log.
    #[error(transparent)]
    Log(#[from] eventlog::Error),
    /// An error of the stored numbers.
    #[error(transparent)]
    Numbers(#[from] sysvvm::Error),
}

/// The planned repair of an event that cannot be read: a restore from its copy, or a marker.
#[derive(Clone, Debug)]
pub struct MarkPlan {
    event: DamagedEvent,
    drawn: Vec<DrawnNumber>,
}

impl MarkPlan {
    /// The event that cannot be read.
    pub fn event(&self) -> &DamagedEvent {
        &self.event
    }

    /// Whether the event is restored from its copy in the log of the workspace, and not marked.
    pub fn restores(&self) -> bool {
        self.event.is_restorable()
    }

    /// The numbers of the event.
    pub fn drawn(&self) -> &[DrawnNumber] {
        &self.drawn
    }
}

impl PartitionStorage {
    fn log_repair(&self) -> LogRepair<'_> {
        LogRepair::new(&self.log)
    }

    /// Plans the marker for an event of the log that cannot be read. Writes nothing.
    ///
    /// An operator gives the workspace of the event and the offset in the log of this workspace. If
    /// the copy at that offset cannot be read either, the operator also gives the other numbers
    /// that the event drew: one for each sequence of record ids and each of `sequences`, or no
    /// number at all if the event drew none. `sequences` are those that the application declares
    /// for the workspace. If the event drew none of them, the operator gives the last known number.
    /// For an event before the stored offset, the numbers are stored already and need not be given:
    /// the marker gets the stored numbers of the workspace.
    ///
    /// If the damaged bytes still name a place, the given place must be the same one, unless
    /// `ignores_hint`.
    ///
    /// # Errors
    /// Fails if the event is not marked, with the reason.
    pub async fn plan_marker(
        &self,
        plog: Offset,
        ws: WsId,
        wlog: Offset,
        given: Option<Vec<DrawnNumber>>,
        ignores_hint: bool,
        sequences: &[Sequence],
    ) -> Result<MarkPlan, MarkError> {
        if !self.log.has_workspace(ws) {
            return Err(MarkError::OtherPartition { ws, partition: self.log.partition() });
        }
        let row = AppRow::Plog(self.log.partition(), plog);
        let there = self.log.reader().row(row).await?;
        let is_fencing =
            |bytes: &Bytes| Entry::from_bytes(bytes).is_err() && row.hints_at_fencing(bytes);
        if there.as_ref().is_some_and(is_fencing) && !ignores_hint {
            return Err(MarkError::IsFencing);
        }
        let event =
            self.log_repair().damaged(plog, ws, wlog).await.map_err(|error| no_row(error, row))?;
        let event = event.ok_or(MarkError::Readable(plog))?;
        if let Some(hint) = row.hinted_place(event.found())
            && (hint.ws, hint.wlog) != (ws, wlog)
            && !ignores_hint
        {
            return Err(MarkError::OtherPlace(hint));
        }
        let drawn = match event.drawn() {
            Some(drawn) => drawn.to_vec(),
            None => {
                let partition = self.log.partition();
                let next = self.numbers.next_offset(partition, self.deadline()).await?;
                let from = next.map_or(Offset::FIRST, Offset);
                let around = self.log_repair().drawn_around(ws, from.min(plog), plog).await?;
                if let Some(next) = around.next.filter(|next| *next <= wlog) {
                    return Err(MarkError::NotBefore { wlog, next });
                }
                self.check_offset(ws, wlog, plog < from, &around).await?;
                if plog < from {
                    with_offset(wlog, self.stored_numbers(ws).await?)?
                } else {
                    let sequences = [&standard::sequences(), sequences].concat();
                    let drawn = with_offset(wlog, given.clone().unwrap_or_default())?;
                    let drawn = self.above_all_known(ws, drawn, &around, &sequences).await?;
                    self.check_complete(ws, given.as_deref(), &around, &sequences).await?;
                    drawn
                }
            }
        };
        Ok(MarkPlan { event, drawn })
    }

    /// Restores the event from its copy, or puts the planned marker in its place, so that the
    /// events after it can be read again.
    ///
    /// # Errors
    /// Fails with a violation if the row of the event has changed since the plan.
    pub async fn repair(&self, plan: MarkPlan) -> Result<Option<Marker>, MarkError> {
        if plan.restores() {
            self.log_repair().restore(&plan.event).await?;
            return Ok(None);
        }
        Ok(Some(self.log_repair().mark(&plan.event, plan.drawn).await?))
    }

    /// Plans to write an unreadable fencing entry again. Writes nothing.
    ///
    /// An operator states that the row was a fencing entry. The call refuses the statement if
    /// another row shows that the row was an event: its numbers would be given again. If the
    /// damaged bytes do not name a fencing entry, a trace of an event is enough for a refusal,
    /// unless `ignores_hint`.
    ///
    /// # Errors
    /// Fails if the entry is not written, with the reason.
    pub async fn plan_fencing(
        &self,
        plog: Offset,
        ignores_hint: bool,
    ) -> Result<DamagedFencing, MarkError> {
        let row = AppRow::Plog(self.log.partition(), plog);
        let damaged =
            self.log_repair().damaged_fencing(plog).await.map_err(|error| no_row(error, row))?;
        let damaged = damaged.ok_or(MarkError::Readable(plog))?;
        if let Some(hint) = row.hinted_place(damaged.found()).filter(|_| !ignores_hint) {
            return Err(MarkError::OtherPlace(hint));
        }
        let places = self.log.reader().place_candidates(self.log.partition(), plog).await?;
        if places.iter().any(|place| place.evidence == PlaceEvidence::Copy) {
            return Err(MarkError::WasEvent(plog));
        }
        if !places.is_empty() && !row.hints_at_fencing(damaged.found()) && !ignores_hint {
            return Err(MarkError::MayBeEvent(row));
        }
        Ok(damaged)
    }

    /// Writes a fencing entry again, so that the entries after it can be read again.
    ///
    /// # Errors
    /// Fails with a violation if the row has changed since the plan.
    pub async fn restore_fencing(&self, plan: &DamagedFencing) -> Result<(), MarkError> {
        Ok(self.log_repair().restore_fencing(plan).await?)
    }

    /// Removes a row that holds exactly these bytes.
    ///
    /// # Errors
    /// Fails with a violation if the row holds other bytes now.
    pub async fn remove(&self, row: AppRow, found: &Bytes) -> Result<(), MarkError> {
        Ok(self.log_repair().remove(row, found).await?)
    }

    /// Checks that a row may be removed. `repair` is the repair that the obstacle asks for. An
    /// operator may state that an unreadable row of the log is foreign, and not a damaged event.
    ///
    /// # Errors
    /// Fails if the row is not removed, with the reason.
    pub async fn check_removal(
        &self,
        row: AppRow,
        repair: Repair,
        is_foreign: bool,
    ) -> Result<(), MarkError> {
        if !self.log_repair().may_remove(row) {
            return Err(MarkError::Ordered(row));
        }
        match (repair, row) {
            (Repair::Remove, _) => Ok(()),
            (Repair::Mark, AppRow::Plog(partition, plog)) if is_foreign => {
                let next = self.numbers.next_offset(partition, self.deadline()).await?;
                let is_stored = next.is_some_and(|next| plog.0 < next);
                match !is_stored && self.log_repair().may_be_behind_the_end(plog).await? {
                    true => Ok(()),
                    false => Err(MarkError::WasEvent(plog)),
                }
            }
            (Repair::Mark, _) => Err(MarkError::MayBeEvent(row)),
            (Repair::OtherVersion, _) => Err(MarkError::OtherVersion(row)),
            (Repair::Restore | Repair::PutBack, _) => Err(MarkError::NotForeign(row)),
        }
    }

    /// Returns the stored numbers of a workspace, without its offset. They are not below those that
    /// an event before the stored offset drew.
    ///
    /// A simpler version leaves the marker of such an event without numbers. Event 5 is marked;
    /// then `sequences.storage` is changed. The new place of numbers has no stored offset, so the
    /// log is read from event 1 on, and nothing tells which numbers event 5 drew. So they would be
    /// given again.
    async fn stored_numbers(&self, ws: WsId) -> Result<Vec<DrawnNumber>, MarkError> {
        let stored = self.numbers.all(ws.0, self.deadline()).await?;
        let stored = stored.into_iter().filter(|stored| {
            // In the view, the row of the log's offset is among the numbers of workspace 0.
            ![PLOG_OFFSET_SEQ, standard::WLOG_OFFSET].contains(&SeqId(stored.seq))
        });
        Ok(stored.map(|stored| DrawnNumber { seq: stored.seq, last: stored.number }).collect())
    }

    /// Checks that the offset in the log of the workspace is after those of the earlier events. If
    /// the numbers of the event are stored, it must be a known offset, or else at most the next
    /// one. A marker further on would leave a hole, and the next event of the workspace would meet
    /// the marker.
    async fn check_offset(
        &self,
        ws: WsId,
        wlog: Offset,
        is_stored: bool,
        around: &EventNeighbours,
    ) -> Result<(), MarkError> {
        let seq = standard::WLOG_OFFSET.0;
        let stored = self.numbers.last(ws.0, &[seq], self.deadline()).await?;
        let stored = stored.first().copied().flatten().unwrap_or(0);
        let before = around.before.get(&seq).copied().unwrap_or(0);
        let most = if is_stored { stored } else { stored.max(before) + 1 };
        if wlog.0 <= before {
            return Err(MarkError::TooLow { wlog, least: Offset(before + 1) });
        }
        if wlog.0 > most {
            return Err(MarkError::TooFar { wlog, most: Offset(most) });
        }
        Ok(())
    }

    /// Checks that the given numbers name each sequence that the event may have drawn from, or say
    /// that the event drew no number. If the event drew a number and nobody names it, the number
    /// would be given again.
    async fn check_complete(
        &self,
        ws: WsId,
        given: Option<&[DrawnNumber]>,
        around: &EventNeighbours,
        sequences: &[Sequence],
    ) -> Result<(), MarkError> {
        let is_given = |seq: u16| {
            given
                .is_some_and(|given| given.is_empty() || given.iter().any(|drawn| drawn.seq == seq))
        };
        let missing: Vec<&Sequence> = sequences
            .iter()
            .filter(|sequence| sequence.id() != standard::WLOG_OFFSET && !is_given(sequence.id().0))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let seqs: Vec<u16> = missing.iter().map(|sequence| sequence.id().0).collect();
        let stored = self.numbers.last(ws.0, &seqs, self.deadline()).await?;
        // If the kind of the workspace is unknown, sequences of several kinds may have one id.
        let mut safe: BTreeMap<u16, u64> = BTreeMap::new();
        for (sequence, stored) in missing.iter().zip(stored) {
            let seq = sequence.id().0;
            let before = around.before.get(&seq).copied().unwrap_or(0);
            // The event drew nothing from a sequence that was used up before.
            let Some(next) = sequence.after(stored.unwrap_or(0).max(before)) else { continue };
            let (far, end) = (next.saturating_add(MOST_RECORDS - 1), last_of(sequence));
            let last = safe.entry(seq).or_default();
            *last = far.min(end).max(*last);
        }
        let safe: Vec<DrawnNumber> =
            safe.into_iter().map(|(seq, last)| DrawnNumber { seq, last }).collect();
        if safe.is_empty() { Ok(()) } else { Err(MarkError::NumbersNeeded(safe)) }
    }

    /// Checks that each given number is above all known numbers of its sequence, and belongs to the
    /// sequence. After a lower number, the sequencer could give a number twice. Returns the numbers
    /// without the sequences of the application that the event did not draw from.
    ///
    /// `check_offset` and `LogRepair::damaged` check the offset in the log of the workspace.
    async fn above_all_known(
        &self,
        ws: WsId,
        drawn: Vec<DrawnNumber>,
        around: &EventNeighbours,
        sequences: &[Sequence],
    ) -> Result<Vec<DrawnNumber>, MarkError> {
        let mut above = Vec::with_capacity(drawn.len());
        let seqs: Vec<u16> = drawn.iter().map(|drawn| drawn.seq).collect();
        let stored = self.numbers.last(ws.0, &seqs, self.deadline()).await?;
        for (drawn, stored) in drawn.into_iter().zip(stored) {
            if drawn.seq == standard::WLOG_OFFSET.0 {
                above.push(drawn);
                continue;
            }
            let before = around.before.get(&drawn.seq).copied().unwrap_or(0);
            let known = stored.unwrap_or(0).max(before);
            let is_of_application = SeqId(drawn.seq) >= standard::FIRST_OF_APPLICATIONS;
            if is_of_application && drawn.last == known {
                continue;
            }
            // If the kind of the workspace is unknown, sequences of several kinds may have this id.
            // The number must be one of them, and not below the next number of any of them.
            let of_id: Vec<&Sequence> =
                sequences.iter().filter(|sequence| sequence.id() == SeqId(drawn.seq)).collect();
            // A number belongs to a sequence if it follows the number before it.
            let belongs = |sequence: &&Sequence| {
                let before = drawn.last.checked_sub(1);
                before.and_then(|before| sequence.after(before)) == Some(drawn.last)
            };
            let is_one = match &of_id[..] {
                [] => drawn.last <= istorage::Order::MAX,
                of_id => of_id.iter().any(belongs),
            };
            let next = of_id.iter().filter_map(|sequence| sequence.after(known)).max();
            if drawn.last <= known || !is_one || next.is_some_and(|next| drawn.last < next) {
                return Err(MarkError::NotAbove { drawn, known });
            }
            above.push(drawn);
        }
        Ok(above)
    }
}

/// The reason why the damaged row was not found.
fn no_row(error: eventlog::Error, row: AppRow) -> MarkError {
    match error {
        eventlog::Error::DamagedRow(DamagedRow::Missing(missing)) if missing == row => {
            MarkError::NoRow(row)
        }
        error => error.into(),
    }
}

/// The last number of a sequence.
pub(crate) fn last_of(sequence: &Sequence) -> u64 {
    sequence.ranges().last().map_or(0, |range| range.end - 1)
}

/// Shows numbers as `sequence:number`, with spaces between them.
fn list(numbers: &[DrawnNumber]) -> String {
    let all: Vec<String> =
        numbers.iter().map(|DrawnNumber { seq, last }| format!("{seq}:{last}")).collect();
    all.join(" ")
}

/// Adds the offset in the log of the workspace to the given numbers, because every event draws that
/// offset.
fn with_offset(wlog: Offset, mut given: Vec<DrawnNumber>) -> Result<Vec<DrawnNumber>, MarkError> {
    let mut seqs = HashSet::new();
    if let Some(drawn) = given.iter().find(|drawn| !seqs.insert(drawn.seq)) {
        return Err(MarkError::Twice(drawn.seq));
    }
    let seq = standard::WLOG_OFFSET.0;
    match given.iter().find(|drawn| drawn.seq == seq) {
        None => given.insert(0, DrawnNumber { seq, last: wlog.0 }),
        Some(drawn) if drawn.last == wlog.0 => {}
        Some(drawn) => return Err(MarkError::OtherOffset { wlog, given: Offset(drawn.last) }),
    }
    Ok(given)
}
