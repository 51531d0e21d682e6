//! The clocks of the machine, and the service that sets them.

use std::{path::Path, time::Duration};

use clock::Clock;

use super::{finding::Finding, running};

/// No node ran before this time: the beginning of 2025, in seconds since 1970.
const EARLIEST: u64 = 1_735_689_600;

/// No node of this version runs after this time: the beginning of 2100.
const LATEST: u64 = 4_102_444_800;

/// How long both clocks are watched.
const SPAN: Duration = Duration::from_millis(200);

/// The most that the clocks may differ in this time. The system clock is slewed by less.
const DRIFT_MAX: Duration = Duration::from_millis(20);

/// The file that exists if systemd-timesyncd has synchronized the clock.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

/// The names of the services that set a clock.
const SERVICES: [&str; 5] = ["chronyd", "ntpd", "ptp4l", "phc2sys", "openntpd"];

pub(super) async fn check(clock: &Clock) -> [Finding; 2] {
    let (start, wall) = (clock.now(), clock.wall().as_millis());
    clock.sleep(SPAN).await;
    let monotonic = clock.now().saturating_since(start).as_millis() as u64;
    let wall_end = clock.wall().as_millis();
    let services = running::processes().map(|process| process.name);
    let service = services.into_iter().find(|name| SERVICES.contains(&name.as_str()));
    let is_synchronized = Path::new(SYNCHRONIZED).exists();
    [judge(wall, wall_end, monotonic), synchronization(is_synchronized, service)]
}

/// Judges both clocks by what they counted in a span of time, in milliseconds.
fn judge(wall: u64, wall_end: u64, monotonic: u64) -> Finding {
    const ADVICE: &str = "set the clock, and keep it synchronized by NTP: events have its time";
    if !(EARLIEST..LATEST).contains(&(wall / 1_000)) {
        let what = format!("the system clock is wrong: {} s since 1970", wall / 1_000);
        return Finding::fail("clock", what, ADVICE);
    }
    let counted = wall_end as i64 - wall as i64;
    let apart = counted.abs_diff(monotonic as i64);
    if apart > DRIFT_MAX.as_millis() as u64 {
        let what = format!("the system clock was set by about {apart} ms while it was watched");
        return Finding::warn("clock", what, ADVICE);
    }
    Finding::ok("clock", "the system clock and the monotonic clock run alike")
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
    fn a_clock_that_is_wrong_or_jumps_is_found() {
        let now = 1_800_000_000_000;
        for (wall, end, verdict) in [
            (now, now + 200, Verdict::Ok),
            (now, now + 215, Verdict::Ok),
            (now, now + 5_000, Verdict::Warn),
            (now, now - 3_600_000, Verdict::Warn),
            (5_000, 5_200, Verdict::Fail),
            (LATEST * 1_000, LATEST * 1_000 + 200, Verdict::Fail),
        ] {
            let found = judge(wall, end, 200);
            assert_eq!(found.verdict, verdict, "{found}");
        }
        assert_eq!(synchronization(false, None).verdict, Verdict::Warn);
        assert_eq!(synchronization(true, None).verdict, Verdict::Ok);
        assert!(synchronization(false, Some("chronyd".to_owned())).what.contains("chronyd"));
    }
}
