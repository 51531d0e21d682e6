//! The bounds that nodes print when they begin to wait for leadership.

use std::{fs, time::Duration};

use serde_json::Value;
use vvm_tests::bench::BenchError;

use crate::cluster::{Cluster, LEASE};

/// A bound that the nodes print is at most this many leases, plus the time for late writes. With a
/// longer one, a run would call a cluster good that stands still.
const MOST_LEASES: u32 = 4;

/// The bounds of a node, or the longest of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Printed {
    /// From the death of a leader until another node leads.
    pub(crate) failover: Duration,
    /// From the last renewal of a leader with a slow storage until another node leads.
    pub(crate) failover_of_slow: Duration,
    /// From the death of an owner until other nodes have its partitions.
    pub(crate) takeover: Duration,
    /// From the loss of the leadership until the process has ended.
    pub(crate) stop: Duration,
}

impl Printed {
    /// The longest bounds of all nodes of a cluster that has started.
    ///
    /// # Errors
    /// If a node printed none. Without them nothing would be judged.
    pub(crate) fn of_cluster(cluster: &Cluster) -> Result<Printed, BenchError> {
        let mut longest: Option<Printed> = None;
        for node in &cluster.nodes {
            let log = node.log();
            let text = fs::read_to_string(&log)?;
            let printed = Printed::of_log(&text).ok_or_else(|| {
                let (name, log) = (&node.name, log.display());
                format!("{name} printed no bounds: {log} has no line with all of {FIELDS:?}")
            })?;
            longest = Some(longest.map_or(printed, |longest| longest.max(printed)));
        }
        Ok(longest.ok_or("a cluster without nodes prints no bounds")?)
    }

    /// The violations of bounds that are longer than the lease allows.
    pub(super) fn excess(&self, late_write: Duration) -> Vec<String> {
        let Printed { failover, failover_of_slow, takeover, stop } = *self;
        let bounds = FIELDS.into_iter().zip([failover, failover_of_slow, takeover, stop]);
        let most = LEASE * MOST_LEASES + late_write;
        let long = bounds.filter(|(_, bound)| *bound > most);
        let text = |(name, bound)| format!("a node prints {name} {bound:?}, more than {most:?}");
        long.map(text).collect()
    }

    /// The bounds that the log of a node has last.
    fn of_log(text: &str) -> Option<Printed> {
        text.lines().rev().find_map(Printed::of_line)
    }

    fn of_line(line: &str) -> Option<Printed> {
        if !line.contains(FIELDS[1]) {
            return None;
        }
        let line: Value = serde_json::from_str(line).ok()?;
        let [failover, failover_of_slow, takeover, stop] =
            FIELDS.map(|name| duration(line["fields"][name].as_str()?));
        Some(Printed {
            failover: failover?,
            failover_of_slow: failover_of_slow?,
            takeover: takeover?,
            stop: stop?,
        })
    }

    fn max(self, other: Printed) -> Printed {
        Printed {
            failover: self.failover.max(other.failover),
            failover_of_slow: self.failover_of_slow.max(other.failover_of_slow),
            takeover: self.takeover.max(other.takeover),
            stop: self.stop.max(other.stop),
        }
    }
}

const FIELDS: [&str; 4] = ["failover", "failover_of_slow", "takeover", "stop"];

/// Reads a duration as `Debug` writes it.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(unit);
    let unit = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"timestamp":"2026-11-28T06:03:58.020707Z","level":"INFO","fields":{"message":"waiting for leadership","failover":"13.488s","failover_of_slow":"17.488s","takeover":"21.988s","stop":"6s"},"target":"vvm::leading"}"#;

    #[test]
    fn the_last_line_with_bounds_counts() {
        let log = format!("{}\n{LINE}\n{{\"fields\":{{}}}}\n", LINE.replace("21.988", "9.5"));
        let millis = Duration::from_millis;
        let printed = Printed {
            failover: millis(13_488),
            failover_of_slow: millis(17_488),
            takeover: millis(21_988),
            stop: millis(6_000),
        };
        assert_eq!(Printed::of_log(&log), Some(printed));
        let short = Printed::of_log(&LINE.replace("13.488s", "850ms")).unwrap();
        assert_eq!(short.failover, millis(850));
        assert_eq!(short.max(printed), printed);
    }

    /// A run judges a cluster by the bounds that it prints.
    #[test]
    fn a_bound_that_is_far_longer_than_the_lease_is_found() {
        let printed = Printed::of_log(LINE).unwrap();
        assert_eq!(printed.excess(Duration::ZERO), [""; 0]);
        for name in FIELDS {
            let (before, rest) = LINE.split_once(&format!("\"{name}\":\"")).unwrap();
            let (_, after) = rest.split_once('"').unwrap();
            let line = format!("{before}\"{name}\":\"33s\"{after}");
            let long = Printed::of_log(&line).unwrap();
            let excess = long.excess(Duration::ZERO);
            assert_eq!(excess, [format!("a node prints {name} 33s, more than 32s")]);
            assert_eq!(long.excess(Duration::from_secs(1)), [""; 0]);
        }
    }

    #[test]
    fn a_line_that_changed_is_no_line_with_bounds() {
        for changed in ["failover_of_slow", "takeover", "\"stop\""] {
            assert_eq!(Printed::of_log(&LINE.replace(changed, "\"other\"")), None, "{changed}");
        }
        assert_eq!(Printed::of_log(&LINE.replace("21.988s", "21.988")), None);
        assert_eq!(Printed::of_log(&LINE.replace("21.988s", "2 minutes")), None);
    }

    #[test]
    fn durations_are_read_in_all_units() {
        for written in [
            Duration::from_secs(90),
            Duration::from_millis(850),
            Duration::from_micros(1_500),
            Duration::from_micros(20),
            Duration::from_nanos(7),
            Duration::ZERO,
        ] {
            assert_eq!(duration(&format!("{written:?}")), Some(written));
        }
    }
}
