//! The port to whoever knows whether this node leads.

use std::{fmt, time::Duration};

use crate::Epoch;

/// The lead under which a log is written.
pub trait Lead: fmt::Debug + Send + Sync + 'static {
    /// Its fencing token: no two leaderships of a partition share one, and it grows.
    fn epoch(&self) -> Epoch;

    /// Whether a write may be sent now that is given up after `timeout`. It is asked before every write, and with no time before the success of
    /// one is told to anybody. `false` may pass: a lease that is about to end may be renewed.
    fn may_send(&self, timeout: Duration) -> bool;

    /// Why nothing may ever be written again under this lead; `None` while something may.
    fn lost(&self) -> Option<LeadLost>;
}

/// This node leads no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead any more: {0}")]
pub struct LeadLost(pub String);

/// The lead of the only node there is. Each time that it starts it needs a higher epoch, of at most 23 bits.
#[derive(Clone, Copy, Debug)]
pub struct Alone(pub Epoch);

impl Lead for Alone {
    fn epoch(&self) -> Epoch {
        self.0
    }

    fn may_send(&self, _: Duration) -> bool {
        true
    }

    fn lost(&self) -> Option<LeadLost> {
        None
    }
}
