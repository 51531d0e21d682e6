//! Marking an event that cannot be read, with the numbers that it drew.

use std::collections::HashSet;

use eventlog::{Around, Corrupted, Drawn, Offset, WsId};
use isequencer::{SeqId, standard};

use crate::PartitionStorage;

/// Why an event is not marked. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum NotMarked {
    /// There is nothing to mark.
    #[error("event {} can be read", .0.0)]
    Readable(Offset),
    /// Say which numbers it drew: the log of the workspace does not.
    #[error(
        "the log of the workspace has no copy that can be read: give the last number that the event drew of each sequence"
    )]
    NumbersNeeded,
    /// It says two things.
    #[error("the event is said to be at offset {} of the log of its workspace, and to have drawn {} for that", .wlog.0, .given.0)]
    OtherOffset {
        /// Where it is said to be.
        wlog: Offset,
        /// What it is said to have drawn.
        given: Offset,
    },
    /// Only the last number of a sequence counts.
    #[error(
        "sequence {0} is given twice: give the last number that the event drew of each sequence, once"
    )]
    Twice(u16),
    /// It cannot have drawn that.
    #[error("number {} of sequence {} is not above the last one that is known, {known}, or is no number of that sequence: give the last one that the event drew, or a higher one", .drawn.last, .drawn.seq)]
    NotAbove {
        /// What was given.
        drawn: Drawn,
        /// What is stored, or was drawn by an event in front of it.
        known: u64,
    },
    /// It cannot be there.
    #[error("the event is said to be at offset {} of the log of its workspace, and the next one that can be read is at {}", .wlog.0, .next.0)]
    NotBefore {
        /// Where it is said to be.
        wlog: Offset,
        /// Where the next one is.
        next: Offset,
    },
    /// A marker in the log of that workspace would be read by no leader of this partition.
    #[error("workspace {} is not in partition {partition}", .ws.0)]
    OtherPartition {
        /// Where the event is said to be.
        ws: WsId,
        /// The partition whose log is to be marked.
        partition: u16,
    },
    /// The log.
    #[error(transparent)]
    Log(#[from] eventlog::Error),
    /// The numbers.
    #[error(transparent)]
    Numbers(#[from] sysvvm::Error),
}

impl PartitionStorage {
    /// Marks an event of the log that cannot be read, so that the log can be read on. An operator says where it is in the log of which
    /// workspace, and what it drew besides that offset, if the copy there cannot be read either. The numbers of an event in front of the stored offset
    /// are stored: it needs none.
    ///
    /// # Errors
    /// Why not.
    pub async fn mark_corrupted(
        &self,
        plog: Offset,
        ws: WsId,
        wlog: Offset,
        given: Option<Vec<Drawn>>,
    ) -> Result<Corrupted, NotMarked> {
        if !self.log.has_workspace(ws) {
            return Err(NotMarked::OtherPartition { ws, partition: self.log.partition() });
        }
        let damaged = self.log.damaged(plog, ws, wlog).await?;
        let damaged = damaged.ok_or(NotMarked::Readable(plog))?;
        let drawn = match damaged.drawn() {
            Some(drawn) => drawn.to_vec(),
            None => {
                let partition = self.log.partition();
                let next = self.numbers.next_offset(partition, self.deadline()).await?;
                let from = next.map_or(Offset::FIRST, Offset);
                let around = self.log.drawn_around(ws, from.min(plog), plog).await?;
                if let Some(next) = around.next.filter(|next| *next <= wlog) {
                    return Err(NotMarked::NotBefore { wlog, next });
                }
                if plog < from {
                    with_offset(wlog, Vec::new())?
                } else {
                    let given = given.ok_or(NotMarked::NumbersNeeded)?;
                    let drawn = with_offset(wlog, given)?;
                    self.check_above_all_known(ws, &drawn, &around).await?;
                    drawn
                }
            }
        };
        Ok(self.log.mark(&damaged, drawn).await?)
    }

    /// A number that was given before would be given again. Its offset in the log of the workspace is known by the event in front of it.
    async fn check_above_all_known(
        &self,
        ws: WsId,
        drawn: &[Drawn],
        around: &Around,
    ) -> Result<(), NotMarked> {
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
                // It is what follows the one before it.
                Some(sequence) => {
                    let before = drawn.last.checked_sub(1);
                    before.and_then(|before| sequence.after(before)) == Some(drawn.last)
                }
                None => drawn.last <= i64::MAX as u64,
            };
            if drawn.last <= known || !is_one {
                return Err(NotMarked::NotAbove { drawn: *drawn, known });
            }
        }
        Ok(())
    }
}

/// Every event draws its offset in the log of its workspace.
fn with_offset(wlog: Offset, mut given: Vec<Drawn>) -> Result<Vec<Drawn>, NotMarked> {
    let mut seqs = HashSet::new();
    if let Some(drawn) = given.iter().find(|drawn| !seqs.insert(drawn.seq)) {
        return Err(NotMarked::Twice(drawn.seq));
    }
    let seq = standard::WLOG_OFFSET.0;
    match given.iter().find(|drawn| drawn.seq == seq) {
        None => given.insert(0, Drawn { seq, last: wlog.0 }),
        Some(drawn) if drawn.last == wlog.0 => {}
        Some(drawn) => return Err(NotMarked::OtherOffset { wlog, given: Offset(drawn.last) }),
    }
    Ok(given)
}
