//! How many rows one call has, for callers that must make progress even if the storage is slow.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

/// The largest number of rows of one call.
const MOST_ROWS: usize = 4_096;

/// If a call failed sooner than this, it did not fail because of its number of rows. A storage that
/// is out of reach fails each call, whatever its size. A server gives up a call that takes too long
/// only after its own timeout, which may be much shorter than that of the caller.
const EARLY: Duration = Duration::from_millis(100);

/// How many rows one call reads or writes.
///
/// After a call that took a while and failed, the next call has half as many rows. After a call
/// that took less than half of its time, the next one has twice as many. So work on many rows goes
/// on if the storage can do each row within one call. Work with calls of a fixed size would make
/// the same call again and again, and fail.
///
/// Keep the value for as long as such calls are repeated: if work is given up and begun again, it
/// begins with the smaller calls. Use one value for one kind of call.
#[derive(Debug)]
pub struct RowsAtOnce(AtomicUsize);

impl Default for RowsAtOnce {
    fn default() -> RowsAtOnce {
        RowsAtOnce(AtomicUsize::new(MOST_ROWS))
    }
}

impl RowsAtOnce {
    /// Returns the rows of the next call: the first of the rows that are left.
    pub fn first<'r, R>(&self, left: &'r [R]) -> &'r [R] {
        &left[..left.len().min(self.get())]
    }

    /// Notes that a call for this many rows has succeeded.
    pub fn note_done(&self, rows: usize, took: Duration, timeout: Duration) {
        if rows >= self.get() && took < timeout / 2 {
            self.set(rows * 2);
        }
    }

    /// Notes that a call for this many rows has failed.
    pub fn note_failed(&self, rows: usize, took: Duration) {
        if took >= EARLY {
            self.set(self.get().min(rows / 2));
        }
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, rows: usize) {
        self.0.store(rows.clamp(1, MOST_ROWS), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    #[test]
    fn a_call_that_failed_after_a_while_halves_and_a_quick_full_one_doubles() {
        let at_once = RowsAtOnce::default();
        let rows = [(); 500];
        let next = || at_once.first(&rows).len();
        let (slow, quick) = (TIMEOUT / 2, TIMEOUT / 3);
        let failed_at_once = EARLY / 2;
        assert_eq!(next(), 500);
        at_once.note_failed(500, failed_at_once);
        assert_eq!(next(), 500, "the call failed early");
        // The server gave the call up long before the caller.
        at_once.note_failed(500, EARLY);
        assert_eq!(next(), 250);
        at_once.note_failed(500, slow);
        assert_eq!(next(), 250, "a call that began earlier says nothing new");
        at_once.note_done(250, slow, TIMEOUT);
        assert_eq!(next(), 250, "the call was not quick");
        at_once.note_done(249, quick, TIMEOUT);
        assert_eq!(next(), 250, "the call was not full");
        at_once.note_done(250, quick, TIMEOUT);
        assert_eq!(next(), 500);
        at_once.note_failed(1, TIMEOUT);
        assert_eq!(next(), 1);
    }
}
