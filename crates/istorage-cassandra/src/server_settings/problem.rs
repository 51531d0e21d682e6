//! The judgement of a server's settings.

use std::{collections::BTreeMap, time::Duration};

use crate::limits::{LATE_WRITE, SERVER_QUEUE, SERVER_WORK};

const PAXOS_VARIANT: &str = "paxos_variant";
const TRANSPORT_TIMEOUT: &str = "native_transport_timeout";
const WRITE_TIMEOUT: &str = "write_request_timeout";
const CAS_TIMEOUT: &str = "cas_contention_timeout";
const TIMESTAMP_WARN: &str = "minimum_timestamp_warn_threshold";
const TIMESTAMP_FAIL: &str = "minimum_timestamp_fail_threshold";

/// The names of the settings that this module judges.
pub(super) const NAMES: [&str; 6] =
    [PAXOS_VARIANT, TRANSPORT_TIMEOUT, WRITE_TIMEOUT, CAS_TIMEOUT, TIMESTAMP_WARN, TIMESTAMP_FAIL];

/// A setting of a server that may make the storage break a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingProblem {
    /// The name of the setting in `cassandra.yaml`.
    pub setting: &'static str,
    /// The value, the promise that may be broken, and what to do.
    pub what: String,
    /// Whether a node refuses to work with the server.
    pub is_fatal: bool,
}

/// Judges the settings of a server that tells them. A setting without a value is not set, or this
/// version of the server does not have it.
///
/// Guardrails apply to users that log in (`Guardrail.enabled` and `ClientState.isSuper` of
/// Cassandra 5.0). They do not apply to superusers either, but a node need not be one.
pub(super) fn of_values(values: &BTreeMap<String, String>, logs_in: bool) -> Vec<SettingProblem> {
    let value = |name: &str| values.get(name).map(String::as_str);
    let guardrail = |name| value(name).filter(|_| logs_in);
    let reads = value(PAXOS_VARIANT).and_then(of_paxos_variant).into_iter();
    let refused = guardrail(TIMESTAMP_FAIL).map(|limit| {
        let what = format!(
            "minimum_timestamp_fail_threshold is {limit}: the server refuses ordered writes, because their timestamps are negative; remove this setting"
        );
        SettingProblem { setting: TIMESTAMP_FAIL, what, is_fatal: true }
    });
    let warned = guardrail(TIMESTAMP_WARN).map(|limit| {
        let what = format!(
            "minimum_timestamp_warn_threshold is {limit}: the server warns of ordered writes, because their timestamps are negative; remove this setting"
        );
        SettingProblem { setting: TIMESTAMP_WARN, what, is_fatal: false }
    });
    let unbounded = value(TRANSPORT_TIMEOUT).is_none().then(|| {
        let what = format!(
            "the server has no native_transport_timeout, so a write may wait in the server for any time and land later than {LATE_WRITE:?} after it was sent: do not use trust level 2, or use Cassandra 5.0, or 4.1.6 and later"
        );
        SettingProblem { setting: TRANSPORT_TIMEOUT, what, is_fatal: false }
    });
    // The servers agree on a conditional write until `cas_contention_timeout`, and commit it until
    // `write_request_timeout`. Each of the two may take half of the time that a server works.
    let timeouts = [
        (TRANSPORT_TIMEOUT, SERVER_QUEUE),
        (WRITE_TIMEOUT, SERVER_WORK / 2),
        (CAS_TIMEOUT, SERVER_WORK / 2),
    ];
    let late = timeouts.into_iter().filter_map(|(name, most)| of_timeout(name, value(name)?, most));
    reads.chain(refused).chain(warned).chain(unbounded).chain(late).collect()
}

/// `Config.PaxosVariant` of Cassandra says that the variants
/// `v1_without_linearizable_reads_or_rejected_writes`, `v2_without_linearizable_reads` and
/// `v2_without_linearizable_reads_or_rejected_writes` do not guarantee linearizable reads.
fn of_paxos_variant(variant: &str) -> Option<SettingProblem> {
    let what = format!(
        "paxos_variant is {variant}: reads are not linearizable, so a new leader may miss acknowledged events; set `v1` or `v2` on all servers"
    );
    let is_unsafe = variant.contains("_without_linearizable_reads");
    is_unsafe.then_some(SettingProblem { setting: PAXOS_VARIANT, what, is_fatal: true })
}

