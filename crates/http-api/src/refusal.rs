//! The problem of a request that a partition refuses.

use std::time::Duration;

use http_server::problem::{NO_NUMBER, NOT_OWNER, ProblemDetails, UNKNOWN};
use hyper::StatusCode;
use processor::{Busy, Refused, RejectionKind};

/// The longest time that a client is told to wait because a queue is full.
const LONGEST_QUEUE_PAUSE: Duration = Duration::from_secs(60);

/// The problem of a command that a partition refused.
pub(crate) fn problem_of(refused: Refused) -> ProblemDetails {
    let reason = refused.to_string();
    match refused {
        Refused::Busy(busy) => {
            let code = match &busy {
                Busy::QueueFull { .. } => "queue_full",
                Busy::Recovering(_) => "recovering",
                Busy::Violation(_) => "violation",
                Busy::LeadershipLost(_) => NOT_OWNER,
                Busy::Failed(_) => "failed",
                Busy::Stopping => "stopping",
                Busy::TimedOut => "timed_out",
                Busy::Storage(_) => "storage",
                Busy::WroteTooMuch(pause) => {
                    return ProblemDetails::rate_limited(reason).retry_after(*pause);
                }
            };
            let problem = ProblemDetails::unavailable(code, reason);
            match busy {
                // The partition may soon be much faster again.
                Busy::QueueFull { retry_after, .. } => {
                    problem.retry_after(retry_after.min(LONGEST_QUEUE_PAUSE))
                }
                _ => problem,
            }
        }
        Refused::Rejected(rejection) => {
            let (status, code) = match rejection.kind {
                RejectionKind::Invalid => (StatusCode::BAD_REQUEST, "invalid"),
                RejectionKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
                RejectionKind::Conflict => (StatusCode::CONFLICT, "conflict"),
                RejectionKind::Rule => (StatusCode::UNPROCESSABLE_ENTITY, "rule"),
                RejectionKind::NoNumber => (StatusCode::CONFLICT, NO_NUMBER),
                RejectionKind::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "key_reused"),
                RejectionKind::TooLarge | RejectionKind::ResultTooLarge => {
                    (StatusCode::PAYLOAD_TOO_LARGE, "too_large")
                }
                RejectionKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            };
            ProblemDetails::new(status, code, rejection.message)
        }
        Refused::NotApplied { plog, .. } => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ProblemDetails::new(status, "not_applied", reason).with("plogOffset", plog.0)
        }
        Refused::Unknown(_) => ProblemDetails::new(StatusCode::GATEWAY_TIMEOUT, UNKNOWN, reason),
    }
}

/// The problem of a partition that cannot answer now.
pub fn problem_of_busy(busy: Busy) -> ProblemDetails {
    problem_of(Refused::Busy(busy))
}

#[cfg(test)]
mod tests {
    use hyper::header::RETRY_AFTER;
    use processor::FullQueue;

    use super::*;

    fn retry_after(problem: ProblemDetails) -> Option<u32> {
        problem.into_response().headers().get(RETRY_AFTER)?.to_str().unwrap().parse().ok()
    }

    #[test]
    fn each_busy_reason_has_its_code_and_its_time() {
        let why = || "why".to_owned();
        let full =
            |full, millis| Busy::QueueFull { full, retry_after: Duration::from_millis(millis) };
        for (busy, code, after) in [
            (full(FullQueue::Commands, 0), "queue_full", 1),
            (full(FullQueue::Numbers, 2_001), "queue_full", 3),
            (full(FullQueue::Commands, 600_000), "queue_full", 60),
            (Busy::Recovering(None), "recovering", 1),
            (Busy::Violation(why()), "violation", 1),
            (Busy::LeadershipLost(why()), "not_owner", 1),
            (Busy::Failed(why()), "failed", 1),
            (Busy::Stopping, "stopping", 1),
            (Busy::TimedOut, "timed_out", 1),
            (Busy::Storage(why()), "storage", 1),
        ] {
            let problem = problem_of(Refused::Busy(busy));
            let found = (problem.status().as_u16(), problem.code(), retry_after(problem));
            assert_eq!(found, (503, code, Some(after)));
        }
        let wrote_too_much = Busy::WroteTooMuch(Duration::from_millis(2_001));
        let problem = problem_of(Refused::Busy(wrote_too_much));
        let found = (problem.status().as_u16(), problem.code(), retry_after(problem));
        assert_eq!(found, (429, "rate_limited", Some(3)));
    }
}
