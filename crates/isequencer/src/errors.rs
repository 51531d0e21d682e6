//! The errors of a transaction.

use crate::{SeqId, StorageError, WsId, WsKind};

/// Why a command cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No sequences are declared for this kind of workspace.
    #[error("no sequences are declared for workspaces of kind {0}")]
    UnknownKind(WsKind),
    /// The numbers that were unflushed at the start and the drawn numbers have reached the limit.
    /// A sequence counts once for each command that drew from it. End the transaction, and begin
    /// another.
    #[error("the transaction has drawn as many numbers as there was room for")]
    Full,
    /// The numbers of the workspace could not be read.
    #[error("the numbers of workspace {0} cannot be read")]
    Storage(WsId, #[source] StorageError),
}

/// Why there is no next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawError {
    /// The sequence is not declared.
    #[error("no sequence {seq} is declared for workspaces of kind {kind}")]
    UnknownSequence {
        /// The kind of the workspace.
        kind: WsKind,
        /// The sequence.
        seq: SeqId,
    },
    /// All ranges of the sequence are used up.
    #[error("sequence {seq} of workspace {ws} has no number after {last}")]
    Exhausted {
        /// The workspace.
        ws: WsId,
        /// The sequence.
        seq: SeqId,
        /// The last number given.
        last: u64,
    },
}
