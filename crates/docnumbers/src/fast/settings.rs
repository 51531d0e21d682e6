//! The settings of a fast series.

use std::num::NonZeroUsize;

use crate::FixError;

/// The most memory of a counter that a node holds and of one that waits to be given back. Each may
/// have two ranges, the ledger rows of two others, and a reservation without an answer.
const COUNTER_BYTES: usize = 3 << 10;

/// The settings of a fast series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastSettings {
    /// The number of counters that are reserved at a time, up to 1,000,000,000. If draws wait for
    /// more numbers, more are reserved, up to `max_block`. A crash loses the ranges that the node
    /// holds: usually at most two of each counter.
    pub range: u64,
    /// The node reserves the next range as soon as it holds fewer counters than this number. With a
    /// whole range, no draw waits for the storage while fewer numbers are drawn than a range per
    /// round trip. With 0 no range is reserved ahead, and a crash usually loses at most one.
    pub refill_below: u64,
    /// How many counters a node holds ranges of, up to 10,000,000. Each period and workspace has
    /// its own counter. Beyond this limit, the node gives back the ranges of the counter that was
    /// unused for the longest time.
    pub counters_held: usize,
    /// The size of the largest block, up to [`MOST_BLOCK`](FastSettings::MOST_BLOCK) numbers.
    pub max_block: u32,
}

impl Default for FastSettings {
    /// Ranges of 100 counters, reserved a whole range ahead; 10,000 counters held; blocks of 1,000.
    fn default() -> FastSettings {
        FastSettings { range: 100, refill_below: 100, counters_held: 10_000, max_block: 1_000 }
    }
}

impl FastSettings {
    /// The most numbers of a block.
    pub const MOST_BLOCK: u32 = 100_000;

    /// Settings with ranges of this size, which are reserved a whole range ahead.
    #[must_use]
    pub fn with_range(range: u64) -> FastSettings {
        FastSettings { range, refill_below: range, ..FastSettings::default() }
    }

    /// The most memory that the counters of a series take on a node, in bytes, if the name of the
    /// owner has at most 100 bytes. As many counters as the node holds may wait to be given back.
    #[must_use]
    pub fn most_memory(&self) -> usize {
        self.counters_held.saturating_mul(COUNTER_BYTES)
    }

    /// Checks that a series can have these settings. [`FastSeries::open`](crate::FastSeries::open)
    /// checks them, too.
    ///
    /// # Errors
    /// The first setting that is out of its bounds.
    pub fn check(&self) -> Result<(), FixError> {
        self.counters().map(drop)
    }

    /// Checks the settings. Returns the number of counters that are held.
    pub(super) fn counters(&self) -> Result<NonZeroUsize, FixError> {
        if !(1..=1_000_000_000).contains(&self.range) {
            return Err(FixError::Settings("a range must have 1 to 1,000,000,000 counters"));
        }
        if !(1..=FastSettings::MOST_BLOCK).contains(&self.max_block) {
            return Err(FixError::Settings("a block must have 1 to 100,000 numbers"));
        }
        NonZeroUsize::new(self.counters_held)
            .filter(|held| held.get() <= 10_000_000)
            .ok_or(FixError::Settings("a node must hold 1 to 10,000,000 counters"))
    }
}
