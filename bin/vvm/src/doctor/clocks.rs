//! The clock of the machine, and the service that sets it.

use std::path::Path;

use clock::Clock;

use super::{finding::Finding, running};

/// No node ran before this time: the beginning of 2025, in seconds since 1970.
const EARLIEST: u64 = 1_735_689_600;

/// No node of this version runs after this time: the beginning of 2100.
const LATEST: u64 = 4_102_444_800;

/// The file by which systemd-timesyncd says that the clock is synchronized.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

/// The names of the services that set a clock.
const SERVICES: [&str; 5] = ["chronyd", "ntpd", "ptp4l", "phc2sys", "openntpd"];

pub(super) fn check(clock: &Clock) -> [Finding; 2] {
    let mut services = running::processes().map(|process| process.name);
    let service = services.find(|name| SERVICES.contains(&name.as_str()));
    let is_synchronized = Path::new(SYNCHRONIZED).exists();
    [judge(clock.wall().as_millis() / 1_000), synchronization(is_synchronized, service)]
}

/// Judges the clock by its time in seconds since 1970.
fn judge(now: u64) -> Finding {
    if (EARLIEST..LATEST).contains(&now) {
        return Finding::ok("clock", "the system clock has a possible time");
    }
    let what = format!("the system clock is wrong: {now} s since 1970");
    let advice = "set the clock, and keep it synchronized by NTP: events have its time";
    Finding::fail("clock", what, advice)
}

fn synchronization(is_synchronized: bool, service: Option<String>) -> Finding {
    match (is_synchronized, service) {
        (true, _) => Finding::ok("time service", "systemd-timesyncd has synchronized the clock"),
        (false, Some(name)) => Finding::ok("time service", format!("{name} runs")),
        (false, None) => Finding::warn(
            "time service",
            "no service that synchronizes the clock is seen",
            "run systemd-timesyncd or chrony; in a container the host does so",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Verdict, *};

    #[test]
    fn a_clock_that_is_wrong_is_found() {
        for (now, verdict) in
            [(1_800_000_000, Verdict::Ok), (5, Verdict::Fail), (LATEST, Verdict::Fail)]
        {
            let found = judge(now);
            assert_eq!(found.verdict, verdict, "{found}");
        }
        assert_eq!(synchronization(false, None).verdict, Verdict::Warn);
        assert_eq!(synchronization(true, None).verdict, Verdict::Ok);
        assert!(synchronization(false, Some("chronyd".to_owned())).what.contains("chronyd"));
    }
}
