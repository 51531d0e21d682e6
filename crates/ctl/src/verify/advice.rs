//! Advice for operators of a node on this storage, from the measurements.

use std::time::Duration;

use ielections::Timing;
use istorage::Capabilities;

use super::latency::{CONDITIONAL, OperationLatency};
use crate::clock_skew::ClockSkew;

/// The p99 is multiplied by this number: it was measured with one call at a time, and a node renews
/// its lease beside its other calls.
const MARGIN: u32 = 2;

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

/// Returns the shortest lease that a storage with this p99 renews in time, in whole seconds.
///
/// A renewal is one conditional write. Each try ends after `call_timeout`, which is a share of the
/// lease. So [`MARGIN`] times the p99 must fit into `call_timeout`. A simpler rule demands that two
/// tries fit into `renew_every`: with a p99 of 100 ms, it advises a lease of 1 s. But there each
/// try ends after 50 ms. The resolution of expiry does not count, because a lease never expires
/// early.
fn shortest_lease(p99: Duration) -> Duration {
    let usual = Timing::default();
    let tries_in_lease = usual.duration.div_duration_f64(usual.call_timeout);
    Duration::from_secs(((MARGIN * p99).as_secs_f64() * tries_in_lease).ceil().max(1.0) as u64)
}

fn lease(capabilities: &Capabilities, p99: Duration) -> String {
    let (shortest, usual) = (shortest_lease(p99), Timing::default().duration);
    let measured =
        format!("a conditional write takes up to {:.1} ms (p99)", p99.as_secs_f64() * 1_000.0);
    let mut advice = if shortest > usual {
        format!(
            "Leases: {measured}: the default lease of {} s is too short for this storage; take at least {} s, or find the \
             reason for the slow calls.",
            usual.as_secs(),
            shortest.as_secs()
        )
    } else {
        format!(
            "Leases: {measured}, so leases of {} s and more leave room to renew in time (the default is {} s).",
            shortest.as_secs(),
            usual.as_secs()
        )
    };
    // At level 2 a lease must also last until late writes have landed.
    let late = capabilities.late_write;
    match Timing::shortest(late).map(|timing| timing.duration) {
        Some(level_2) if level_2 > shortest => advice.push_str(&format!(
            " At trust level 2 take at least {} s, with the usual parts of the lease: a write may land up to {late:?} after it was sent.",
            level_2.as_secs()
        )),
        Some(_) => {}
        None => advice.push_str(&format!(
            " At trust level 2 no lease is long enough: a write may land up to {late:?} after it was sent."
        )),
    }
    advice
}

#[cfg(test)]
mod tests {
    use istorage::{BatchLimits, RowLimits};

    use super::*;

    fn capabilities() -> Capabilities {
        let limits = BatchLimits { rows: 1, bytes: 1 };
        Capabilities {
            row: RowLimits { pkey: 1, ccols: 1, value: 1 },
            conditional: limits,
            atomic: Some(limits),
            ordered: None,
            expiry_resolution: Duration::ZERO,
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
        let advice = advice(&capabilities(), &swap(10), None);
        assert_eq!(advice.len(), 1);
        assert!(advice[0].contains("leases of 1 s and more"), "{}", advice[0]);
    }

    /// The advised lease was eight times the p99. Each try of a renewal ends after a twentieth of
    /// the lease, so the tries of a slow storage timed out.
    #[test]
    fn twice_the_p99_fits_into_a_try_of_a_renewal() {
        for millis in [1, 24, 25, 26, 49, 50, 51, 100, 322, 500, 501, 3_000] {
            let p99 = Duration::from_millis(millis);
            let shortest = shortest_lease(p99);
            assert!(Timing::of(shortest).call_timeout >= 2 * p99, "{p99:?}: {shortest:?}");
            let second = Duration::from_secs(1);
            let shorter = Timing::of(shortest - second);
            assert!(shortest == second || shorter.call_timeout < 2 * p99, "{p99:?}: {shortest:?}");
        }
        assert_eq!(shortest_lease(Duration::from_millis(500)), Duration::from_secs(20));
    }

    /// A node at trust level 2 refused the lease that was advised.
    #[test]
    fn late_writes_count_at_level_2() {
        let late_write = Duration::from_millis(27_100);
        let late = Capabilities { late_write, ..capabilities() };
        let at_level_2 = |p99_ms| advice(&late, &swap(p99_ms), None).remove(0);
        let long = at_level_2(10);
        assert!(long.contains("leases of 1 s and more"), "{long}");
        assert!(long.contains("At trust level 2 take at least 121 s"), "{long}");
        let longer = at_level_2(5_000);
        assert!(longer.contains("at least 200 s") && !longer.contains("level 2"), "{longer}");
    }

    #[test]
    fn a_storage_that_is_too_slow_for_the_default_lease_is_reported() {
        let advice = advice(&capabilities(), &swap(3_000), None);
        assert!(
            advice[0].contains("too short") && advice[0].contains("at least 120 s"),
            "{}",
            advice[0]
        );
    }

    #[test]
    fn only_clocks_that_surely_differ_are_named() {
        let capabilities = capabilities();
        let sure = Some(ClockSkew { server_ahead_ms: 5_000, uncertainty_ms: 501 });
        let unsure = Some(ClockSkew { server_ahead_ms: 900, uncertainty_ms: 501 });
        assert!(advice(&capabilities, &[], sure)[0].contains("5000 ms ahead of"));
        assert!(advice(&capabilities, &[], unsure).is_empty());
    }
}
