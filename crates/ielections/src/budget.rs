//! The time of a lease, and its parts.
//!
//! Every span counts from *before* the last successful write of the lease was sent, on the leader's
//! own clock. The store began to count later, so the lease ends later in the store:
//!
//! ```text
//!  sent        renewal             valid_until         kill_at                    expiry
//!   |-----------|-------------------|-------------------|--------------------------|
//!    renew_every      retry_for          stop_grace       late writes, skew, drift
//! ```
//!
//! A write is sent only if its time-out ends before `valid_until` (`WorkGuard::may_send`). At
//! `valid_until` the leadership is over, and its work must stop. Work that still runs at `kill_at`
//! is killed with the process. If a loss is seen before `valid_until`, `kill_at` is earlier: one
//! `stop_grace` after the loss is seen.
//!
//! Invariant: when the lease expires, a write of the killed work has landed, will never land, or
//! (with `late_write` 0) is checked by its own condition or order.

use std::{fmt, time::Duration};

use clock::Instant;

use crate::TtlStore;

/// The largest difference between the speeds of two clocks: one part in a thousand. A quartz is
/// usually ten times better. A time server may slew a clock by half of this.
const DRIFT_ONE_IN: u32 = 1_000;

/// The longest lease that is allowed.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The duration of leases, and the parts of that duration. An operator chooses the values.
/// [`Budget::new`] checks that the parts fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease lasts after it was written.
    pub duration: Duration,
    /// The time from a write of the lease to its renewal.
    pub renew_every: Duration,
    /// How long a failed renewal is tried again. Afterwards the leadership is lost.
    pub retry_for: Duration,
    /// The limit of each call to the store. A server of the store that hangs is detected after this
    /// time.
    pub call_timeout: Duration,
    /// The time for the work to stop after the leadership is lost. Afterwards the work is killed.
    pub stop_grace: Duration,
    /// How long after its sending a write of the work may still land. 0 if late writes do no harm,
    /// because each has a condition or an order that gives way to the rows of another leader.
    pub late_write: Duration,
    /// The largest difference between the clocks of the store's servers.
    pub clock_skew: Duration,
}

impl Timing {
    /// Returns the usual split of a duration: the lease is renewed after a quarter, lost after
    /// half, and the work is killed after three quarters.
    pub fn of(duration: Duration) -> Timing {
        let quarter = duration / 4;
        Timing {
            duration,
            renew_every: quarter,
            retry_for: quarter,
            call_timeout: duration / 20,
            stop_grace: quarter,
            late_write: duration / 10,
            clock_skew: duration / 40,
        }
    }

    /// Returns the usual split of the shortest lease that fits, in whole seconds, for a store with
    /// this `late_write`. Returns `None` if no lease is long enough.
    pub fn shortest(late_write: Duration) -> Option<Timing> {
        Timing::shortest_of(|duration| Timing { late_write, ..Timing::of(duration) })
    }

    /// Returns the split of the shortest lease that fits, in whole seconds. A longer lease must
    /// leave at least as much room. Returns `None` if no lease is long enough, or if a renewal
    /// could not be tried again in the shortest one.
    pub fn shortest_of(split: impl Fn(Duration) -> Timing) -> Option<Timing> {
        let of = |seconds| split(Duration::from_secs(seconds));
        let has_room = |seconds| {
            let budget = Budget { timing: of(seconds), expiry_delay: Duration::ZERO };
            budget.needed() <= budget.timing.duration
        };
        let (mut too_short, mut enough) = (0, LONGEST.as_secs());
        if !has_room(enough) {
            return None;
        }
        while too_short + 1 < enough {
            let middle = (too_short + enough) / 2;
            if has_room(middle) {
                enough = middle;
            } else {
                too_short = middle;
            }
        }
        Budget::new(of(enough), Duration::ZERO).ok().map(|budget| budget.timing)
    }
}

/// Returns the timing of leases of 20 s.
impl Default for Timing {
    fn default() -> Timing {
        Timing::of(Duration::from_secs(20))
    }
}

/// A [`Timing`] with parts that fit into the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    timing: Timing,
    expiry_delay: Duration,
}

/// The error for a [`Timing`] with parts that do not fit into the lease. The text shows the sum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTiming(String);

