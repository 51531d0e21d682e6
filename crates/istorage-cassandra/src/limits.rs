//! The capabilities of a keyspace on Cassandra, and the limits of one request.
//!
//! With the servers' default settings a request has at most 16 MiB, and so has the part of a
//! request that is written into one storage partition. Everything worked up to a few bytes below
//! that limit. But a conditional write of 15 MiB takes one second on three servers that share two
//! cores, and the servers give up after 1.8 s. So the promised limit is about half of 16 MiB.

use std::time::Duration;

use istorage::{BatchLimits, Capabilities, RowLimits};

/// The capabilities of a keyspace on Cassandra.
pub const CAPABILITIES: Capabilities = Capabilities {
    row: RowLimits { pkey: 65_535, ccols: 65_535, value: 4 << 20 },
    // A swap of two values of the largest size fits, with the longest keys.
    conditional: BatchLimits { rows: 2_000, bytes: 9 << 20 },
    atomic: None,
    ordered: Some(ORDERED),
    expiry_resolution: Duration::from_secs(1),
    expiry_is_watched: false,
    late_write: LATE_WRITE,
};

/// When the client asks a silent connection for a sign of life.
pub(crate) const KEEPALIVE: Duration = Duration::from_millis(1_100);

/// When the client gives up a connection that sends no sign of life. Long before this time,
/// requests avoid a server that hangs. With a shorter time, the client would give up connections to
/// servers that are only busy, with all requests in these connections.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a request may wait in a connection until it leaves this node. If the client gives up a
/// connection, all waiting requests are thrown away. The kernel throws them away too, because the
/// linger time is zero.
///
/// The client asks for one sign of life at a time, and bytes arrive in the order of their sending.
/// A request that is sent right after such a question may be stuck when the question arrives. The
/// client asks the next question after the answer to the first, so the next question comes after
/// the request. If the next question is not answered, the client gives up the connection. So the
/// timeout counts twice.
const CONNECTION_QUEUE: Duration =
    KEEPALIVE.saturating_add(KEEPALIVE_TIMEOUT).saturating_add(KEEPALIVE_TIMEOUT);

/// When a server refuses a request that still waits: the default of `native_transport_timeout`.
pub(crate) const SERVER_QUEUE: Duration = Duration::from_secs(12);

/// The time that a server works on a write: the default of `write_request_timeout`. The time counts
/// twice for a conditional write, because the servers first agree on the write and then commit it.
/// A replica drops a write that arrives later.
pub(crate) const SERVER_WORK: Duration = Duration::from_secs(4);

/// The longest time between the sending and the landing of a write. The request waits in a
/// connection that stalls, then in the server.
///
/// The bound assumes the servers' default timeouts, and server clocks that agree. It also assumes
/// that no server stands still, because a stopped process later goes on with the requests that it
/// had taken. It holds for writes that reached a quorum. A plain write that reached fewer replicas,
/// and was not acknowledged, may become visible even later, by hints and by read repair.
pub(crate) const LATE_WRITE: Duration =
    CONNECTION_QUEUE.saturating_add(SERVER_QUEUE).saturating_add(SERVER_WORK);

/// The part of one storage partition that an ordered write puts into one request.
pub(crate) const ORDERED: BatchLimits = BatchLimits { rows: 2_000, bytes: 8 << 20 };

/// The part of one storage partition that a plain write puts into one request.
pub(crate) const PLAIN: BatchLimits = BatchLimits { rows: 100, bytes: 1 << 20 };

/// The number of requests of one call that are under way at once.
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
