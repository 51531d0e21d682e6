//! The end of a request, and the decision whether a client sends the request again.
//!
//! A client does what a plain load balancer does: it goes on with the next node only if nothing was
//! done. A request that may be done twice is also sent again if its outcome is not known.

use std::time::Duration;

use clock::Instant;
use hyper::StatusCode;

use crate::client::NodeAnswer;

/// The pause after a failed request, or after a failed try on each node: a partition may be on its
/// way to another node.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The end of a try, or of a request after all its tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestEnd {
    Done,
    /// Nothing was done. Another node may do the request.
    Refused(String),
    /// The request may have been done.
    Unknown(String),
    /// The node answered with another error. Another try would change nothing.
    Wrong {
        why: String,
        kind: EndKind,
    },
}

/// The end of a request, as the logs must show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndKind {
    Done,
    NotDone,
    Unknown,
}

impl RequestEnd {
    pub(super) fn of(answer: &NodeAnswer) -> RequestEnd {
        let why = || answer.code();
        match answer.status {
            status if status.is_success() => RequestEnd::Done,
            StatusCode::SERVICE_UNAVAILABLE => RequestEnd::Refused(why()),
            StatusCode::GATEWAY_TIMEOUT => RequestEnd::Unknown(why()),
            status if status.is_client_error() => {
                RequestEnd::Wrong { why: why(), kind: EndKind::NotDone }
            }
            // A command that is answered with 500 `not_applied` is in the log.
            _ => RequestEnd::Wrong { why: why(), kind: EndKind::Unknown },
        }
    }

    pub(super) fn kind(&self) -> EndKind {
        match self {
            RequestEnd::Done => EndKind::Done,
            RequestEnd::Refused(_) => EndKind::NotDone,
            RequestEnd::Unknown(_) => EndKind::Unknown,
            RequestEnd::Wrong { kind, .. } => *kind,
        }
    }

    /// Returns the end of a request with an earlier try that may have done it.
    fn after_unknown(self) -> RequestEnd {
        match self {
            RequestEnd::Refused(why) => RequestEnd::Unknown(why),
            RequestEnd::Wrong { why, .. } => RequestEnd::Wrong { why, kind: EndKind::Unknown },
            end => end,
        }
    }
}

/// The tries of one request.
#[derive(Debug)]
pub(super) struct RequestTries {
    /// The number of nodes. A client of one node sends each request once.
    nodes: usize,
    can_be_done_twice: bool,
    until: Instant,
    count: usize,
    was_unknown: bool,
}

/// The next try of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextTry {
    /// The time to wait before the try. It is zero until each node was asked.
    pub(super) pause: Duration,
    /// The reason for the try.
    pub(super) why: String,
}

impl RequestTries {
    pub(super) fn new(nodes: usize, can_be_done_twice: bool, until: Instant) -> RequestTries {
        RequestTries { nodes, can_be_done_twice, until, count: 0, was_unknown: false }
    }

    /// Notes the end of a try. Returns the next try, or the end of the request.
    pub(super) fn next(&mut self, end: RequestEnd, now: Instant) -> Result<NextTry, RequestEnd> {
        self.count += 1;
        let why = match &end {
            RequestEnd::Refused(why) => Some(why.clone()),
            RequestEnd::Unknown(why) => self.can_be_done_twice.then(|| why.clone()),
            RequestEnd::Done | RequestEnd::Wrong { .. } => None,
        };
        match why.filter(|_| self.nodes > 1 && now + PAUSE < self.until) {
            Some(why) => {
                self.was_unknown |= matches!(end, RequestEnd::Unknown(_));
                let is_round = self.count.is_multiple_of(self.nodes);
                Ok(NextTry { pause: if is_round { PAUSE } else { Duration::ZERO }, why })
            }
            None if self.was_unknown => Err(end.after_unknown()),
            None => Err(end),
        }
    }

    /// Whether there was more than one try.
    pub(super) fn were_several(&self) -> bool {
        self.count > 1
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    fn refused() -> RequestEnd {
        RequestEnd::Refused("stopping".to_owned())
    }

    fn unknown() -> RequestEnd {
        RequestEnd::Unknown("cut".to_owned())
    }

    fn wrong(kind: EndKind) -> RequestEnd {
        RequestEnd::Wrong { why: "no".to_owned(), kind }
    }

    #[test]
    fn only_requests_of_which_nothing_was_done_go_to_the_next_node() {
        let now = ManualClock::new(1).clock().now();
        let is_sent_again = |nodes, has_key, end: RequestEnd| {
            let until = now + Duration::from_secs(60);
            RequestTries::new(nodes, has_key, until).next(end, now).is_ok()
        };
        for (end, with_key, without_key) in [
            (RequestEnd::Done, false, false),
            (refused(), true, true),
            (unknown(), true, false),
            (wrong(EndKind::NotDone), false, false),
            (wrong(EndKind::Unknown), false, false),
        ] {
            assert_eq!(is_sent_again(3, true, end.clone()), with_key, "{end:?}");
            assert_eq!(is_sent_again(3, false, end.clone()), without_key, "{end:?}");
            assert!(!is_sent_again(1, true, end.clone()), "{end:?}");
        }
    }

    #[test]
    fn a_client_pauses_when_it_has_asked_each_node() {
        let now = ManualClock::new(1).clock().now();
        let mut tries = RequestTries::new(3, false, now + Duration::from_secs(60));
        let pauses: Vec<_> = (0..6).map(|_| tries.next(refused(), now).unwrap().pause).collect();
        let none = Duration::ZERO;
        assert_eq!(pauses, [none, none, PAUSE, none, none, PAUSE]);
    }

    /// A command with a key was cut off at its owner, and then refused until its time was over. The
    /// bench counted it as not done, and `--check` reported an event that the cut try had written.
    #[test]
    fn a_refusal_after_an_unknown_try_is_unknown() {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        for last in [refused(), wrong(EndKind::NotDone)] {
            let mut tries = RequestTries::new(2, true, clock.now() + Duration::from_secs(60));
            assert_eq!(tries.next(unknown(), clock.now()).unwrap().why, "cut");
            manual.advance(Duration::from_secs(60));
            assert_eq!(tries.next(last, clock.now()).unwrap_err().kind(), EndKind::Unknown);
            assert!(tries.were_several());
        }
    }

    /// The last try began after the time was over, and ended at once as unknown.
    #[test]
    fn a_request_that_was_only_refused_ends_as_refused() {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        let until = clock.now() + Duration::from_secs(60);
        let mut tries = RequestTries::new(2, false, until);
        while let Ok(next) = tries.next(refused(), clock.now()) {
            manual.advance(next.pause);
            assert!(clock.now() < until, "a try begins when its time is over");
        }
        assert_eq!(tries.next(refused(), clock.now()), Err(refused()));
    }
}
