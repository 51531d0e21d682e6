//! The only reader of time and randomness.
//!
//! Everything that measures, waits or draws a random number takes a [`Clock`]. A [`Clock::system`] reads the
//! machine; a [`ManualClock`] stands still until a test moves it, so that hours of leases pass in milliseconds and a
//! seed replays exactly.
//!
//! Two kinds of time are kept apart by type. [`Instant`] is monotonic and **goes on while the machine sleeps**, so a
//! lease that ended during a suspend has ended when the machine wakes. [`WallTime`] is the calendar's time: it may jump,
//! and differs between machines; it is for what other machines judge.
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

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod manual;
mod system;
mod types;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use manual::ManualClock;
pub use types::{Instant, WallTime};

/// Reads time, waits, and draws random numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    /// How far this node's calendar is from the source's, in nanoseconds.
    wall_offset: i64,
}

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<manual::State>),
}

/// The deadline passed before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl std::error::Error for Elapsed {}

impl Clock {
    /// The machine's clocks and its source of randomness.
    pub fn system() -> Clock {
        Clock { source: Source::System, wall_offset: 0 }
    }

    /// The same clock with a calendar that is `ahead_ms` ahead (or behind, if negative): a second node whose clock is wrong.
    #[must_use]
    pub fn with_wall_offset(&self, ahead_ms: i64) -> Clock {
        let offset = ahead_ms.saturating_mul(1_000_000);
        Clock { source: self.source.clone(), wall_offset: self.wall_offset.saturating_add(offset) }
    }

    /// Monotonic time. It never goes back and counts while the machine sleeps.
    pub fn now(&self) -> Instant {
        match &self.source {
            Source::System => system::now(),
            Source::Manual(state) => state.now(),
        }
    }

    /// The calendar's time. It may jump, in both directions.
    pub fn wall(&self) -> WallTime {
        let wall = match &self.source {
            Source::System => system::wall(),
            Source::Manual(state) => state.wall(),
        };
        wall.shifted(self.wall_offset)
    }

    /// A random number: from the operating system, or from the seed of a manual clock.
    ///
    /// # Panics
    /// If the operating system has no randomness to give; no identity could be made safely then.
    pub fn random(&self) -> u64 {
        match &self.source {
            Source::System => system::random(),
            Source::Manual(state) => state.random(),
        }
    }

    /// Waits until `deadline`. A suspended machine may wake it late, never early.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost when the future is dropped.
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

    /// The future's output, unless `deadline` comes first; the future is dropped then. A future that is ready at its
    /// first poll wins even if the deadline has passed.
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
