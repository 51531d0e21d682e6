//! The certificates of the ports.

use clock::Clock;
use http_server::CERTIFICATE_WARN_DAYS;

use super::finding::Finding;
use crate::serve::NodeTls;

const DAY: u64 = 24 * 3_600;

pub(super) fn check(tls: &NodeTls, clock: &Clock) -> Vec<Finding> {
    let now = clock.wall().as_millis() / 1_000;
    tls.certificate_ends().map(|(port, ends)| judge(port, ends, now)).collect()
}

/// Judges a certificate by its end and the present, both in seconds since 1970.
fn judge(port: &str, ends: u64, now: u64) -> Finding {
    const CHECK: &str = "certificate";
    let advice = format!("replace the files of `{port}`; a node that runs needs no restart");
    if ends <= now {
        let what = format!("the certificate of `{port}` has expired: clients refuse it");
        return Finding::fail(CHECK, what, advice);
    }
    let days = (ends - now) / DAY;
    let what = format!("the certificate of `{port}` ends in {days} days");
    match days < CERTIFICATE_WARN_DAYS {
        true => Finding::warn(CHECK, what, advice),
        false => Finding::ok(CHECK, what),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Verdict, *};

    #[test]
    fn a_certificate_is_judged_by_its_end() {
        let now = 1_800_000_000;
        for (ends, verdict) in [
            (now - 1, Verdict::Fail),
            (now, Verdict::Fail),
            (now + DAY, Verdict::Warn),
            (now + CERTIFICATE_WARN_DAYS * DAY - 1, Verdict::Warn),
            (now + CERTIFICATE_WARN_DAYS * DAY, Verdict::Ok),
        ] {
            let found = judge("http.tls", ends, now);
            assert_eq!(found.verdict, verdict, "{found}");
        }
    }
}
