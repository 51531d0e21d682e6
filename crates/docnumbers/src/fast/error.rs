//! The errors of drawing a number.

use std::sync::Arc;

use crate::RenderError;

/// The reason why no number was drawn. Numbers that were not returned are not lost: they are drawn
/// later, or are in the ledger.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DocNumberError {
    /// The number has no text: its counter or its workspace has too many digits. Change the
    /// definition.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A block must have at least one number, and no more than the settings allow. Ask for fewer.
    #[error("a block has 1 to {max} numbers, not {count}: draw several blocks")]
    Block {
        /// How many numbers the caller asked for.
        count: u32,
        /// The size of the largest block.
        max: u32,
    },
    /// The storage failed. Try again.
    #[error("the storage of document numbers failed")]
    Storage(#[source] Arc<istorage::Error>),
    /// No range was reserved before the deadline. Try again.
    #[error("no range of document numbers was reserved in time")]
    TimedOut,
    /// The series or its storage was closed, or the runtime of the series ended.
    #[error("the series was closed: ask another node, or open the series again")]
    Closed,
}
