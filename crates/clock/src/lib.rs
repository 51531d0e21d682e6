//! The only source of time, waiting and randomness.
//!
//! All code that measures, waits or draws a random number takes a [`Clock`]. A [`Clock::system`]
//! reads the clocks of the machine. A [`ManualClock`] stands still until a test moves it. So a test
//! passes hours of leases in milliseconds, and a seed replays exactly.
//!
//! The types keep two kinds of time apart. [`Instant`] is monotonic. On Linux and Android an
//! [`Instant`] **continues while the machine sleeps** (`CLOCK_BOOTTIME`): a lease that ended during
//! a suspend has ended when the machine wakes. On other systems the operating system decides
//! whether its monotonic clock (`CLOCK_MONOTONIC`) counts during a suspend. [`WallTime`] is the
//! time of the calendar. The calendar may jump, and differs between machines. Use [`WallTime`] for
//! times that other machines read.
//!
//! ```
//! use clock::ManualClock;
//! use std::time::Duration;
//!
//! let manual = ManualClock::new(7);
//! let clock = manual.clock();
//! let start = clock.now();
//! manual.advance(Duration::from_secs(20));
//! assert_eq!(clock.now() - start, Duration::from_secs(20));
//! ```

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod manual;
mod system;
mod types;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use manual::ManualClock;
pub use types::{Instant, WallTime};

/// Reads time, waits, and draws random numbers. A clone is cheap.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    /// The difference between the calendar of this node and that of the source, in nanoseconds.
    wall_offset: i64,
}

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<manual::ManualState>),
}

/// The error of a timeout: the deadline passed before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl std::error::Error for Elapsed {}

impl Clock {
    /// A clock that reads the machine's clocks and its source of randomness.
    pub fn system() -> Clock {
        Clock { source: Source::System, wall_offset: 0 }
    }

    /// The same clock with a calendar that is `ahead_ms` ahead (or behind, if negative). Tests use
    /// such a clock as a second node with a wrong calendar.
    #[must_use]
    pub fn with_wall_offset(&self, ahead_ms: i64) -> Clock {
        let offset = ahead_ms.saturating_mul(1_000_000);
        Clock { source: self.source.clone(), wall_offset: self.wall_offset.saturating_add(offset) }
    }

    /// The monotonic time. The monotonic time never goes back. On Linux and Android it counts while
    /// the machine sleeps.
    pub fn now(&self) -> Instant {
        match &self.source {
            Source::System => system::now(),
            Source::Manual(state) => state.now(),
        }
    }

    /// The time of the calendar. The calendar may jump in both directions.
    pub fn wall(&self) -> WallTime {
        let wall = match &self.source {
            Source::System => system::wall(),
            Source::Manual(state) => state.wall(),
        };
        wall.shifted(self.wall_offset)
    }

    /// A random number, from the operating system or from the seed of a manual clock.
    ///
    /// # Panics
    /// If the operating system does not provide random numbers. No identity would be safe without
    /// them.
    pub fn random(&self) -> u64 {
        match &self.source {
            Source::System => system::random(),
            Source::Manual(state) => state.random(),
        }
    }

    /// A random number for a name that need not be secret, such as the id of a request. Each thread
    /// asks the operating system for many of them at once, which costs less than a call for each.
    ///
    /// A copy of a running machine gives the same numbers as the original for a while. So an
    /// identity that must be unique comes from [`random`](Clock::random).
    ///
    /// # Panics
    /// Like [`random`](Clock::random).
    pub fn random_for_name(&self) -> u64 {
        match &self.source {
            Source::System => system::random_for_name(),
            Source::Manual(state) => state.random(),
        }
    }

    /// Waits until `deadline`. On a machine that was suspended the wait may end late, but never
    /// early.
    ///
    /// # Cancel safety
    /// Safe: dropping the future loses nothing.
    pub async fn sleep_until(&self, deadline: Instant) {
        match &self.source {
            Source::System => system::sleep_until(deadline).await,
            Source::Manual(state) => state.sleep_until(deadline).await,
        }
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }

    /// Runs `future` until `deadline`, and drops the future if the deadline comes first. A future
    /// that is ready at its first poll wins even if the deadline has passed.
    ///
    /// # Errors
    /// [`Elapsed`] if the deadline came first.
    pub async fn timeout_at<F: Future>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.sleep_until(deadline) => Err(Elapsed),
        }
    }
}
