//! The settings of a fast series.

use std::num::NonZeroUsize;

use crate::FixError;

/// The settings of a fast series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastSettings {
    /// The number of counters that are reserved at a time. A crash loses at most two ranges of each
    /// counter.
    pub range: u64,
    /// The node reserves the next range as soon as it holds at most this many counters that are not
    /// issued. With a whole range, no draw waits for the storage while fewer numbers are drawn than
    /// a range per round trip. With 0 nothing is reserved ahead, and a crash loses at most one
    /// range.
    pub refill_below: u64,
    /// The number of counters, one for each period and workspace, of which a node holds ranges. The
    /// ranges of the counter that was not used for the longest time are given back.
    pub counters_held: usize,
    /// The highest number of numbers in a block.
    pub max_block: u32,
}

impl Default for FastSettings {
    /// Ranges of 100 counters, reserved a whole range ahead; 10,000 counters held; blocks of 1,000.
    fn default() -> FastSettings {
        FastSettings { range: 100, refill_below: 100, counters_held: 10_000, max_block: 1_000 }
    }
}

impl FastSettings {
    /// Settings with ranges of this size, which are reserved a whole range ahead.
    #[must_use]
    pub fn with_range(range: u64) -> FastSettings {
        FastSettings { range, refill_below: range, ..FastSettings::default() }
    }

    /// Checks the settings. Returns the number of counters that are held.
    pub(super) fn check(&self) -> Result<NonZeroUsize, FixError> {
        if self.range == 0 {
            return Err(FixError::Settings("a range must have at least one counter"));
        }
        if self.max_block == 0 {
            return Err(FixError::Settings("a block must have at least one number"));
        }
        NonZeroUsize::new(self.counters_held)
            .ok_or(FixError::Settings("at least one counter must be held"))
    }
}