impl Budget {
    /// Makes the budget for a store, according to how leases expire there.
    ///
    /// # Errors
    /// As [`Budget::new`].
    pub fn of_store(timing: Timing, store: &dyn TtlStore) -> Result<Budget, InvalidTiming> {
        if store.expiry_is_watched() {
            Budget::of_watched(timing)
        } else {
            Budget::new(timing, store.expiry_delay())
        }
    }

    /// Makes the budget for a store with [watched leases](TtlStore::expiry_is_watched).
    ///
    /// # Errors
    /// As [`Budget::new`].
    pub fn of_watched(timing: Timing) -> Result<Budget, InvalidTiming> {
        // A standby begins to count when a look shows it the last renewal. In the worst case, the
        // store does the renewal just after it has read the leases for a look. The standby gets
        // that answer, pauses, and sees the renewal in the answer to its next look.
        let first_sight = timing.call_timeout.saturating_mul(2).saturating_add(LOOK_EVERY_MAX);
        Budget::new(timing, first_sight)
    }

    /// Makes the budget for a store that may show a row for up to `expiry_delay` after the row
    /// expired.
    ///
    /// # Errors
    /// Fails if the parts of the lease are longer than the lease, or if a renewal could not be
    /// tried a second time.
    pub fn new(timing: Timing, expiry_delay: Duration) -> Result<Budget, InvalidTiming> {
        let budget = Budget { timing, expiry_delay };
        let Timing { duration, renew_every, retry_for, call_timeout, .. } = timing;
        if duration > LONGEST {
            return Err(InvalidTiming(format!(
                "a lease may last at most a year, not {duration:?}"
            )));
        }
        if call_timeout.is_zero() || renew_every.is_zero() {
            return Err(InvalidTiming(
                "a lease must have time for calls, and between renewals: `call_timeout` and `renew_every` are more than 0"
                    .to_owned(),
            ));
        }
        let sum = budget.needed();
        if sum > duration {
            return Err(InvalidTiming(format!(
                "a lease of {duration:?} is too short for what has to fit into it: {}; take a lease of {} s with the same parts, or shorten the parts",
                budget.sum(),
                // A longer lease drifts more, so the drift is a share of the lease that is
                // recommended.
                ((sum - budget.drift()).as_secs_f64() / (1.0 - 1.0 / f64::from(DRIFT_ONE_IN)))
                    .ceil()
            )));
        }
        let twice = call_timeout.saturating_mul(2).saturating_add(budget.retry_pause());
        if retry_for < twice {
            return Err(InvalidTiming(format!(
                "a renewal that times out could not be tried again: `retry_for` is {retry_for:?}, and two calls of \
                 `call_timeout` {call_timeout:?} with a pause take {twice:?}: the first finds out that a server of the store \
                 hangs, the second goes to another"
            )));
        }
        Ok(budget)
    }

    /// Returns the timing that the budget was made from.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns the end of the time to work, if the lease was last written by a request sent at
    /// `sent`.
    pub fn valid_until(&self, sent: Instant) -> Instant {
        sent + self.timing.renew_every + self.timing.retry_for
    }

    /// Returns when work that still runs is killed, if no loss is seen before.
    pub fn kill_at(&self, valid_until: Instant) -> Instant {
        valid_until + self.timing.stop_grace
    }

    /// Returns the pause before a failed call is made again.
    pub(crate) fn retry_pause(&self) -> Duration {
        self.timing.call_timeout / 4
    }

    /// Returns the time between the end of all work and the expiry of the lease.
    fn margin(&self) -> Duration {
        self.timing.late_write.saturating_add(self.timing.clock_skew).saturating_add(self.drift())
    }

    fn drift(&self) -> Duration {
        self.timing.duration / DRIFT_ONE_IN
    }

    fn killed_after(&self) -> Duration {
        self.timing
            .renew_every
            .saturating_add(self.timing.retry_for)
            .saturating_add(self.timing.stop_grace)
    }

    /// Returns the sum of all parts.
    fn needed(&self) -> Duration {
        self.killed_after().saturating_add(self.margin())
    }

