//! The repair of a row of the stored numbers that holds no number.
//!
//! Invariant: a repair never lets a number be given twice if the number that it stores is not below
//! the last one that was given. That number follows from the log, unless events of the log cannot
//! be read.

use std::collections::BTreeMap;

use bytes::Bytes;
use eventlog::{AppRow, Entry, Offset, WsId};
use futures::TryStreamExt;
use isequencer::{SeqId, Sequence, standard};
use istorage::{Consistency, Key};
use sysvvm::{NumberPlace, StoredOffset};

use crate::{
    PartitionStorage,
    mark::{MOST_RECORDS, last_of},
};

/// For this many events before a stored offset, the repair checks that their numbers are stored. By
/// default at most this many events wait for their numbers to be stored.
const CHECKED_EVENTS: u64 = 10_000;

/// The reason why a row of the stored numbers is not repaired. The row is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum NumberRepairError {
    /// The row holds a number.
    #[error("the row holds the number {0}: there is nothing to repair")]
    Readable(u64),
    /// There is no row.
    #[error("there is no such row: check the workspace and the sequence against `vvm repair list`")]
    NoRow,
    /// The workspace is in another partition.
    #[error("workspace {} is not in partition {partition}", .ws.0)]
    OtherPartition {
        /// The given workspace.
        ws: WsId,
        /// The partition that is to be repaired.
        partition: u16,
    },
    /// An event of the log drew a higher number.
    #[error(
        "an event of the log drew number {known}: give this number or a higher one, such as {safe}"
    )]
    TooLow {
        /// The highest number that an event drew.
        known: u64,
        /// A number that is not below any that was given.
        safe: u64,
    },
    /// The number does not belong to the sequence.
    #[error("{number} does not belong to the sequence: give a number of it, such as {safe}")]
    NotOfSequence {
        /// The given number.
        number: u64,
        /// A number that is not below any that was given.
        safe: u64,
    },
    /// The offset in the log of a workspace must be that of its last event.
    #[error(
        "the last event of the workspace is at offset {last} of its log: the next event must follow it"
    )]
    NotLastEvent {
        /// The offset of the last event.
        last: u64,
    },
    /// The stored offset would leave out an event whose numbers are not stored.
    #[error(
        "event {}, which is before the offset, is missing, or its numbers are not stored: give a lower offset; 1 is always right, and replays the whole log", .0.0
    )]
    NotStored(Offset),
    /// The row has changed since it was read.
    #[error("the row has changed: run `vvm repair list` again")]
    Changed,
    /// An error of the log.
    #[error(transparent)]
    Log(#[from] eventlog::Error),
    /// An error of the stored numbers.
    #[error(transparent)]
    Numbers(#[from] sysvvm::Error),
}

/// The planned repair of a row of the stored numbers.
#[derive(Clone, Debug)]
pub struct NumberPlan {
    place: NumberPlace,
    key: Key,
    found: Bytes,
    number: u64,
}

impl NumberPlan {
    /// The bytes of the row that are replaced.
    pub fn found(&self) -> &Bytes {
        &self.found
    }

    /// The key of the row.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The number to be stored. For the stored offset: the offset of the next event to replay.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl PartitionStorage {
    /// Returns the place of the stored number that has this key; `None` if no number has it.
    pub fn number_place(&self, key: &Key) -> Option<NumberPlace> {
        self.numbers.place_of(self.log.partition(), key)
    }

    /// Plans the repair of a row of the stored numbers. Writes nothing.
    ///
    /// Without `number`, the plan takes a safe one:
    /// - For a sequence: the last number that an event drew, in the log of the workspace, or in
    ///   that of the partition from the stored offset on. It adds 4,096 for each event of the
    ///   workspace that does not tell its numbers, because a command makes at most 4,096 records.
    /// - For the stored offset: 1, so that the whole log is replayed.
    ///
    /// `sequences` are those that the application declares for the workspace. Reads the whole log
    /// of the workspace, and the log of the partition from the stored offset on.
    ///
    /// # Errors
    /// Fails with the reason why the row is not repaired.
    pub async fn plan_number(
        &self,
        place: NumberPlace,
        number: Option<u64>,
        sequences: &[Sequence],
    ) -> Result<NumberPlan, NumberRepairError> {
        let partition = self.log.partition();
        if let NumberPlace::Last { ws, .. } = place
            && !self.log.has_workspace(WsId(ws))
        {
            return Err(NumberRepairError::OtherPartition { ws: WsId(ws), partition });
        }
        let key = self.numbers.key(partition, place);
        let found = self.numbers.row(&key, self.deadline()).await?;
        let found = found.ok_or(NumberRepairError::NoRow)?;
        let readable = match place {
            NumberPlace::Offset => sysvvm::offset_in(&found),
            NumberPlace::Last { .. } => sysvvm::number_in(&found),
        };
        if let Some(number) = readable {
            return Err(NumberRepairError::Readable(number));
        }
        let number = match place {
            NumberPlace::Offset => self.checked_offset(number.unwrap_or(1)).await?,
            NumberPlace::Last { ws, seq } => {
                let (ws, seq) = (WsId(ws), SeqId(seq));
                let sequences = [&standard::sequences(), sequences].concat();
                let of_id: Vec<Sequence> =
                    sequences.into_iter().filter(|sequence| sequence.id() == seq).collect();
                self.checked_number(ws, seq, number, &of_id).await?
            }
        };
        Ok(NumberPlan { place, key, found, number })
    }

    /// Writes the planned number, if the row still holds the bytes that were found.
    ///
    /// # Errors
    /// Fails with [`NumberRepairError::Changed`] if the row holds other bytes now, and with the
    /// errors of the storage. After an error of the storage the number may be stored, even later.
    pub async fn repair_number(&self, plan: &NumberPlan) -> Result<(), NumberRepairError> {
        let NumberPlan { place, key, found, number } = plan;
        self.log.fence().wait_to_send().await.map_err(eventlog::Error::from)?;
        let (deadline, found) = (self.deadline(), found.clone());
        let offset =
            StoredOffset { partition: self.log.partition(), epoch: self.epoch().0, next: *number };
        let is_written = match place {
            NumberPlace::Offset => self.numbers.replace_offset(found, offset, deadline).await?,
            NumberPlace::Last { .. } => {
                self.numbers.replace_number(key, found, *number, deadline).await?
            }
        };
        if is_written { Ok(()) } else { Err(NumberRepairError::Changed) }
    }

    /// Checks that a stored offset leaves out no event whose numbers are not stored. Numbers are
    /// stored after their events are applied, so these events are applied, too.
    async fn checked_offset(&self, next: u64) -> Result<u64, NumberRepairError> {
        let Some(last) = next.checked_sub(1) else {
            return Err(NumberRepairError::NotStored(Offset(0)));
        };
        let partition = self.log.partition();
        let from = Offset((last + 1).saturating_sub(CHECKED_EVENTS).max(1));
        let row = move |offset| AppRow::Plog(partition, offset);
        let mut rows = self.log.reader().log_rows(row, from, Consistency::Linearizable);
        // The last number that these events drew of each sequence, and the event that drew it.
        let mut drawn: BTreeMap<WsId, BTreeMap<u16, (u64, Offset)>> = BTreeMap::new();
        for offset in (from.0..=last).map(Offset) {
            let missing = NumberRepairError::NotStored(offset);
            let Some((there, bytes)) = rows.try_next().await? else { return Err(missing) };
            let entry = Entry::from_bytes(&bytes).ok().filter(|_| there == offset);
            let Some(entry) = entry else { return Err(missing) };
            // A fencing entry is in no workspace, and drew nothing.
            let Some(place) = entry.place() else { continue };
            for number in entry.drawn() {
                let of_ws = drawn.entry(place.ws).or_default();
                let last = of_ws.entry(number.seq).or_insert((number.last, offset));
                *last = (number.last, offset).max(*last);
            }
        }
        for (ws, last) in drawn {
            let seqs: Vec<u16> = last.keys().copied().collect();
            let stored = self.numbers.last(ws.0, &seqs, self.deadline()).await?;
            for ((number, offset), stored) in last.into_values().zip(stored) {
                if stored < Some(number) {
                    return Err(NumberRepairError::NotStored(offset));
                }
            }
        }
        Ok(next)
    }

    /// Checks a number against the log of its workspace, or takes a safe one. `of_id` are the
    /// declared sequences with this id: several if the kind of the workspace is unknown.
    async fn checked_number(
        &self,
        ws: WsId,
        seq: SeqId,
        number: Option<u64>,
        of_id: &[Sequence],
    ) -> Result<u64, NumberRepairError> {
        let mut logged = self.logged_numbers(ws, seq).await?;
        let end = logged.last;
        let not_stored = self.add_not_stored(ws, seq, &mut logged).await?;
        if seq == standard::WLOG_OFFSET {
            let last = self.before_strays(ws, end).await?.max(not_stored);
            let number = number.unwrap_or(last);
            return match number == last {
                true => Ok(number),
                false => Err(NumberRepairError::NotLastEvent { last }),
            };
        }
        // Events at the end, which may be missing in both logs, may have drawn numbers, too.
        let ends = self.numbers.last(ws.0, &[standard::WLOG_OFFSET.0], self.deadline()).await?;
        let end_of_log = ends.first().copied().flatten().unwrap_or(0);
        let LoggedNumbers { last, known, untold } = logged;
        let untold = untold + end_of_log.saturating_sub(last);
        let ends = of_id.iter().map(last_of);
        let end = ends.max().unwrap_or(istorage::Order::MAX);
        let starts = of_id.iter().filter_map(|sequence| sequence.after(known));
        let start = starts.max().unwrap_or(known).max(known + 1) - 1;
        let safe = match untold {
            0 => known,
            untold => start.saturating_add(untold.saturating_mul(MOST_RECORDS)).min(end),
        };
        let number = number.unwrap_or(safe);
        if number < known {
            return Err(NumberRepairError::TooLow { known, safe });
        }
        let is_one = |sequence: &Sequence| {
            let before = number.checked_sub(1);
            before.and_then(|before| sequence.after(before)) == Some(number)
        };
        let is_any = of_id.is_empty() && number <= end;
        if number != known && !is_any && !of_id.iter().any(is_one) {
            return Err(NumberRepairError::NotOfSequence { number, safe });
        }
        Ok(number)
    }

    /// Returns the offset of the last event of a workspace. A former leader at trust level 2 may
    /// have left later events that are not in the log of the partition. The next events of the
    /// workspace take their places.
    async fn before_strays(&self, ws: WsId, mut last: u64) -> Result<u64, NumberRepairError> {
        while last > 0 {
            let there = self.log.reader().row(AppRow::Wlog(ws, Offset(last))).await?;
            let entry = there.and_then(|bytes| Entry::from_bytes(&bytes).ok());
            match entry.and_then(|entry| entry.place()) {
                Some(place) if !self.log.has_event(place).await? => last -= 1,
                _ => break,
            }
        }
        Ok(last)
    }

    /// Adds the events from the stored offset on, as the log of the partition has them, and returns
    /// the highest number that they drew; 0 if they drew none. If the stored offset is damaged, the
    /// whole log is read.
    ///
    /// A simpler version asks only the log of the workspace. The leader writes event 7 into the log
    /// of the partition, and crashes; the next leader meets the damaged number before it has
    /// applied event 7. So the number that event 7 drew would be refused.
    async fn add_not_stored(
        &self,
        ws: WsId,
        seq: SeqId,
        logged: &mut LoggedNumbers,
    ) -> Result<u64, NumberRepairError> {
        let key = self.numbers.key(self.log.partition(), NumberPlace::Offset);
        let stored = self.numbers.row(&key, self.deadline()).await?;
        let next = stored.and_then(|bytes| sysvvm::offset_in(&bytes));
        let mut entries = self.log.entries(next.map_or(Offset::FIRST, Offset));
        let mut highest = 0;
        loop {
            let entry = match entries.try_next().await {
                Ok(Some((entry, _))) => entry,
                // The recovery stops there, too. When the row is repaired, the recovery counts the
                // numbers of this event and of those after it. A refusal would be a deadlock,
                // because marking the event needs the stored numbers.
                Ok(None) | Err(eventlog::Error::DamagedRow(_)) => return Ok(highest),
                Err(error) => return Err(error.into()),
            };
            let Some(place) = entry.place().filter(|place| place.ws == ws) else { continue };
            let drawn = drawn_of(&entry, seq).unwrap_or(0);
            highest = highest.max(drawn);
            // Other events are counted already, some of them as missing in the log of the
            // workspace.
            match place.wlog.0 > logged.last {
                true => logged.add(place.wlog, Some(&entry), seq),
                false => logged.known = logged.known.max(drawn),
            }
        }
    }

    /// Reads the log of a workspace for the numbers of a sequence. Numbers of strays count, too:
    /// they only leave a gap.
    async fn logged_numbers(
        &self,
        ws: WsId,
        seq: SeqId,
    ) -> Result<LoggedNumbers, NumberRepairError> {
        let row = move |offset| AppRow::Wlog(ws, offset);
        let mut rows = self.log.reader().log_rows(row, Offset::FIRST, Consistency::Linearizable);
        let mut logged = LoggedNumbers::default();
        while let Some((offset, bytes)) = rows.try_next().await? {
            let entry = Entry::from_bytes(&bytes).ok();
            let entry = entry
                .filter(|entry| entry.place().is_some_and(|at| (at.ws, at.wlog) == (ws, offset)));
            logged.add(offset, entry.as_ref(), seq);
        }
        Ok(logged)
    }
}

/// What the logs tell about the numbers of a sequence of a workspace.
#[derive(Debug, Default)]
struct LoggedNumbers {
    /// The offset in the log of the workspace of the last event that was added.
    last: u64,
    /// The highest number that an event drew.
    known: u64,
    /// The number of events that do not tell what they drew: they are missing, damaged or marked.
    untold: u64,
}

impl LoggedNumbers {
    /// Adds the next event; `None` if it cannot be read. Missing events before it may have drawn
    /// numbers, too.
    fn add(&mut self, Offset(offset): Offset, entry: Option<&Entry>, seq: SeqId) {
        let drawn = entry.and_then(|entry| drawn_of(entry, seq));
        let is_told = entry.is_some_and(|entry| tells(entry, drawn));
        self.untold += offset - self.last - 1 + u64::from(!is_told);
        self.last = offset;
        self.known = self.known.max(drawn.unwrap_or(0));
    }
}

/// The last number of a sequence that an entry drew.
fn drawn_of(entry: &Entry, seq: SeqId) -> Option<u64> {
    let drawn = entry.drawn().iter().filter(|drawn| SeqId(drawn.seq) == seq);
    drawn.map(|drawn| drawn.last).max()
}

/// Whether an entry tells what it drew of a sequence. A marker without a number of the sequence
/// tells nothing about it.
fn tells(entry: &Entry, drawn: Option<u64>) -> bool {
    drawn.is_some() || matches!(entry, Entry::Event(_))
}

#[cfg(test)]
mod tests;
