//! A conformance suite for stores of elections, as named trials.
//!
//! Each trial proves one promise with nodes of its own, in slots of its own. So many trials run
//! side by side in one keyspace.
//!
//! Rows stay behind, and slots are counted from 1. So run the suite once, in a store that holds
//! nothing else.
//!
//! Some trials put faults between a node and the store: answers that are lost, late, or never come.
//! The duration of leases follows from the store: see [`Suite::timing`].
//!
//! ```no_run
//! # async fn example(store: std::sync::Arc<dyn ielections::TtlStore>) {
//! use ielections::suite::{Suite, trials};
//!
//! let suite = Suite::new(vec![store], clock::Clock::system());
//! for trial in trials() {
//!     let verdict = suite.run(trial).await;
//!     println!("{}: {verdict:?}", trial.name());
//! }
//! # }
//! ```

mod context;
mod failure;
mod faulty_store;
mod shifted_store;
mod takeover;
mod trials;

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use futures::{FutureExt, future::BoxFuture};

use self::{context::TrialContext, failure::TrialResult};
pub use self::{failure::TrialFailure, takeover::Takeover, trials::trials};
use crate::{Timing, TtlStore};

/// The limit of a trial, in leases. A trial that takes longer hangs.
const LIMIT_LEASES: u32 = 15;

/// The extra duration of leases in a store where nodes watch leases: such a store is a service in a
/// network.
const CALLS_TO_A_SERVICE: Duration = Duration::from_secs(4);

/// The number of slots of each trial.
const SLOTS_PER_TRIAL: u32 = 16;

/// A named promise of an election, as a case of the suite.
pub struct Trial {
    name: &'static str,
    run: fn(TrialContext) -> BoxFuture<'static, TrialResult>,
}

impl Trial {
    /// Returns the name, as `module::case`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trial").field(&self.name).finish()
    }
}

/// A suite over one store.
#[derive(Debug)]
pub struct Suite {
    nodes: Vec<Arc<dyn TtlStore>>,
    clock: Clock,
    next_slot: AtomicU32,
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
        Suite { nodes, clock, next_slot: AtomicU32::new(0) }
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
            late_writes: duration / 20,
            clock_skew: duration / 20,
        }
    }

    /// Runs a trial. A trial that hangs or panics has failed.
    ///
    /// # Errors
    /// Fails if a promise does not hold.
    pub async fn run(&self, trial: &Trial) -> Result<(), TrialFailure> {
        let limit = LIMIT_LEASES * self.timing().duration;
        let run = AssertUnwindSafe((trial.run)(self.context(self.timing()))).catch_unwind();
        match self.clock.timeout_at(self.clock.now() + limit, run).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Err(TrialFailure::new("it panicked")),
            Err(_) => Err(TrialFailure::new(format!("it was not over after {limit:?}"))),
        }
    }

    /// Measures once how long a slot stays without a leader, with leases of this timing.
    ///
    /// # Errors
    /// Fails if no node led, or if a promise does not hold.
    pub async fn take_over(
        &self,
        after: Takeover,
        timing: Timing,
    ) -> Result<Duration, TrialFailure> {
        takeover::measure(&self.context(timing), after).await
    }

    fn context(&self, timing: Timing) -> TrialContext {
        let first = self.next_slot.fetch_add(SLOTS_PER_TRIAL, Ordering::Relaxed);
        TrialContext::new(self.nodes.clone(), self.clock.clone(), timing, first)
    }
}
