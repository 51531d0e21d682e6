//! The memory that requests share, in bytes, with one limit for all bodies and one for all answers.
//!
//! A body takes its permit as its bytes arrive. The answer of its command takes over the permit. An
//! answer that is read from the storage takes its permit before the read, and document numbers
//! before they are drawn. All are given back when the connection has written the answer. If only
//! the memory for answers had [shares](super::ShareRules), a principal that receives the results of
//! its commands slowly would hold all memory for bodies, and nobody else could write.

use std::sync::Arc;

use clock::Clock;

use super::{
    limit::Limit,
    rules::{LimitRules, ShareRules},
};

/// The memory that an answer takes before it is read: for a page of the storage, and for the JSON
/// of that page. Only records and events of more than about 1 MiB need more.
pub const READ_BYTES: usize = 2 << 20;

/// The memory for all answers.
#[derive(Clone, Debug)]
pub struct AnswerMemory {
    /// For answers that need at most [`READ_BYTES`].
    pub small: Arc<Limit>,
    /// For all others. Small answers do not wait behind them.
    pub large: Arc<Limit>,
    /// The most bytes of one answer.
    pub most: usize,
}

impl AnswerMemory {
    /// Memory of `bytes`, a quarter of them for large answers. A principal can always read two
    /// answers, so it can read documents while it receives a log. At most `waiting` requests of a
    /// principal wait for its share of each part.
    pub fn new(bytes: usize, waiting: usize, clock: &Clock) -> AnswerMemory {
        let large = bytes / 4;
        let share = Some(ShareRules { least: 2 * READ_BYTES, waiting });
        let limit =
            |of, bytes| Limit::new(LimitRules { share, ..LimitRules::memory(of, bytes) }, clock);
        AnswerMemory {
            small: limit("answers", bytes - large),
            large: limit("large answers", large),
            most: bytes,
        }
    }

    /// The memory for an answer of this many bytes.
    pub fn of(&self, bytes: usize) -> &Arc<Limit> {
        if bytes > READ_BYTES { &self.large } else { &self.small }
    }
}

#[cfg(test)]
mod tests;
