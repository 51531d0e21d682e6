//! Marking an event that cannot be read, with the numbers that it drew.

use eventlog::{Corrupted, Drawn, Offset, WsId};
use isequencer::standard;

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
    /// It cannot have drawn that: all that was drawn before it is stored.
    #[error("number {} of sequence {} is not above the last one that is stored, {stored}, or is no number of a sequence: give the last one that the event drew, or a higher one", .drawn.last, .drawn.seq)]
    NotAbove {
        /// What was given.
        drawn: Drawn,
        /// What is stored.
        stored: u64,
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
        let damaged = self.log.damaged(plog, ws, wlog).await?;
        let damaged = damaged.ok_or(NotMarked::Readable(plog))?;
        let drawn = match damaged.drawn() {
            Some(drawn) => drawn.to_vec(),
            None => {
                let partition = self.log.partition();
                let next = self.numbers.next_offset(partition, self.deadline()).await?;
                if next.is_some_and(|next| plog.0 < next) {
                    with_offset(wlog, Vec::new())?
                } else {
                    let drawn = with_offset(wlog, given.ok_or(NotMarked::NumbersNeeded)?)?;
                    self.check_above_all_stored(ws, &drawn).await?;
                    drawn
                }
            }
        };
        Ok(self.log.mark(&damaged, drawn).await?)
    }

    /// A number that was given before would be given again.
    async fn check_above_all_stored(&self, ws: WsId, given: &[Drawn]) -> Result<(), NotMarked> {
        let seqs: Vec<u16> = given.iter().map(|drawn| drawn.seq).collect();
        let stored = self.numbers.last(ws.0, &seqs, self.deadline()).await?;
        for (drawn, stored) in given.iter().zip(stored) {
            let stored = stored.unwrap_or(0);
            if drawn.last <= stored || drawn.last > i64::MAX as u64 {
                return Err(NotMarked::NotAbove { drawn: *drawn, stored });
            }
        }
        Ok(())
    }
}

/// Every event draws its offset in the log of its workspace.
fn with_offset(wlog: Offset, mut given: Vec<Drawn>) -> Result<Vec<Drawn>, NotMarked> {
    let seq = standard::WLOG_OFFSET.0;
    match given.iter().find(|drawn| drawn.seq == seq) {
        None => given.insert(0, Drawn { seq, last: wlog.0 }),
        Some(drawn) if drawn.last == wlog.0 => {}
        Some(drawn) => return Err(NotMarked::OtherOffset { wlog, given: Offset(drawn.last) }),
    }
    Ok(given)
}
