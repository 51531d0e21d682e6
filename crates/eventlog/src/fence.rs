//! The fence: the port that proves, before each write, that this node still leads.

use std::{fmt, time::Duration};

use crate::Epoch;

/// The fence of the leadership under which a log is written.
pub trait Fence: fmt::Debug + Send + Sync + 'static {
    /// Returns the fencing token. No two leaderships of a partition share an epoch, and a later
    /// leadership has a higher one.
    fn epoch(&self) -> Epoch;

    /// Returns whether a write with this `timeout` may be sent now.
    ///
    /// The log asks before every write. Before the success of a write is reported, the log asks
    /// again with a timeout of 0. `false` may be temporary: a lease that is about to end may be
    /// renewed.
    fn may_send(&self, timeout: Duration) -> bool;

    /// Returns the reason for which no write may ever be sent again under this leadership; `None`
    /// while a write may still be sent.
    fn lost(&self) -> Option<LeadershipLost>;
}

/// The error that this node has lost the leadership.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leadership lost: {0}")]
pub struct LeadershipLost(pub String);

/// The fence of a cluster with a single node. At each start the node needs a higher epoch, of
/// at most 22 bits.
#[derive(Clone, Copy, Debug)]
pub struct SingleNodeFence(pub Epoch);

impl Fence for SingleNodeFence {
    fn epoch(&self) -> Epoch {
        self.0
    }

    fn may_send(&self, _: Duration) -> bool {
        true
    }

    fn lost(&self) -> Option<LeadershipLost> {
        None
    }
}
