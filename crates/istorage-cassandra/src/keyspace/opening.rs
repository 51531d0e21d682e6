//! Waits until enough servers agree whether a keyspace exists.

use std::{mem, time::Duration};

use base::with_causes;
use clock::{Clock, Instant};
use istorage::{Error, ErrorKind, KeyspaceName, Result};
use scylla::client::session::Session;

use super::{
    retry::{LastFailure, pause},
    survey::{Survey, survey},
    view::KeyspaceView,
};

/// How long a server may take to answer when a keyspace is opened. The time doubles with each new
/// survey, up to [`MAX_ANSWER_TIMEOUT`], because more than half of the servers may be slow.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER_TIMEOUT: Duration = Duration::from_secs(16);

/// How long to wait for servers that answer, but do not show a keyspace yet or refuse to show it.
const LATE_SERVER_WAIT: Duration = Duration::from_secs(5);

/// Whether the keyspace exists and more than half of the servers of the datacenter answer queries
/// of it.
pub(crate) async fn exists(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    datacenter: Option<&str>,
    last_failure: &mut LastFailure,
) -> Result<bool> {
    let mut opening = Opening::new(name, clock.now());
    let mut answer = FIRST_ANSWER_TIMEOUT;
    loop {
        let survey = survey(session, clock, name, datacenter, clock.now() + answer).await;
        // A server that is only slow gets more time on the next attempt.
        answer = MAX_ANSWER_TIMEOUT.min(2 * answer);
        match opening.judge(survey, clock.now()) {
            Ok(exists) => return Ok(exists),
            Err(why) => pause(clock, Err(why), last_failure).await?,
        }
    }
}

/// The state of waiting until the servers agree whether a keyspace exists.
struct Opening<'a> {
    name: &'a KeyspaceName,
    patient_until: Instant,
    is_logged: bool,
}

impl Opening<'_> {
    fn new(name: &KeyspaceName, now: Instant) -> Opening<'_> {
        Opening { name, patient_until: now + LATE_SERVER_WAIT, is_logged: false }
    }

    /// Whether the keyspace exists. Logs once that the node waits for servers, with the reason.
    ///
    /// # Errors
    /// `Unavailable` while the servers do not agree.
    fn judge(&mut self, survey: Result<Survey>, now: Instant) -> Result<bool> {
        let may_differ = now >= self.patient_until;
        let survey = match survey {
            // Cassandra shows a new table before it grants the creator's permissions for the table.
            Err(refused) if refused.kind() == ErrorKind::Invalid && !may_differ => {
                let reason = "a Cassandra server refuses a query about a keyspace";
                return Err(Error::unavailable(reason).with_source(refused));
            }
            survey => survey?,
        };
        match survey.verdict(may_differ) {
            Some(KeyspaceView::Missing | KeyspaceView::Empty(_)) => return Ok(false),
            Some(KeyspaceView::Ready(_)) => return Ok(true),
            Some(KeyspaceView::Unfinished) | None => {}
        }
        let error = survey.disagreement(self.name);
        if may_differ && !mem::replace(&mut self.is_logged, true) {
            tracing::warn!(keyspace = %self.name, error = with_causes(&error), "waiting for Cassandra servers");
        }
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;
    use scylla::value::CqlValue;
    use tck::trial::LogLines;

    use super::*;

    /// A node that started while two of three servers were dead ended after a minute. Its log did
    /// not name the servers that it waited for.
    #[test]
    fn a_node_that_waits_for_servers_logs_the_reason_once_after_5_s() {
        let (lines, _guard) = LogLines::of_this_thread();
        let logged = || lines.all();
        let (start, name) =
            (ManualClock::new(1).clock().now(), KeyspaceName::new("app_one").unwrap());
        let mut opening = Opening::new(&name, start);
        let mut judge = |servers: usize, seconds| {
            let unconnected = (servers..3).map(|dead| format!("127.0.0.{dead}:9042")).collect();
            let found = vec![KeyspaceView::Ready(CqlValue::Int(1)); servers];
            let survey = Survey { servers: 3, found, unconnected, silent: None };
            opening.judge(Ok(survey), start + Duration::from_secs(seconds))
        };
        for seconds in 0..5 {
            assert_eq!(judge(1, seconds).unwrap_err().kind(), ErrorKind::Unavailable);
            assert_eq!(logged(), [""; 0], "after {seconds} s");
        }
        for seconds in 5..60 {
            assert!(judge(1, seconds).is_err());
            let [line] = &logged()[..] else { panic!("after {seconds} s: {:?}", logged()) };
            for part in
                ["WARN", "waiting for Cassandra servers", "app_one", "1 of 3", "127.0.0.2:9042"]
            {
                assert!(line.contains(part), "{line}");
            }
        }
        assert!(judge(2, 60).unwrap(), "one of the dead servers came back");
    }

    /// Two nodes started together on a cluster with permissions. One saw the table of the other
    /// before it had the permissions for it, and ended.
    #[test]
    fn a_missing_permission_is_reported_only_after_5_s() {
        let name = KeyspaceName::new("app_one").unwrap();
        let start = ManualClock::new(1).clock().now();
        let mut opening = Opening::new(&name, start);
        let mut kind_after = |seconds| {
            let refused = Err(Error::invalid("no permission"));
            opening.judge(refused, start + Duration::from_secs(seconds)).unwrap_err().kind()
        };
        assert_eq!(kind_after(4), ErrorKind::Unavailable);
        assert_eq!(kind_after(5), ErrorKind::Invalid);
    }
}
