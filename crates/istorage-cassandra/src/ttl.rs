//! Lives in Cassandra's whole seconds.
//!
//! A server that writes a row at a moment within second `n` lets it end when second `n + ttl` begins. So a life is rounded
//! up, and one second more makes up for the part of second `n` that was over: a row lives at least as long as was
//! asked, and less than two seconds longer, by one server's clock.
//!
//! While a row lives, a server reports the seconds from the one it is in to the one in which the row ends: at least
//! one. One less is what is certainly left, and at the moment of writing it is what was asked, rounded up.

use std::time::Duration;

/// The seconds to ask for; 0 is for ever.
pub(crate) fn seconds(ttl: Option<Duration>) -> i32 {
    let Some(ttl) = ttl else {
        return 0;
    };
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i32::try_from(whole + 1).unwrap_or(i32::MAX)
}

/// What is left when a server reports so many seconds.
pub(crate) fn left(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds - 1).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_rounded_up_and_gets_a_second_more() {
        assert_eq!(seconds(None), 0);
        assert_eq!(seconds(Some(Duration::from_nanos(1))), 2);
        assert_eq!(seconds(Some(Duration::from_secs(1))), 2);
        assert_eq!(seconds(Some(Duration::from_millis(1_001))), 3);
        assert_eq!(seconds(Some(istorage::TTL_MAX)), 315_360_001);
    }

    #[test]
    fn what_is_left_is_what_was_asked_and_never_less_than_nothing() {
        let asked = Duration::from_secs(20);
        assert_eq!(left(seconds(Some(asked))), asked);
        assert_eq!(left(1), Duration::ZERO);
        assert_eq!(left(0), Duration::ZERO);
    }
}
