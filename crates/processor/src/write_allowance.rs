//! What the commands of one sender may write beyond what they carry.
//!
//! An update writes its records again as a whole: into the event, which is in two logs, and into
//! their rows. So a command of 1 KB that changes 15 records of 1 MB writes 45 MB. Without this
//! limit one sender takes the disk for itself, although it sends little and keeps the limits of its
//! commands and bodies.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use base::locks::lock;
use clock::Instant;
use lru::LruCache;

use crate::remembered;

/// The bytes that each command may write, whatever it carries.
const FREE: usize = 16 << 10;
/// A command may write each byte that it carries this many times: the two logs and the record, and
/// one more for names and keys.
const TIMES: usize = 4;
/// The further bytes that one sender may write in a second.
const RATE: u32 = 16 << 20;
/// How long a sender may write ahead of the rate.
const AHEAD: Duration = Duration::from_secs(4);
/// The number of senders that are remembered.
const SENDERS: NonZeroUsize = NonZeroUsize::new(10_000).expect("10,000 is not zero");

/// What the commands of each sender may write beyond what they carry: 16 MiB in a second, and 64
/// MiB at once. A command may always write 16 KiB, and four times what it carries.
///
/// Clones share the allowance, so that it holds for all partitions with the same settings. Commands
/// without a [principal](crate::Command::principal) are not limited: their senders are not known.
#[derive(Clone, Debug)]
pub struct WriteAllowance {
    /// For each sender, when everything it wrote would be written at the rate.
    done_at: Arc<Mutex<LruCache<String, Instant>>>,
}

impl Default for WriteAllowance {
    fn default() -> WriteAllowance {
        WriteAllowance { done_at: Arc::new(Mutex::new(remembered::at_most(SENDERS))) }
    }
}

impl WriteAllowance {
    /// How long the next command of a sender must wait; `None` if it may run now.
    pub(crate) fn pause(&self, principal: &str, now: Instant) -> Option<Duration> {
        if principal.is_empty() {
            return None;
        }
        let all = lock(&self.done_at);
        let pause = all.peek(principal)?.saturating_since(now).saturating_sub(AHEAD);
        (!pause.is_zero()).then_some(pause)
    }

    /// Counts what a command writes. Commands that begin while the allowance is used up wait, but a
    /// command that has begun is done.
    pub(crate) fn count(&self, principal: &str, carried: usize, written: usize, now: Instant) {
        let beyond = written.saturating_sub(FREE + TIMES * carried);
        if beyond == 0 || principal.is_empty() {
            return;
        }
        let time = Duration::from_secs_f64(beyond as f64 / f64::from(RATE));
        let mut all = lock(&self.done_at);
        let done_at = all.get(principal).copied().unwrap_or(now).max(now) + time;
        all.put(principal.to_owned(), done_at);
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    #[test]
    fn a_sender_that_wrote_too_much_waits_until_the_rate_has_caught_up() {
        let (allowance, start) = (WriteAllowance::default(), ManualClock::new(1).clock().now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(allowance.pause("a", at(0)), None);
        allowance.count("a", 1_000, (64 << 20) + FREE + 4_000, at(0));
        assert_eq!(allowance.pause("a", at(0)), None, "64 MiB at once");
        allowance.clone().count("a", 0, (32 << 20) + FREE, at(0));
        assert_eq!(allowance.pause("a", at(0)), Some(Duration::from_secs(2)));
        assert_eq!(allowance.pause("b", at(0)), None, "another sender");
        assert_eq!(allowance.pause("a", at(1)), Some(Duration::from_secs(1)));
        assert_eq!(allowance.pause("a", at(2)), None);
        allowance.count("a", 0, (64 << 20) + FREE, at(1_000));
        assert_eq!(allowance.pause("a", at(1_000)), None, "a rest saves 64 MiB, and no more");
        allowance.count("a", 0, (16 << 20) + FREE, at(1_000));
        assert_eq!(allowance.pause("a", at(1_000)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn what_a_command_carries_is_free_and_unknown_senders_are_not_limited() {
        let (allowance, now) = (WriteAllowance::default(), ManualClock::new(1).clock().now());
        for _ in 0..10_000 {
            allowance.count("a", 1 << 20, 4 << 20, now);
            allowance.count("a", 10, FREE, now);
            allowance.count("", 0, 100 << 20, now);
        }
        assert_eq!(allowance.pause("a", now), None);
        assert_eq!(allowance.pause("", now), None);
    }
}
