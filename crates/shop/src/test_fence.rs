//! The leadership of a node, which a test controls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use eventlog::{Epoch, Fence, LeadershipLost};

/// A fence that a test takes away.
#[derive(Debug)]
pub struct TestFence {
    epoch: Epoch,
    is_lost: AtomicBool,
}

impl TestFence {
    /// A leadership of this epoch.
    #[must_use]
    pub fn of(epoch: u64) -> Arc<TestFence> {
        Arc::new(TestFence { epoch: Epoch(epoch), is_lost: AtomicBool::new(false) })
    }

    /// Ends the leadership.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }
}

impl Fence for TestFence {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn may_send(&self, _: Duration) -> bool {
        self.lost().is_none()
    }

    fn lost(&self) -> Option<LeadershipLost> {
        let is_lost = self.is_lost.load(Ordering::SeqCst);
        is_lost.then(|| LeadershipLost("a test took it away".to_owned()))
    }
}
