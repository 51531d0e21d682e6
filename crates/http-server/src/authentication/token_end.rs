//! The end of the token of a client.

use std::time::Duration;

use clock::{Clock, Instant, WallTime};

/// The end of the token of a client. From then on, streams send nothing to the client.
///
/// Invariant: the end is fixed on the monotonic clock when the token is checked, and the calendar
/// can only bring it forward. A simpler version reads the calendar when the stream begins. A token
/// that ends in a minute is checked; the calendar is set back by an hour; the stream begins. So the
/// stream goes on for an hour after the end of the token.
#[derive(Clone, Copy, Debug)]
pub struct TokenEnd {
    at: Instant,
    expires: WallTime,
}

impl TokenEnd {
    /// The end of a token that never ends.
    pub const NEVER: TokenEnd =
        TokenEnd { at: Instant::FAR_FUTURE, expires: WallTime::from_nanos(u64::MAX) };

    /// The end of a token that has ended.
    pub(crate) const OVER: TokenEnd =
        TokenEnd { at: Instant::FAR_PAST, expires: WallTime::from_nanos(0) };

    /// The end of a token that has just been checked, and that is refused from `expires` on, in
    /// seconds since 1970.
    pub fn of(expires: u64, clock: &Clock) -> TokenEnd {
        let expires = WallTime::from_millis(expires.saturating_mul(1_000));
        if expires == TokenEnd::NEVER.expires {
            return TokenEnd::NEVER;
        }
        let left = expires.as_nanos().saturating_sub(clock.wall().as_nanos());
        TokenEnd { at: clock.now() + Duration::from_nanos(left), expires }
    }

    /// When the token ends at the latest.
    pub fn at(self) -> Instant {
        self.at
    }

    /// Whether the token has ended.
    pub fn has_come(self, clock: &Clock) -> bool {
        clock.now() >= self.at || clock.wall() >= self.expires
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    /// A stream went on for up to a second after the end of the token of its client.
    #[test]
    fn a_token_ends_to_the_millisecond_and_no_later_if_the_calendar_is_set_back() {
        for set_back in [0, -3_600_000] {
            let manual = ManualClock::new(1);
            let clock = manual.clock();
            manual.advance(Duration::from_millis(900));
            let end = TokenEnd::of(clock.wall().as_millis() / 1_000 + 5, &clock);
            assert_eq!(end.at() - clock.now(), Duration::from_millis(4_100));
            manual.step_wall(set_back);
            manual.advance(Duration::from_millis(4_099));
            assert!(!end.has_come(&clock));
            manual.advance(Duration::from_millis(1));
            assert!(end.has_come(&clock), "{set_back}");
        }
    }

    #[test]
    fn a_token_ends_when_the_calendar_says_so() {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        let end = TokenEnd::of(clock.wall().as_millis() / 1_000 + 5, &clock);
        manual.step_wall(4_999);
        assert!(!end.has_come(&clock));
        manual.step_wall(1);
        assert!(end.has_come(&clock));
        for over in [TokenEnd::of(0, &clock), TokenEnd::OVER] {
            assert!(over.has_come(&clock), "it has ended before");
        }
        for never in [u64::MAX, 1 << 53] {
            assert_eq!(TokenEnd::of(never, &clock).at(), Instant::FAR_FUTURE);
        }
    }
}
