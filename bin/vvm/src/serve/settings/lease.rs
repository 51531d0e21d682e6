//! The check of the lease, with the parts that the operator set.

use std::time::Duration;

use ctl::{CommandError, StorageTarget};
use eventlog::TrustLevel;
use ielections::{Budget, Timing};
use vvm::{InvalidNodeSettings, NodeSettings};

use crate::config::{NodeConfig, Seconds, VvmConfig};

/// The least difference of clocks that a lease must allow for at trust level 2, where the clocks of
/// several servers judge expiry. `vvm storage verify` reports a difference only above this time, so
/// an operator cannot know that the clocks differ by less.
const LEAST_SKEW: Duration = Duration::from_millis(500);

/// A part of the lease that an operator can set.
type Part = (&'static str, fn(&mut NodeConfig) -> &mut Option<Seconds>);

const PARTS: [Part; 5] = [
    ("stop_grace_seconds", |node| &mut node.stop_grace_seconds),
    ("renew_call_seconds", |node| &mut node.renew_call_seconds),
    ("renew_retry_seconds", |node| &mut node.renew_retry_seconds),
    ("renew_seconds", |node| &mut node.renew_seconds),
    ("clock_skew_seconds", |node| &mut node.clock_skew_seconds),
];

/// Checks that the parts of the lease fit into the lease. The error names the key that is in the
/// way: a part that was set, or the lease.
pub(super) fn check_lease(
    config: &VvmConfig,
    target: &StorageTarget,
    settings: &NodeSettings,
    levels: &[TrustLevel],
) -> Result<(), CommandError> {
    let late_write = target.capabilities().late_write;
    let node = &config.node;
    let is_level_2 = levels.contains(&TrustLevel::Two);
    let reserved = if is_level_2 { late_write } else { Duration::ZERO };
    let of = |node: &NodeConfig| Timing { late_write: reserved, ..node.timing() };
    let fits = |node: &NodeConfig| Budget::new(of(node), Duration::ZERO).is_ok();
    let wrong = |why: String| config.source.wrong(&["node", culprit(node, fits)], why);
    // The parts that are not set grow with the lease.
    let split = |lease| Timing { late_write: reserved, ..node.timing_of(lease) };
    let shortest = Timing::shortest_of(split).map(|timing| timing.duration);
    match settings.lease_for(levels.iter().copied(), late_write) {
        Ok(lease) => {
            let advice = |lease: Duration| {
                let lease = lease.as_secs();
                format!(
                    "; if the other parts grow with the lease, take a lease of {lease} s or more"
                )
            };
            let advice = shortest.map(advice).unwrap_or_default();
            Budget::new(lease, Duration::ZERO).map_err(|bad| wrong(format!("{bad}{advice}")))?;
        }
        Err(InvalidNodeSettings::ShortLease { lease, late_write, shortest: usual }) => {
            let note = match (shortest, usual) {
                (None, Some(_)) => ", with the usual parts of the lease",
                _ => "",
            };
            let shortest = shortest.or(usual);
            let bad = InvalidNodeSettings::ShortLease { lease, late_write, shortest };
            return Err(wrong(format!("{bad}{note}")));
        }
        Err(bad) => return Err(wrong(bad.to_string())),
    }
    let skew = node.timing().clock_skew;
    if is_level_2 && matches!(target, StorageTarget::Cassandra(_)) && skew < LEAST_SKEW {
        let why = format!(
            "the clocks of the servers of Cassandra judge the lease, and trust level 2 depends on the lease: {skew:?} is too little for the difference of these clocks; set {} or more, or leave the key out",
            LEAST_SKEW.as_secs_f64()
        );
        return Err(config.source.wrong(&["node", "clock_skew_seconds"], why));
    }
    Ok(())
}

/// The key to change so that the settings fit: the part that was set and whose usual value would
/// fit, or else the lease. If several parts are in the way, the last one of them.
pub(super) fn culprit(node: &NodeConfig, fits: impl Fn(&NodeConfig) -> bool) -> &'static str {
    let mut usual = node.clone();
    for (key, part) in PARTS {
        let mut alone = node.clone();
        if part(&mut alone).take().is_some() && fits(&alone) {
            return key;
        }
    }
    for (key, part) in PARTS {
        if part(&mut usual).take().is_some() && fits(&usual) {
            return key;
        }
    }
    "lease_seconds"
}
