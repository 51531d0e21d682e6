//! A command that has joined a transaction, from its first number drawn to its event.

use crate::{
    DrawError, JoinError, NumberKey, Offset, SeqId, WsId, WsKind,
    transaction::{JoinState, Transaction},
};

impl<'s> Transaction<'s> {
    /// Lets a command on a workspace join. If the numbers of the workspace are not in memory, all
    /// of them are read.
    ///
    /// # Errors
    /// Fails if the command cannot join, with the reason. The transaction can go on without the
    /// command.
    ///
    /// # Cancel safety
    /// Safe to drop: a dropped call has drawn nothing.
    pub async fn join(
        &mut self,
        kind: WsKind,
        ws: WsId,
    ) -> Result<JoinedCommand<'_, 's>, JoinError> {
        let joined = self.join_workspace(kind, ws).await?;
        Ok(JoinedCommand { transaction: self, joined, is_kept: false })
    }
}

/// A command that draws numbers.
///
/// A dropped command leaves the transaction, and gives its numbers back. Drop a command that failed
/// before any part of its event was written.
///
/// A command must be [kept](JoinedCommand::keep) before its event is written. A kept command cannot
/// leave.
///
/// While a command is open, no other command can join:
///
/// ```compile_fail,E0499
/// # async fn example(transaction: &mut isequencer::Transaction<'_>) {
/// let (kind, ws) = (isequencer::WsKind(1), isequencer::WsId(1));
/// let first = transaction.join(kind, ws).await;
/// let second = transaction.join(kind, ws).await; // the first must have been kept, or have left
/// drop(first);
/// # }
/// ```
#[must_use = "a command that is dropped gives its numbers back"]
#[derive(Debug)]
pub struct JoinedCommand<'t, 's> {
    transaction: &'t mut Transaction<'s>,
    joined: JoinState,
    is_kept: bool,
}

impl JoinedCommand<'_, '_> {
    /// Draws the next number of a sequence of the workspace. The number belongs to the command once
    /// the command is [kept](JoinedCommand::keep).
    ///
    /// # Errors
    /// Fails if the sequence is not declared, or if its ranges are used up.
    pub fn next(&mut self, seq: SeqId) -> Result<u64, DrawError> {
        self.transaction.draw(self.joined, seq)
    }

    /// Returns the last number of each sequence that the command drew from. The event must contain
    /// these numbers, so that they can be found in the log.
    pub fn drawn(&self) -> impl Iterator<Item = (NumberKey, u64)> {
        self.transaction.drawn(self.joined)
    }

    /// Returns the offset of the event in the log, if the command is [kept](JoinedCommand::keep).
    pub fn offset(&self) -> Offset {
        self.transaction.next_offset()
    }

    /// Keeps the command: its event is going to be written at the returned offset of the log.
    #[must_use = "the event is to be written at this offset and no other"]
    pub fn keep(mut self) -> Offset {
        self.is_kept = true;
        self.transaction.keep()
    }
}

impl Drop for JoinedCommand<'_, '_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.transaction.leave(self.joined);
        }
    }
}
