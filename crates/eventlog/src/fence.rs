//! The fence: the port that proves, before each write, that this node still leads.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use clock::Clock;

use crate::{Epoch, settings::MIN_PAUSE};

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

    /// Returns why no write may ever be sent again under this leadership; `None` while a write may
    /// still be sent.
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

/// The leadership under which a log is written, and its end.
///
/// A leadership ends in one of two ways: the [`Fence`] says so, or the log has an event of a later
/// leader.
#[derive(Debug)]
pub struct LogFence {
    fence: Arc<dyn Fence>,
    clock: Clock,
    timeout: Duration,
    later_leader: OnceLock<Epoch>,
}

impl LogFence {
    /// Makes the fence of a log. `timeout` is the limit of each call to the storage.
    pub(crate) fn new(fence: Arc<dyn Fence>, clock: Clock, timeout: Duration) -> LogFence {
        LogFence { fence, clock, timeout, later_leader: OnceLock::new() }
    }

    /// Returns the epoch of the leadership.
    pub fn epoch(&self) -> Epoch {
        self.fence.epoch()
    }

    /// Returns whether the success of a write may be reported.
    pub fn may_answer(&self) -> bool {
        self.later_leader.get().is_none() && self.fence.may_send(Duration::ZERO)
    }

    /// Waits until the fence permits a write that is given up after the
    /// [timeout](crate::LogSettings::timeout) of a call. Every write under the leadership waits
    /// here first, including those of other crates.
    ///
    /// # Errors
    /// Fails if no write may ever be sent again.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn wait_to_send(&self) -> Result<(), LeadershipLost> {
        while self.later_leader.get().is_some() || !self.fence.may_send(self.timeout) {
            match self.lost() {
                Some(lost) => return Err(lost),
                // The lease is renewed soon, or the leadership ends.
                None => self.clock.sleep(MIN_PAUSE).await,
            }
        }
        Ok(())
    }

    /// Returns why no write will ever be sent here again; `None` while a write may still be sent.
    pub fn lost(&self) -> Option<LeadershipLost> {
        self.later_leader.get().map(|by| seen_later(*by)).or_else(|| self.fence.lost())
    }

    /// Records that an event of a later leader was seen. This node does not lead, even if its lease
    /// says that it does.
    pub(crate) fn note_later_leader(&self, by: Epoch) -> LeadershipLost {
        seen_later(*self.later_leader.get_or_init(|| by))
    }

    /// Returns the epoch of the later leader whose event was seen in the log.
    pub fn later_leader(&self) -> Option<Epoch> {
        self.later_leader.get().copied()
    }
}

fn seen_later(by: Epoch) -> LeadershipLost {
    LeadershipLost(format!("the log has an event of the later epoch {}", by.0))
}
