//! A clock that stands still until a test moves it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{Clock, Instant, Source, WallTime};

/// 2026-01-01, a plausible calendar: no test uses the year 1970 by accident.
const START: WallTime = WallTime::from_millis(1_767_225_600_000);

/// A clock for tests. Moves the time of every [`Clock`] that it handed out.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<ManualState>);

#[derive(Debug)]
pub(crate) struct ManualState {
    reading: Mutex<Reading>,
    moved: watch::Sender<()>,
}

#[derive(Debug)]
struct Reading {
    now: Instant,
    wall: WallTime,
    random: u64,
}

impl ManualClock {
    /// A manual clock with random numbers that follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> ManualClock {
        // The time does not begin at zero. Code that subtracts too large a margin from "now" would
        // otherwise pass, because the subtraction stops at zero.
        let now = Instant(Duration::from_secs(1_000_000));
        let reading = Reading { now, wall: START, random: seed };
        ManualClock(Arc::new(ManualState {
            reading: Mutex::new(reading),
            moved: watch::Sender::new(()),
        }))
    }

    /// A [`Clock`] that shows the time of this manual clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock { source: Source::Manual(Arc::clone(&self.0)), wall_offset: 0 }
    }

    /// Lets `duration` pass on both kinds of time, and wakes all tasks that waited for the new
    /// time.
    pub fn advance(&self, duration: Duration) {
        let mut reading = self.0.lock();
        reading.now = reading.now + duration;
        reading.wall = reading.wall + duration;
        drop(reading);
        self.0.moved.send_replace(());
    }

    /// Moves the calendar alone, forward or back, as an administrator or a time server does.
    pub fn step_wall(&self, by_millis: i64) {
        let mut reading = self.0.lock();
        reading.wall = reading.wall.shifted(by_millis.saturating_mul(1_000_000));
    }
}

impl ManualState {
    fn lock(&self) -> MutexGuard<'_, Reading> {
        // No code panics while it holds this lock, and the reading is valid at every moment.
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        self.lock().now
    }

    pub(crate) fn wall(&self) -> WallTime {
        self.lock().wall
    }

    /// Draws a number with SplitMix64: every seed, including zero, gives a full period.
    pub(crate) fn random(&self) -> u64 {
        let mut reading = self.lock();
        reading.random = reading.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = reading.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        // Subscribe before the first look at the time, so that no move in between is missed.
        let mut moved = self.moved.subscribe();
        while self.now() < deadline {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let clock = ManualClock::new(seed).clock();
            [clock.random(), clock.random()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn stepping_the_calendar_moves_no_deadline() {
        let manual = ManualClock::new(0);
        let (now, wall) = (manual.clock().now(), manual.clock().wall());
        manual.step_wall(-5_000);
        assert_eq!(manual.clock().now(), now);
        assert_eq!(wall.millis_ahead_of(manual.clock().wall()), 5_000);
    }

    #[test]
    fn a_second_node_may_have_another_calendar() {
        let clock = ManualClock::new(0).clock();
        assert_eq!(clock.with_wall_offset(-5_000).wall().millis_ahead_of(clock.wall()), -5_000);
    }

    #[tokio::test]
    async fn a_sleeper_wakes_when_its_time_has_come_and_not_before() {
        let manual = ManualClock::new(0);
        let clock = manual.clock();
        let deadline = clock.now() + Duration::from_secs(10);
        let mut sleep = Box::pin(clock.sleep_until(deadline));
        manual.advance(Duration::from_millis(9_999));
        assert!(poll_once(sleep.as_mut()).await.is_none());
        manual.advance(Duration::from_millis(1));
        assert!(poll_once(sleep.as_mut()).await.is_some());
    }

    #[tokio::test]
    async fn a_ready_future_wins_over_a_passed_deadline() {
        let clock = ManualClock::new(0).clock();
        assert_eq!(clock.timeout_at(clock.now(), async { 5 }).await, Ok(5));
        assert_eq!(
            clock.timeout_at(clock.now(), std::future::pending::<()>()).await,
            Err(crate::Elapsed)
        );
    }

    async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
