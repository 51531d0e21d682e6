//! What a keyspace on Cassandra can do, and how much goes into one request.
//!
//! By the servers' defaults a request has at most 16 MiB, and so has what it writes into one partition. Up to a few bytes
//! below that everything was found to work, but a conditional write of 15 MiB takes three servers that share two cores a
//! second, near the 1.8 s after which they give up. So what is promised is about half.

use std::time::Duration;

use istorage::{BatchLimits, Capabilities, RowLimits};

/// What a keyspace on Cassandra can do.
pub const CAPABILITIES: Capabilities = Capabilities {
    row: RowLimits { pkey: 65_535, ccols: 65_535, value: 4 << 20 },
    // A swap of the largest value for another one fits, with the longest keys.
    conditional: BatchLimits { rows: 2_000, bytes: 9 << 20 },
    atomic: None,
    ordered: Some(ORDERED),
    expiry_resolution: Duration::from_secs(1),
    // 10 s until a connection that is cut off is given up with what waits in it, 12 s for which a server keeps a request
    // waiting, and some for its own timeouts of about 2 s.
    late_write: Duration::from_secs(30),
};

/// How much of one partition an ordered write puts into one request.
pub(crate) const ORDERED: BatchLimits = BatchLimits { rows: 2_000, bytes: 8 << 20 };

/// How much of one partition a plain write puts into one request.
pub(crate) const PLAIN: BatchLimits = BatchLimits { rows: 100, bytes: 1 << 20 };

/// How many requests of one call are under way at once.
pub(crate) const SIDE_BY_SIDE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_of_the_largest_values_with_the_longest_keys_fits() {
        let RowLimits { pkey, ccols, value } = CAPABILITIES.row;
        assert!(pkey + ccols + 2 * value <= CAPABILITIES.conditional.bytes);
        assert!(pkey + ccols + value <= ORDERED.bytes);
    }
}
