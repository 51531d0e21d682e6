//! A clock that stands still until a test moves it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{Clock, Instant, Source, WallTime};

/// 2026-01-01, a plausible calendar: no test uses the year 1970 by accident.
const START: WallTime = WallTime::from_millis(1_767_225_600_000);

/// A clock for tests. Moves the time of every [`Clock`] that it handed out.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<ManualState>);

#[derive(Debug)]
pub(crate) struct ManualState {
    reading: Mutex<Reading>,
    sleepers: Mutex<Sleepers>,
}

/// The tasks that wait for a time, in their order of waking.
///
/// Tasks that wait for the same time wake in the order of their arrival. So a simulation on one
/// thread follows from its seed.
#[derive(Debug, Default)]
struct Sleepers {
    waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    count: u64,
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
            sleepers: Mutex::default(),
        }))
    }

    /// A [`Clock`] that shows the time of this manual clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock { source: Source::Manual(Arc::clone(&self.0)), wall_offset: 0 }
    }

    /// Lets `duration` pass on both kinds of time. Wakes the tasks whose time has come, in the
    /// order of their times.
    pub fn advance(&self, duration: Duration) {
        let mut reading = self.0.lock();
        reading.now = reading.now + duration;
        reading.wall = reading.wall + duration;
        let now = reading.now;
        drop(reading);
        // A task that is dropped while it is woken locks the sleepers itself.
        while let Some(sleeper) = self.0.take_woken(now) {
            let _dropped_meanwhile = sleeper.send(());
        }
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
        if let Some((_sleep, woken)) = self.begin_sleep(deadline) {
            // The sender is dropped only after it has sent.
            let _woken = woken.await;
        }
    }

    /// Takes a place among the sleepers. `None` if the time has come.
    fn begin_sleep(&self, deadline: Instant) -> Option<(Sleep<'_>, oneshot::Receiver<()>)> {
        let mut sleepers = self.sleepers();
        // The time is read under the lock. A move of the clock sees this sleeper, or is seen here.
        if self.now() >= deadline {
            return None;
        }
        let (wake, woken) = oneshot::channel();
        let place = (deadline, sleepers.count);
        sleepers.count += 1;
        sleepers.waiting.insert(place, wake);
        Some((Sleep { state: self, place }, woken))
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        // No code panics while it holds this lock.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the sleeper that wakes first, if its time has come.
    fn take_woken(&self, now: Instant) -> Option<oneshot::Sender<()>> {
        let mut sleepers = self.sleepers();
        let next = sleepers.waiting.first_entry().filter(|next| next.key().0 <= now)?;
        Some(next.remove())
    }
}

/// A place among the sleepers. A sleep that is dropped gives up its place.
struct Sleep<'s> {
    state: &'s ManualState,
    place: (Instant, u64),
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.state.sleepers().waiting.remove(&self.place);
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

    /// All sleepers woke at once, in an order that no seed decided. So a seed did not replay its
    /// history.
    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_times() {
        let manual = ManualClock::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        let times: Vec<u64> = (0..50).map(|task| task * 7 % 10).collect();
        for (task, seconds) in times.iter().copied().enumerate() {
            let (clock, woken) = (manual.clock(), Arc::clone(&woken));
            let deadline = clock.now() + Duration::from_secs(1 + seconds);
            tasks.spawn(async move {
                clock.sleep_until(deadline).await;
                woken.lock().unwrap().push((seconds, task));
            });
        }
        tokio::task::yield_now().await;
        manual.advance(Duration::from_secs(20));
        while tasks.join_next().await.is_some() {}
        let mut expected: Vec<_> = times.into_iter().zip(0..).collect();
        expected.sort_unstable();
        assert_eq!(*woken.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_sleep_that_is_dropped_leaves_nothing() {
        let manual = ManualClock::new(0);
        let clock = manual.clock();
        let mut sleep = Box::pin(clock.sleep_until(clock.now() + Duration::from_secs(10)));
        assert!(poll_once(sleep.as_mut()).await.is_none());
        assert_eq!(manual.0.sleepers().waiting.len(), 1);
        drop(sleep);
        assert_eq!(manual.0.sleepers().waiting.len(), 0);
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