fn of_timeout(setting: &'static str, value: &str, most: Duration) -> Option<SettingProblem> {
    let what = format!(
        "{setting} is {value}, and must be at most {most:?}: a write may land later than {LATE_WRITE:?} after it was sent, so trust level 2 is not safe; shorten it, or do not use trust level 2"
    );
    let is_longer = duration(value).is_none_or(|time| time > most);
    is_longer.then_some(SettingProblem { setting, what, is_fatal: false })
}

/// Reads a duration as a server shows it: a number and a unit, as `DurationSpec.toString` of
/// Cassandra 4.1 and 5.0.
fn duration(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs);
    match unit {
        "ns" => Some(Duration::from_nanos(number)),
        "us" | "µs" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3_600),
        "d" => seconds(86_400),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of Cassandra 5.0, with other values of some settings. An empty value stands for
    /// a setting that is not set.
    fn problems(changed: &[(&str, &str)]) -> Vec<(&'static str, bool)> {
        let defaults = [
            (PAXOS_VARIANT, "v1"),
            (TRANSPORT_TIMEOUT, "12s"),
            (WRITE_TIMEOUT, "2000ms"),
            (CAS_TIMEOUT, "1800ms"),
        ];
        let mut values = BTreeMap::from(defaults);
        values.extend(changed.iter().copied());
        let set = values.into_iter().filter(|(_, value)| !value.is_empty());
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let problems = of_values(&set, true).into_iter();
        problems.map(|problem| (problem.setting, problem.is_fatal)).collect()
    }

    #[test]
    fn the_defaults_have_no_problem() {
        assert_eq!(problems(&[]), []);
        assert_eq!(problems(&[(PAXOS_VARIANT, "v2"), (TRANSPORT_TIMEOUT, "12000ms")]), []);
        assert_eq!(problems(&[(PAXOS_VARIANT, "")]), [], "Cassandra 4.0 has v1 alone");
    }

    /// A node worked with servers whose reads were not linearizable. A new leader could miss an
    /// event that was acknowledged.
    #[test]
    fn reads_that_are_not_linearizable_are_refused() {
        for variant in [
            "v1_without_linearizable_reads_or_rejected_writes",
            "v2_without_linearizable_reads",
            "v2_without_linearizable_reads_or_rejected_writes",
        ] {
            assert_eq!(problems(&[(PAXOS_VARIANT, variant)]), [(PAXOS_VARIANT, true)]);
        }
    }

    #[test]
    fn a_limit_for_timestamps_of_the_past_is_refused_or_named() {
        assert_eq!(problems(&[(TIMESTAMP_FAIL, "1d")]), [(TIMESTAMP_FAIL, true)]);
        assert_eq!(problems(&[(TIMESTAMP_WARN, "1d")]), [(TIMESTAMP_WARN, false)]);
        let set = [(TIMESTAMP_FAIL, "1d"), (TRANSPORT_TIMEOUT, "12s")];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(of_values(&set, false), [], "a guardrail needs a user");
    }

    /// The lease of trust level 2 reserves time for late writes, and nothing checked how late the
    /// servers may write.
    #[test]
    fn timeouts_that_let_writes_land_too_late_are_named() {
        assert_eq!(problems(&[(TRANSPORT_TIMEOUT, "")]), [(TRANSPORT_TIMEOUT, false)]);
        for (name, value) in [
            (TRANSPORT_TIMEOUT, "12001ms"),
            (TRANSPORT_TIMEOUT, "1m"),
            (WRITE_TIMEOUT, "15s"),
            (CAS_TIMEOUT, "2001ms"),
            (CAS_TIMEOUT, "soon"),
        ] {
            assert_eq!(problems(&[(name, value)]), [(name, false)], "{name}: {value}");
        }
    }

    #[test]
    fn durations_are_read_as_servers_show_them() {
        let millis = |text| duration(text).map(|time| time.as_millis());
        assert_eq!(millis("12s"), Some(12_000));
        assert_eq!(millis("12000ms"), Some(12_000));
        assert_eq!(millis("2000000us"), Some(2_000));
        assert_eq!(millis("1d"), Some(86_400_000));
        for text in ["", "12", "s", "-1s", "1 s", "99999999999999999999s", "18446744073709551615d"]
        {
            assert_eq!(millis(text), None, "{text}");
        }
    }
}
