//! A limit for the commands of each principal, or for other things that it causes.

use std::{
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use clock::Instant;
use lru::LruCache;

/// How many principals a limit remembers.
const PRINCIPALS: NonZeroUsize = NonZeroUsize::new(10_000).expect("10,000 is not zero");

/// A limit for the commands of each principal: a number of them in a second, and as many at once
/// after a second without any.
///
/// For each principal the limit keeps when all its commands so far would be done if they were done
/// evenly.
#[derive(Debug)]
pub(crate) struct PrincipalRate {
    /// The time of one command.
    interval: Duration,
    done_at: Mutex<LruCache<String, Instant>>,
}

impl PrincipalRate {
    /// A limit; `None` if `commands_per_second` is 0.
    pub(crate) fn new(commands_per_second: u32) -> Option<PrincipalRate> {
        let interval = Duration::from_secs(1).checked_div(commands_per_second)?;
        Some(PrincipalRate { interval, done_at: Mutex::new(LruCache::new(PRINCIPALS)) })
    }

    /// Counts commands that are sent together. A batch of more commands than the limit is accepted
    /// if all earlier commands would be done by now, and the principal then waits longer.
    ///
    /// # Errors
    /// How long the principal must wait before it sends the commands. None of them is counted.
    pub(crate) fn take(
        &self,
        principal: &str,
        commands: u32,
        now: Instant,
    ) -> Result<(), Duration> {
        const AT_ONCE: Duration = Duration::from_secs(1);
        let time = self.interval * commands;
        let mut all = self.done_at.lock().unwrap_or_else(PoisonError::into_inner);
        let done_at = all.get(principal).copied().unwrap_or(now).max(now) + time;
        let latest = now + AT_ONCE.max(time);
        if done_at > latest {
            return Err(done_at - latest);
        }
        all.put(principal.to_owned(), done_at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    #[test]
    fn a_principal_sends_as_many_commands_as_the_limit_says() {
        let rate = PrincipalRate::new(10).unwrap();
        let start = ManualClock::new(1).clock().now();
        let at = |millis| start + Duration::from_millis(millis);
        assert!((0..10).all(|_| rate.take("a", 1, at(0)).is_ok()));
        assert_eq!(rate.take("a", 1, at(0)), Err(Duration::from_millis(100)));
        assert_eq!(rate.take("b", 1, at(0)), Ok(()), "another principal");
        assert_eq!(rate.take("a", 1, at(99)), Err(Duration::from_millis(1)));
        assert_eq!(rate.take("a", 1, at(100)), Ok(()));
        let sent = (100..=10_100).filter(|now| rate.take("a", 1, at(*now)).is_ok()).count();
        assert_eq!(sent, 100, "10 s");
        assert!((0..10).all(|_| rate.take("a", 1, at(60_000)).is_ok()));
        assert!(rate.take("a", 1, at(60_000)).is_err(), "a rest saves no more than a second");
        assert!(PrincipalRate::new(0).is_none());
    }
    #[test]
    fn a_batch_counts_as_its_commands() {
        let rate = PrincipalRate::new(10).unwrap();
        let start = ManualClock::new(1).clock().now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(rate.take("a", 7, at(0)), Ok(()));
        assert_eq!(rate.take("a", 7, at(0)), Err(Duration::from_millis(400)));
        assert_eq!(rate.take("a", 3, at(0)), Ok(()), "the refused batch was not counted");
        // A batch above the limit waits for all earlier commands, and then counts in full.
        assert_eq!(rate.take("a", 100, at(0)), Err(Duration::from_millis(1_000)));
        assert_eq!(rate.take("a", 100, at(1_000)), Ok(()));
        assert_eq!(rate.take("a", 1, at(1_000)), Err(Duration::from_millis(9_100)));
        assert_eq!(rate.take("a", 100, at(10_999)), Err(Duration::from_millis(1)));
        assert_eq!(rate.take("a", 1, at(10_100)), Ok(()));
    }
}
