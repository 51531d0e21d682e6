//! Conversion of TTLs to Cassandra's whole seconds.
//!
//! A server that writes a row during second `n` lets the row expire when second `n + ttl` begins.
//! So a TTL is rounded up, and one more second makes up for the part of second `n` that had passed.
//! By the clock of one server, a row lives at least as long as its TTL, and less than two seconds
//! longer.
//!
//! While a row lives, a server reports the whole seconds until the second of expiry, at least one.
//! The current second may be nearly over, so at least that number minus one is left. The driver
//! returns this value. Right after the write the value is the requested TTL, rounded up.

use std::time::Duration;

/// The seconds to send to a server; 0 means that the row does not expire.
pub(crate) fn seconds(ttl: Option<Duration>) -> i32 {
    let Some(ttl) = ttl else {
        return 0;
    };
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i32::try_from(whole + 1).unwrap_or(i32::MAX)
}

/// The rest of the TTL that is certain when a server reports this number of seconds.
pub(crate) fn left(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds - 1).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_rounded_up_and_gets_one_more_second() {
        assert_eq!(seconds(None), 0);
        assert_eq!(seconds(Some(Duration::from_nanos(1))), 2);
        assert_eq!(seconds(Some(Duration::from_secs(1))), 2);
        assert_eq!(seconds(Some(Duration::from_millis(1_001))), 3);
        assert_eq!(seconds(Some(istorage::TTL_MAX)), 315_360_001);
    }

    #[test]
    fn the_rest_of_a_ttl_is_the_requested_ttl_and_never_negative() {
        let asked = Duration::from_secs(20);
        assert_eq!(left(seconds(Some(asked))), asked);
        assert_eq!(left(1), Duration::ZERO);
        assert_eq!(left(0), Duration::ZERO);
    }
}
