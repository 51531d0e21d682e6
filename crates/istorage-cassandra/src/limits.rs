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
    expiry_is_watched: false,
    late_write: LATE_WRITE,
};

/// A connection that is silent for so long is asked for a sign of life.
pub(crate) const KEEPALIVE: Duration = Duration::from_millis(1_100);

/// A connection is given up if no sign of life comes in this time. Requests avoid a server that hangs long before. A
/// shorter time gives up connections to servers that are only busy, with all requests in them.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a request may wait in a connection until it leaves this node. What waits in a connection that is given up is
/// thrown away, by the kernel too, as the linger time is zero.
///
/// The client asks for one sign of life at a time, and what is sent arrives in order. A request that is sent right after
/// such a question may stay behind when the question arrives. The next question, which is asked after the answer, comes
/// behind the request, and the connection is given up if that question is not answered. So the time counts twice.
const CONNECTION_QUEUE: Duration =
    KEEPALIVE.saturating_add(KEEPALIVE_TIMEOUT).saturating_add(KEEPALIVE_TIMEOUT);

/// How long a server keeps a request waiting before it refuses it: the default of `native_transport_timeout`.
const SERVER_QUEUE: Duration = Duration::from_secs(12);

/// How long a server works on a write: the default of `write_request_timeout`, twice for a conditional write, which is
/// agreed upon first and then committed. A replica drops what reaches it later.
const SERVER_WORK: Duration = Duration::from_secs(4);

/// How long after its sending a write may land: a request waits in a connection that stalls, then in the server.
///
/// This assumes the servers' default timeouts, servers that do not stand still (a stopped process goes on with what it
/// had taken), and servers' clocks that agree. It holds for writes that reached a quorum. A plain write that reached
/// fewer replicas, and was not acknowledged, may become visible later still, by hints and by read repair.
const LATE_WRITE: Duration =
    CONNECTION_QUEUE.saturating_add(SERVER_QUEUE).saturating_add(SERVER_WORK);

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
