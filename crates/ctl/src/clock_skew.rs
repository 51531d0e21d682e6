//! The difference between the clock of a storage and the clock of this machine.

use std::{fmt, time::Duration};

use clock::Clock;
use istorage::{AppStorage, Result};
use serde::Serialize;

/// The difference of two clocks, and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClockSkew {
    /// How far the storage's clock is ahead of this machine's clock. It is negative if the
    /// storage's clock is behind.
    pub server_ahead_ms: i64,
    /// The true difference is at most this far from the measured one.
    pub uncertainty_ms: i64,
}

impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClockSkew { server_ahead_ms, uncertainty_ms } = self;
        let apart = server_ahead_ms.unsigned_abs();
        match server_ahead_ms {
            1.. => write!(f, "The storage's clock is {apart} ms ahead of this machine's")?,
            0 => f.write_str("The storage's clock equals this machine's")?,
            _ => write!(f, "The storage's clock is {apart} ms behind this machine's")?,
        }
        write!(f, ", give or take {uncertainty_ms} ms")
    }
}

const READINGS: usize = 5;
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures a few times, and returns the result with the least uncertainty. `None` if the storage
/// has no clock of its own.
pub async fn measure(storage: &dyn AppStorage, clock: &Clock) -> Result<Option<ClockSkew>> {
    let mut best: Option<ClockSkew> = None;
    for _ in 0..READINGS {
        let (start, before) = (clock.now(), clock.wall());
        let Some(server) = storage.server_time(start + CALL_TIMEOUT).await? else {
            return Ok(None);
        };
        let took = clock.now() - start;
        // The server read its clock at an unknown moment of the call, and truncated the time to its
        // unit. The estimate takes the middle of both ranges.
        let (half_call, half_unit) = (took / 2, server.uncertainty / 2);
        let skew = ClockSkew {
            server_ahead_ms: (server.at + half_unit).millis_ahead_of(before + half_call),
            uncertainty_ms: i64::try_from((half_call + half_unit).as_millis())
                .unwrap_or(i64::MAX)
                .saturating_add(1),
        };
        if best.is_none_or(|best| skew.uncertainty_ms < best.uncertainty_ms) {
            best = Some(skew);
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_whether_the_clock_is_ahead_or_behind() {
        let text = |server_ahead_ms| ClockSkew { server_ahead_ms, uncertainty_ms: 3 }.to_string();
        assert!(
            text(5).ends_with("5 ms ahead of this machine's, give or take 3 ms"),
            "{}",
            text(5)
        );
        assert!(
            text(-5).ends_with(" 5 ms behind this machine's, give or take 3 ms"),
            "{}",
            text(-5)
        );
        assert!(!text(0).contains("ahead"), "{}", text(0));
    }
}
