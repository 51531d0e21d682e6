//! The settings of a fast series.

/// The settings of a fast series, which reserves ranges of counters in storage and draws from them
/// in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastSettings {
    /// The counters that one write reserves.
    pub range: u64,
    /// The next range is reserved when fewer counters than this are left.
    pub refill_below: u64,
    /// The counters that a node holds ranges of.
    pub counters_held: usize,
    /// The most numbers that one call draws.
    pub max_block: u32,
}

impl Default for FastSettings {
    fn default() -> FastSettings {
        FastSettings { range: 100, refill_below: 25, counters_held: 10_000, max_block: 1_000 }
    }
}