    /// Returns the sum of all parts as text.
    fn sum(&self) -> String {
        let Timing { renew_every, retry_for, stop_grace, late_write, clock_skew, .. } = self.timing;
        format!(
            "renew_every {renew_every:?} + retry_for {retry_for:?} + stop_grace {stop_grace:?} + late_write {late_write:?} + \
             clock_skew {clock_skew:?} + drift {:?} = {:?}",
            self.drift(),
            self.needed()
        )
    }

    /// Returns the longest time from the death of a leader to the next leadership.
    ///
    /// The bound holds if a standby is waiting, and if the store answers each of its calls within
    /// `call_timeout`. The exception is one server of the store that hangs: the bound contains the
    /// calls that detect it.
    ///
    /// The bound does not cover a leader that lives: see
    /// [`slow_store_bound`](Budget::slow_store_bound).
    pub fn failover_bound(&self) -> Duration {
        // A renewal that was under way when the leader died, a look, and the three calls of an
        // attempt.
        let calls = 5 * self.timing.call_timeout;
        // A call that detects a server that hangs, a pause, and a look for the next attempt.
        let detection = 2 * self.timing.call_timeout + LOOK_EVERY_MAX;
        self.timing.duration
            + self.drift()
            + self.timing.clock_skew
            + self.expiry_delay
            + LOOK_EVERY_MAX
            + calls
            + detection
    }

    /// Returns the longest time from the last successful renewal to the next leadership, if the
    /// leader lives and its store is slow. Add the delay of the store.
    ///
    /// The leader continues to send renewals until its leadership is over. Each renewal may prolong
    /// the lease although its answer comes too late for the leader.
    pub fn slow_store_bound(&self) -> Duration {
        self.timing.renew_every.saturating_add(self.timing.retry_for) + self.failover_bound()
    }

    /// Returns the longest time from the last answer of the store to the end of all work.
    pub fn stop_bound(&self) -> Duration {
        self.killed_after()
    }
}

/// A standby pauses between two looks for a time between these limits.
pub(crate) const LOOK_EVERY_MIN: Duration = Duration::from_millis(200);
pub(crate) const LOOK_EVERY_MAX: Duration = Duration::from_millis(240);

