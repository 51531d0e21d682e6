//! Elections over a store, as named trials that whoever brings a store can run.
//!
//! Each trial proves one promise with nodes of its own, in slots of its own, so that many run side by side in one keyspace. Rows stay behind,
//! and slots are counted from 1: give it a store that holds nothing else, and once. Some put
//! faults between a node and the store: answers that are lost, late, or never come. Lengths of leases follow from
//! the store: see [`Suite::timing`].
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
mod shifted;
mod takeover;
mod trials;
mod unruly;

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

use self::{context::Context, failure::Verdict};
pub use self::{failure::Failure, takeover::Takeover, trials::trials};
use crate::{Timing, TtlStore};

/// A trial that is not over after so many leases hangs.
const LIMIT_LEASES: u32 = 15;

/// How much longer leases are where nodes watch leases: such a store is a service in a network.
const CALLS_TO_A_SERVICE: Duration = Duration::from_secs(4);

/// How many slots a trial has for itself.
const SLOTS_PER_TRIAL: u32 = 16;

/// One promise of an election, by name.
pub struct Trial {
    name: &'static str,
    run: fn(Context) -> BoxFuture<'static, Verdict>,
}

impl Trial {
    /// Its name, as `module::case`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trial").field(&self.name).finish()
    }
}

/// A store to prove.
#[derive(Debug)]
pub struct Suite {
    nodes: Vec<Arc<dyn TtlStore>>,
    clock: Clock,
    next_slot: AtomicU32,
}

impl Suite {
    /// Over ways to one store, at least one: each node takes the next of them, so that they can differ in their
    /// connections and clocks. `clock` must go on by itself.
    ///
    /// # Panics
    /// If there is no store.
    pub fn new(nodes: Vec<Arc<dyn TtlStore>>, clock: Clock) -> Suite {
        assert!(!nodes.is_empty(), "a suite needs a store");
        Suite { nodes, clock, next_slot: AtomicU32::new(0) }
    }

    /// The leases that the trials take.
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

    /// Runs a trial. One that hangs or panics has failed.
    ///
    /// # Errors
    /// What it found that is not as promised.
    pub async fn run(&self, trial: &Trial) -> Result<(), Failure> {
        let limit = LIMIT_LEASES * self.timing().duration;
        let run = AssertUnwindSafe((trial.run)(self.context(self.timing()))).catch_unwind();
        match self.clock.timeout_at(self.clock.now() + limit, run).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Err(Failure::new("it panicked")),
            Err(_) => Err(Failure::new(format!("it was not over after {limit:?}"))),
        }
    }

    /// Measures how long a slot stays without a leader, once, with leases of this timing.
    ///
    /// # Errors
    /// If nobody led, or it was not as promised.
    pub async fn take_over(&self, after: Takeover, timing: Timing) -> Result<Duration, Failure> {
        takeover::measure(&self.context(timing), after).await
    }

    fn context(&self, timing: Timing) -> Context {
        let first = self.next_slot.fetch_add(SLOTS_PER_TRIAL, Ordering::Relaxed);
        Context::new(self.nodes.clone(), self.clock.clone(), timing, first)
    }
}
