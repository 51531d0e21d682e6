//! Advice for operators of a node on this storage, from the measurements.

use std::time::Duration;

use istorage::Capabilities;

use crate::{
    clock_skew::ClockSkew,
    latency::{CONDITIONAL, OperationLatency},
};

/// The default length of a lease.
const DEFAULT_LEASE: Duration = Duration::from_secs(20);

/// Advice names a difference of the clocks only above this limit.
const SKEW_TOLERATED_MS: i64 = 500;

/// Returns the advice, the most important first.
pub(crate) fn advice(
    capabilities: &Capabilities,
    latencies: &[OperationLatency],
    skew: Option<ClockSkew>,
) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(conditional) = latencies.iter().find(|latency| latency.operation == CONDITIONAL) {
        advice.push(lease(capabilities, conditional.p99));
    }
    match skew {
        Some(skew) if skew.server_ahead_ms.abs() - skew.uncertainty_ms > SKEW_TOLERATED_MS => {
            advice.push(format!("{skew}: synchronize them, for example with NTP."));
        }
        _ => {}
    }
    if capabilities.atomic.is_none() {
        advice.push(
            "This storage does not write atomically across partitions: each partition of a command needs a call of its own."
                .to_owned(),
        );
    }
    advice
}

/// Returns the shortest lease that leaves time to renew. A lease is renewed after every quarter of
/// its length. In a quarter there must be time for a slow renewal and for one more try. The time by
/// which the storage rounds is added.
fn shortest_lease(capabilities: &Capabilities, p99: Duration) -> Duration {
    let renewal = 2 * p99;
    let whole_seconds = (4 * renewal + capabilities.expiry_delay()).as_secs_f64().ceil();
    Duration::from_secs_f64(whole_seconds.max(1.0))
}

fn lease(capabilities: &Capabilities, p99: Duration) -> String {
    let shortest = shortest_lease(capabilities, p99);
    let measured =
        format!("a conditional write takes up to {:.1} ms (p99)", p99.as_secs_f64() * 1_000.0);
    if shortest > DEFAULT_LEASE {
        format!(
            "Leases: {measured}: the default lease of {} s is too short for this storage; take at least {} s, or find the \
             reason for the slow calls.",
            DEFAULT_LEASE.as_secs(),
            shortest.as_secs()
        )
    } else {
        format!(
            "Leases: {measured}, so leases of {} s and more leave room to renew in time (the default is {} s).",
            shortest.as_secs(),
            DEFAULT_LEASE.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use istorage::{BatchLimits, RowLimits};

    use super::*;

    fn capabilities(expiry_resolution: Duration) -> Capabilities {
        let limits = BatchLimits { rows: 1, bytes: 1 };
        Capabilities {
            row: RowLimits { pkey: 1, ccols: 1, value: 1 },
            conditional: limits,
            atomic: Some(limits),
            ordered: None,
            expiry_resolution,
            expiry_is_watched: false,
            late_write: Duration::ZERO,
        }
    }

    fn swap(p99_ms: u64) -> Vec<OperationLatency> {
        let time = Duration::from_millis(p99_ms);
        vec![OperationLatency { operation: CONDITIONAL, calls: 1, p50: time, p99: time }]
    }

    #[test]
    fn a_quick_storage_allows_short_leases() {
        let advice = advice(&capabilities(Duration::ZERO), &swap(10), None);
        assert_eq!(advice.len(), 1);
        assert!(advice[0].contains("leases of 1 s and more"), "{}", advice[0]);
    }

    #[test]
    fn a_lease_has_room_for_two_slow_renewals_a_quarter_and_for_rounding() {
        let capabilities = capabilities(Duration::from_secs(1));
        // The sum is 4 * 2 * 500 ms, and twice the resolution.
        let shortest = shortest_lease(&capabilities, Duration::from_millis(500));
        assert_eq!(shortest, Duration::from_secs(6));
    }

    /// If each node watches the leases, the resolution of the storage applies only to other rows.
    /// The lease that was advised for DynamoDB was 4 s too long.
    #[test]
    fn a_storage_whose_leases_are_watched_rounds_no_lease() {
        let capabilities = capabilities(Duration::from_secs(2));
        let capabilities = Capabilities { expiry_is_watched: true, ..capabilities };
        let shortest = shortest_lease(&capabilities, Duration::from_millis(500));
        assert_eq!(shortest, Duration::from_secs(4));
    }

    #[test]
    fn a_storage_that_is_too_slow_for_the_default_lease_is_reported() {
        let advice = advice(&capabilities(Duration::ZERO), &swap(3_000), None);
        assert!(
            advice[0].contains("too short") && advice[0].contains("at least 24 s"),
            "{}",
            advice[0]
        );
    }

    #[test]
    fn only_clocks_that_surely_differ_are_named() {
        let capabilities = capabilities(Duration::ZERO);
        let sure = Some(ClockSkew { server_ahead_ms: 5_000, uncertainty_ms: 501 });
        let unsure = Some(ClockSkew { server_ahead_ms: 900, uncertainty_ms: 501 });
        assert!(advice(&capabilities, &[], sure)[0].contains("5000 ms ahead of"));
        assert!(advice(&capabilities, &[], unsure).is_empty());
    }
}
