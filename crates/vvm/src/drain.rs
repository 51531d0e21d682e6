//! The drain of a node: it gives its partitions to other nodes, and goes on answering requests.

use std::time::Duration;

use clock::{Clock, Instant};
use tokio::sync::watch;

/// The time from the beginning of a drain to the first partition that is given away. Meanwhile the
/// other nodes learn of the drain, and load balancers learn that the node is not ready.
pub(crate) const ANNOUNCED_FOR: Duration = Duration::from_millis(1_200);

/// Whether a node drains, and how far it is.
#[derive(Debug)]
pub(crate) struct Drain {
    stage: watch::Sender<DrainStage>,
}

/// The stage of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrainStage {
    /// The beginning of the drain; `None` while the node does not drain.
    pub(crate) begun: Option<Instant>,
    /// Whether the node stops afterwards. Then partitions without a successor are not released:
    /// they are free when the lease is released.
    pub(crate) is_final: bool,
    /// Whether the rest is given away at once.
    pub(crate) is_hurried: bool,
    /// Whether the node was asked to step down. It drains, and then stops.
    pub(crate) steps_down: bool,
    /// Whether the node owns no partition any more, or no other node can own the rest.
    pub(crate) is_done: bool,
}

impl Drain {
    pub(crate) fn new() -> Drain {
        Drain { stage: watch::Sender::new(DrainStage::default()) }
    }

    pub(crate) fn stage(&self) -> DrainStage {
        *self.stage.borrow()
    }

    /// The stage, and each later one.
    pub(crate) fn stages(&self) -> watch::Receiver<DrainStage> {
        self.stage.subscribe()
    }

    /// Begins a drain. Afterwards the node goes on, forwards requests and owns nothing.
    pub(crate) fn begin(&self, now: Instant) {
        self.change(|stage| {
            stage.begun.get_or_insert(now);
        });
    }

    /// Ends a drain. A node that stops or steps down goes on draining.
    pub(crate) fn cancel(&self) {
        self.change(|stage| {
            if !stage.is_final && !stage.steps_down {
                *stage = DrainStage::default();
            }
        });
    }

    /// Asks the node to drain, and then to end its leadership.
    pub(crate) fn step_down(&self) {
        self.change(|stage| stage.steps_down = true);
    }

    /// Waits until the node was asked to step down.
    pub(crate) async fn step_down_requested(&self) {
        // The sender lives as long as this call.
        let _ = self.stages().wait_for(|stage| stage.steps_down).await;
    }

    pub(crate) fn note_done(&self, is_done: bool) {
        self.change(|stage| stage.is_done = stage.begun.is_some() && is_done);
    }

    /// Drains before the node stops, for at most `within`. The second half of the time is hurried.
    pub(crate) async fn run(&self, clock: &Clock, within: Duration) {
        let start = clock.now();
        self.change(|stage| {
            stage.begun.get_or_insert(start);
            (stage.is_final, stage.is_done) = (true, false);
        });
        let mut stages = self.stages();
        for (until, is_hurried) in [(start + within / 2, false), (start + within, true)] {
            self.change(|stage| stage.is_hurried = is_hurried);
            let done = stages.wait_for(|stage| stage.is_done);
            if clock.timeout_at(until, done).await.is_ok() {
                return;
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut DrainStage)) {
        self.stage.send_if_modified(|stage| {
            let before = *stage;
            change(stage);
            *stage != before
        });
    }
}
