//! How fast the log takes writes while the filer is at work.
//!
//! The filer cannot write rows into the storage file as fast as the log takes them for a moment. A
//! bound alone would let writers run into it, and then stop all of them for a whole filing. So the
//! log takes bytes at a rate that falls as the table in memory grows: at the bound it would be
//! nothing, and it is the rate of the filer before that.

use std::time::Duration;

use clock::Instant;

/// Bytes that are let through at once: the rate of so long a time.
const CREDIT: f64 = 0.010;
/// The rate before the first filing is done, in bytes per second.
const FIRST_RATE: f64 = 32e6;
/// The longest delay of one group.
const LONGEST: Duration = Duration::from_millis(100);

/// A bucket of bytes that fills at the rate of the filer.
pub(super) struct Pressure {
    /// The size of a table.
    size: f64,
    /// Bytes that the filer writes per second.
    rate: f64,
    credit: f64,
    at: Instant,
}

impl Pressure {
    pub(super) fn new(size: usize, now: Instant) -> Pressure {
        Pressure { size: size as f64, rate: FIRST_RATE, credit: 0.0, at: now }
    }

    /// Notes that the filer has written a table of some weight in some time.
    pub(super) fn filed(&mut self, weight: usize, time: Duration) {
        // A small table says nothing about the disk.
        if weight as f64 >= self.size / 2.0 {
            let rate = weight as f64 / time.as_secs_f64().max(1e-6);
            self.rate = (self.rate + rate) / 2.0;
        }
    }

    /// Begins to count when a filing begins.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.credit, self.at) = (self.rate * CREDIT, now);
    }

    /// How long a group of some weight waits, if the active table has `active` bytes.
    pub(super) fn delay(&mut self, group: usize, active: usize, now: Instant) -> Duration {
        let room = (2.5 * self.size - active as f64) / (2.0 * self.size);
        let rate = (self.rate * room).max(self.rate / 100.0);
        let passed = (now - self.at).as_secs_f64();
        self.credit = (self.credit + rate * passed).min(self.rate * CREDIT) - group as f64;
        self.at = now;
        let wait = (-self.credit / rate).max(0.0);
        Duration::from_secs_f64(wait).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    const SIZE: usize = 1 << 20;

    /// Writers that come as fast as they are let, while the filer takes a table of `SIZE` bytes at
    /// `filer` bytes per second. Returns how full the active table is then, and the longest delay.
    fn run(filer: f64, group: usize) -> (f64, Duration) {
        let clock = ManualClock::new(1);
        let now = || clock.clock().now();
        let mut pressure = Pressure::new(SIZE, now());
        for _ in 0..20 {
            pressure.filed(SIZE, Duration::from_secs_f64(SIZE as f64 / filer));
        }
        let (begun, mut active, mut longest) = (now(), 0, Duration::ZERO);
        pressure.begin(begun);
        while (now() - begun).as_secs_f64() < SIZE as f64 / filer {
            let delay = pressure.delay(group, active, now());
            longest = longest.max(delay);
            // A group takes some time of its own.
            clock.advance(delay + Duration::from_micros(100));
            active += group;
        }
        (active as f64 / SIZE as f64, longest)
    }

    #[test]
    fn the_active_table_never_reaches_its_bound_and_no_group_waits_long() {
        for filer in [5e6, 20e6, 100e6] {
            for group in [500, 10_000, 50_000] {
                let (fill, longest) = run(filer, group);
                assert!(fill < 2.0, "{filer} {group}: {fill}");
                let alone = Duration::from_secs_f64(2.0 * group as f64 / filer);
                assert!(
                    longest <= alone + Duration::from_millis(1),
                    "{filer} {group}: {longest:?}"
                );
            }
        }
    }

    #[test]
    fn writers_that_are_slower_than_the_filer_are_not_delayed() {
        let clock = ManualClock::new(1);
        let now = || clock.clock().now();
        let mut pressure = Pressure::new(SIZE, now());
        pressure.begin(now());
        for _ in 0..100 {
            assert_eq!(pressure.delay(1_000, SIZE / 10, now()), Duration::ZERO);
            clock.advance(Duration::from_millis(1));
        }
    }
}