/// Rounds up to whole milliseconds. A printed bound needs no more digits.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "leases of {:?}: {}; all work ends within {:?} of the store's last answer; \
             failover within {:?} of a crash, if the store answers in time; if the leader lives \
             and the store is slow, within {:?} of the last renewal, plus the store's delay",
            self.timing.duration,
            self.sum(),
            self.stop_bound(),
            whole_millis(self.failover_bound()),
            whole_millis(self.slow_store_bound())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn refused(timing: Timing) -> String {
        Budget::new(timing, Duration::ZERO).unwrap_err().to_string()
    }

    #[test]
    fn the_default_fits_and_so_does_its_split_of_any_duration() {
        Budget::new(Timing::default(), 4 * SECOND).unwrap();
        for millis in [1, 100, 4_000, 3_600_000] {
            Budget::new(Timing::of(Duration::from_millis(millis)), Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn every_part_counts_and_the_sum_is_written_out() {
        let timing = Timing {
            duration: 20 * SECOND,
            renew_every: 5 * SECOND,
            retry_for: 5 * SECOND,
            call_timeout: SECOND,
            stop_grace: 5 * SECOND,
            late_write: 4 * SECOND,
            clock_skew: Duration::from_millis(980),
        };
        assert!(Budget::new(timing, Duration::ZERO).is_ok());
        let one_more = Duration::from_millis(1);
        for longer in [
            Timing { renew_every: timing.renew_every + one_more, ..timing },
            Timing { retry_for: timing.retry_for + one_more, ..timing },
            Timing { stop_grace: timing.stop_grace + one_more, ..timing },
            Timing { late_write: timing.late_write + one_more, ..timing },
            Timing { clock_skew: timing.clock_skew + one_more, ..timing },
        ] {
            let why = refused(longer);
            assert!(why.contains("drift 20ms = 20.001s"), "{why}");
        }
    }

    #[test]
    fn the_lease_that_is_advised_fits() {
        for seconds in [20, 999, 1_000, 1_001, 100_000] {
            let long = Timing { retry_for: seconds * SECOND, ..Timing::of(SECOND) };
            let why = refused(long);
            let advised = why.split("take a lease of ").nth(1).unwrap().split(' ').next().unwrap();
            let duration = Duration::from_secs(advised.parse().unwrap());
            Budget::new(Timing { duration, ..long }, Duration::ZERO).unwrap();
            let shorter = duration - 2 * SECOND;
            Budget::new(Timing { duration: shorter, ..long }, Duration::ZERO).unwrap_err();
        }
    }

    #[test]
    fn the_shortest_lease_for_late_writes_fits_and_a_second_less_does_not() {
        for millis in [0, 1, 2_000, 30_000, 120_000, 86_400_000] {
            let late_write = Duration::from_millis(millis);
            let shortest = Timing::shortest(late_write).unwrap();
            assert_eq!(shortest.late_write, late_write);
            Budget::new(shortest, Duration::ZERO).unwrap();
            let shorter = Timing::of(shortest.duration - SECOND);
            Budget::new(Timing { late_write, ..shorter }, Duration::ZERO).unwrap_err();
        }
        assert_eq!(Timing::shortest(30 * SECOND).unwrap().duration, 134 * SECOND);
        assert_eq!(Timing::shortest(LONGEST), None);
    }

    #[test]
    fn a_renewal_can_be_tried_again() {
        let timing = Timing { call_timeout: 3 * SECOND, ..Timing::default() };
        assert!(refused(timing).contains("two calls"));
    }

    /// A server that hangs costs a candidate one call and another look. An earlier bound did not
    /// contain them, and the printed bound did not hold.
    #[test]
    fn the_failover_bound_contains_the_detection_of_a_hanging_server() {
        let timing = Timing::default();
        let budget = Budget::new(timing, Duration::ZERO).unwrap();
        let without = timing.duration + budget.drift() + timing.clock_skew + LOOK_EVERY_MAX;
        // The renewal, the look and the three calls of an attempt; the call that hung, and the look
        // after that call.
        let with = without + 7 * timing.call_timeout + LOOK_EVERY_MAX;
        assert_eq!(budget.failover_bound(), with);
        assert_eq!(budget.slow_store_bound(), with + timing.renew_every + timing.retry_for);
    }

    /// A node that watches a lease counts from a look. In such a store the bound of a store that
    /// judges expiry itself did not hold.
    #[test]
    fn the_look_that_shows_the_last_renewal_is_part_of_the_bound_where_nodes_watch() {
        let timing = Timing::default();
        let counted = Budget::new(timing, Duration::ZERO).unwrap().failover_bound();
        let watched = Budget::of_watched(timing).unwrap().failover_bound();
        assert_eq!(watched, counted + 2 * timing.call_timeout + LOOK_EVERY_MAX);
    }

    #[test]
    fn work_is_killed_before_the_lease_expires() {
        for millis in [1_000, 4_000, 20_000] {
            let timing = Timing::of(Duration::from_millis(millis));
            let budget = Budget::new(timing, Duration::ZERO).unwrap();
            let sent = clock::ManualClock::new(1).clock().now();
            let valid_until = budget.valid_until(sent);
            assert_eq!(valid_until, sent + timing.renew_every + timing.retry_for);
            let killed = budget.kill_at(valid_until);
            assert!(killed + budget.margin() <= sent + timing.duration);
        }
    }

    #[test]
    fn times_that_cannot_be_added_are_refused() {
        let usual = Timing::default();
        for timing in [
            Timing::of(Duration::MAX),
            Timing { retry_for: Duration::MAX, ..usual },
            Timing { call_timeout: Duration::MAX, ..usual },
            Timing { late_write: Duration::MAX, clock_skew: Duration::MAX, ..usual },
        ] {
            assert!(Budget::new(timing, Duration::ZERO).is_err(), "{timing:?}");
        }
    }

    #[test]
    fn times_of_zero_are_refused() {
        assert!(refused(Timing::of(Duration::ZERO)).contains("more than 0"));
    }

    #[test]
    fn the_text_of_a_budget_contains_its_bounds() {
        let text = Budget::new(Timing::default(), SECOND).unwrap().to_string();
        assert!(text.contains("all work ends within 15s of"), "{text}");
        assert!(text.contains("failover within 29s of a crash, if"), "{text}");
        assert!(text.contains("within 39s of the last renewal, plus"), "{text}");
    }
}
