//! Marking an event that cannot be read, with the numbers that the event drew.
//!
//! Invariant: a marker never lets a number be given twice. Its numbers come from the copy of the
//! event, or are stored already, or are above all known numbers.

use std::collections::HashSet;

use eventlog::{DrawnNumber, EventNeighbours, Marker, Offset, WsId};
use isequencer::{SeqId, standard};

use crate::PartitionStorage;

/// The reason for which an event is not marked. The log is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// The event can be read, so there is nothing to mark.
    #[error("event {} can be read: there is nothing to mark", .0.0)]
    Readable(Offset),
    /// The copy of the event in the log of the workspace cannot be read. So the caller must give
    /// the numbers that the event drew.
    #[error(
        "the log of the workspace has no copy that can be read: give the last number that the event drew of each sequence"
    )]
    NumbersNeeded,
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
        /// The highest number that is stored, or that an event in front of the marked one drew.
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
    /// The workspace is in another partition. No leader of this partition would read a marker in
    /// its log.
    #[error("workspace {} is not in partition {partition}", .ws.0)]
    OtherPartition {
        /// The given workspace.
        ws: WsId,
        /// The partition of the log that is to be marked.
        partition: u16,
    },
    /// An error of the log.
    #[error(transparent)]
    Log(#[from] eventlog::Error),
    /// An error of the stored numbers.
    #[error(transparent)]
    Numbers(#[from] sysvvm::Error),
}

impl PartitionStorage {
    /// Marks an event of the log that cannot be read, so that the events behind it can be read
    /// again.
    ///
    /// An operator gives the workspace of the event and the offset in the log of this workspace. If
    /// the copy at that offset cannot be read either, the operator also gives the other numbers
    /// that the event drew. For an event in front of the stored offset, the numbers are stored
    /// already and need not be given.
    ///
    /// # Errors
    /// Fails with the reason for which the event is not marked.
    pub async fn mark_corrupted(
        &self,
        plog: Offset,
        ws: WsId,
        wlog: Offset,
        given: Option<Vec<DrawnNumber>>,
    ) -> Result<Marker, MarkError> {
        if !self.log.has_workspace(ws) {
            return Err(MarkError::OtherPartition { ws, partition: self.log.partition() });
        }
        let damaged = self.log.damaged(plog, ws, wlog).await?;
        let damaged = damaged.ok_or(MarkError::Readable(plog))?;
        let drawn = match damaged.drawn() {
            Some(drawn) => drawn.to_vec(),
            None => {
                let partition = self.log.partition();
                let next = self.numbers.next_offset(partition, self.deadline()).await?;
                let from = next.map_or(Offset::FIRST, Offset);
                let around = self.log.drawn_around(ws, from.min(plog), plog).await?;
                if let Some(next) = around.next.filter(|next| *next <= wlog) {
                    return Err(MarkError::NotBefore { wlog, next });
                }
                if plog < from {
                    with_offset(wlog, Vec::new())?
                } else {
                    let given = given.ok_or(MarkError::NumbersNeeded)?;
                    let drawn = with_offset(wlog, given)?;
                    self.check_above_all_known(ws, &drawn, &around).await?;
                    drawn
                }
            }
        };
        Ok(self.log.mark(&damaged, drawn).await?)
    }

    /// Checks that each given number is above all known numbers of its sequence, and belongs to the
    /// sequence. After a lower number, the sequencer could give a number twice.
    ///
    /// The offset in the log of the workspace is not checked here. The event in front of the offset
    /// proves it.
    async fn check_above_all_known(
        &self,
        ws: WsId,
        drawn: &[DrawnNumber],
        around: &EventNeighbours,
    ) -> Result<(), MarkError> {
        let seqs: Vec<u16> = drawn.iter().map(|drawn| drawn.seq).collect();
        let stored = self.numbers.last(ws.0, &seqs, self.deadline()).await?;
        let ranges = standard::sequences();
        for (drawn, stored) in drawn.iter().zip(stored) {
            if drawn.seq == standard::WLOG_OFFSET.0 {
                continue;
            }
            let before = around.before.get(&drawn.seq).copied().unwrap_or(0);
            let known = stored.unwrap_or(0).max(before);
            let sequence = ranges.iter().find(|sequence| sequence.id() == SeqId(drawn.seq));
            let is_one = match sequence {
                // A number belongs to the sequence if it follows the number before it.
                Some(sequence) => {
                    let before = drawn.last.checked_sub(1);
                    before.and_then(|before| sequence.after(before)) == Some(drawn.last)
                }
                None => drawn.last <= i64::MAX as u64,
            };
            if drawn.last <= known || !is_one {
                return Err(MarkError::NotAbove { drawn: *drawn, known });
            }
        }
        Ok(())
    }
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
