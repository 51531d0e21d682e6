//! The suite over one store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clock::Clock;
use ielections::{Timing, TtlStore};

use crate::{
    elections::{ElectionsContext, Takeover, faulty_store::SEATS_PER_TRIAL, takeover},
    trial::{Conclusion, Trial, TrialRunner, Verdict},
};

/// The limit of a trial, in leases. A trial that takes longer hangs.
const LIMIT_LEASES: u32 = 15;

/// The number of trials that run at once. They mostly wait.
const SIDE_BY_SIDE: usize = 8;

/// The extra duration of leases in a store where nodes watch leases: such a store is a service in a
/// network.
const CALLS_TO_A_SERVICE: Duration = Duration::from_secs(4);

/// A suite over one store.
#[derive(Debug)]
pub struct Suite {
    nodes: Vec<Arc<dyn TtlStore>>,
    clock: Clock,
    next_seat: AtomicU32,
}

impl Suite {
    /// Makes a suite over one store, from one or more connections to it. Each node takes the next
    /// connection, so the nodes can differ in their connections and clocks. `clock` must advance by
    /// itself.
    ///
    /// # Panics
    /// Panics if `nodes` is empty.
    pub fn new(nodes: Vec<Arc<dyn TtlStore>>, clock: Clock) -> Suite {
        assert!(!nodes.is_empty(), "a suite needs a store");
        Suite { nodes, clock, next_seat: AtomicU32::new(0) }
    }

    /// Returns the timing of the leases in the trials.
    pub fn timing(&self) -> Timing {
        let delay = |node: &Arc<dyn TtlStore>| match node.expiry_is_watched() {
            true => CALLS_TO_A_SERVICE,
            false => node.expiry_delay(),
        };
        let delay = self.nodes.iter().map(delay).max().unwrap_or_default();
        let duration = Duration::from_secs(2) + delay;
        Timing {
            duration,
            renew_every: duration / 4,
            retry_for: duration / 4,
            call_timeout: duration / 10,
            stop_grace: duration / 5,
            late_write: duration / 20,
            clock_skew: duration / 20,
        }
    }

    /// Measures once how long a seat stays without a leader, with leases of this timing.
    ///
    /// # Errors
    /// Fails if no node led, or if a promise does not hold.
    pub async fn take_over(&self, after: Takeover, timing: Timing) -> Verdict<Duration> {
        takeover::measure(&self.context(timing), after).await
    }

    fn context(&self, timing: Timing) -> ElectionsContext {
        let first = self.next_seat.fetch_add(SEATS_PER_TRIAL, Ordering::Relaxed);
        ElectionsContext::new(self.nodes.clone(), self.clock.clone(), timing, first)
    }
}

#[async_trait]
impl TrialRunner for Suite {
    type Context = ElectionsContext;

    fn max_concurrent_trials(&self) -> usize {
        SIDE_BY_SIDE
    }

    async fn run(&self, trial: &Trial<ElectionsContext>) -> Conclusion {
        let timing = self.timing();
        trial.run(self.context(timing), LIMIT_LEASES * timing.duration).await
    }
}
