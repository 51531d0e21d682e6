//! What all followers of a node share.

use std::sync::Arc;

use clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;

/// The bytes of events after which a piece of an answer ends. More would only wait in memory.
pub(super) const PIECE_BYTES: usize = 8 << 10;

/// What all followers of a node share.
#[derive(Debug)]
pub(crate) struct FollowContext {
    pub(crate) clock: Clock,
    pub(crate) limits: Arc<Limits>,
    /// Cancelled when the node stops.
    pub(crate) stop: CancellationToken,
}
