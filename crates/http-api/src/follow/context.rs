//! What all followers of a node share.

use clock::Clock;
use http_server::limits::MemoryPool;
use tokio_util::sync::CancellationToken;

use crate::read::LogReads;

/// The bytes of events after which a piece of an answer ends. More would only wait in memory.
pub(super) const PIECE_BYTES: usize = 8 << 10;

/// What all followers of a node share.
#[derive(Debug)]
pub(crate) struct FollowContext {
    pub(crate) clock: Clock,
    pub(crate) reads: LogReads,
    /// The memory of events that are too large to be copied. An event has its share until the last
    /// client has it.
    pub(crate) large_events: MemoryPool,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
}
