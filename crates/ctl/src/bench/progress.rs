//! The progress of all clients of a bench together.

use std::sync::atomic::{AtomicU64, Ordering};

use clock::{Clock, Instant};

/// The requests that were done so far, and the longest time without one.
#[derive(Debug)]
pub(super) struct BenchProgress {
    clock: Clock,
    start: Instant,
    done: AtomicU64,
    /// The time of the last request that was done, in microseconds from the start.
    last: AtomicU64,
    longest_pause: AtomicU64,
}

impl BenchProgress {
    pub(super) fn new(clock: Clock) -> BenchProgress {
        let start = clock.now();
        let (done, last, longest_pause) = Default::default();
        BenchProgress { clock, start, done, last, longest_pause }
    }

    /// Notes that a request was done now.
    pub(super) fn note_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.note_pause();
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The longest time in which no request of any client was done, in microseconds.
    pub(super) fn longest_pause(&self) -> u64 {
        self.longest_pause.load(Ordering::Relaxed)
    }

    /// Ends the pause since the last request that was done.
    pub(super) fn note_pause(&self) {
        let now = (self.clock.now() - self.start).as_micros() as u64;
        let before = self.last.fetch_max(now, Ordering::Relaxed);
        self.longest_pause.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;

    use super::*;

    #[test]
    fn the_longest_pause_may_be_before_between_or_after_the_requests() {
        for millis in [[9, 1, 1], [1, 9, 1], [1, 1, 9]] {
            let manual = ManualClock::new(1);
            let progress = BenchProgress::new(manual.clock());
            let [first, second, rest] = millis.map(Duration::from_millis);
            for pause in [first, second] {
                manual.advance(pause);
                progress.note_done();
            }
            manual.advance(rest);
            progress.note_pause();
            assert_eq!((progress.done(), progress.longest_pause()), (2, 9_000), "{millis:?}");
        }
    }
}
