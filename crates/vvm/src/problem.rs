//! The problem that ends the work of a node. Only the first problem is reported, even if several
//! happen at the same time.

use std::sync::{Arc, OnceLock};

use base::with_causes;
use ielections::{AcquireError, LossReason};
use istorage::ErrorKind;
use sysvvm::AppName;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// The error that ended a service.
pub type ServiceError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a node cannot go on. The host learns the problem and shuts the node down.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A resource that a service needs, such as its port, is taken. Nothing was started.
    #[error("{service} cannot start: {why}")]
    NotBound {
        /// The name of the service.
        service: &'static str,
        /// The reason.
        why: ServiceError,
    },
    /// The configuration does not fit the storage: the storage was deployed in another way, holds
    /// rows of another program, or does not accept such requests. Correct the configuration.
    #[error("{0}")]
    Refused(String),
    /// A storage error. Try again later.
    #[error("storage error: {0}")]
    Storage(String),
    /// The node did not become a leader: other nodes lead, or the storage fails.
    #[error("the leadership was not acquired: {0}")]
    NotAcquired(#[from] AcquireError),
    /// The node no longer leads.
    #[error("the leadership was lost: {0}")]
    LeadershipLost(LossReason),
    /// Another node took a partition that this node owns: one of the two judged a lease wrongly. So
    /// this node ends its leadership.
    #[error("the ownership of a partition was lost: {0}")]
    OwnershipLost(String),
    /// The trust level of an application was changed after this node had read it: while the node
    /// waited for a seat, or after it had lost its seat. The lease of the node was chosen for the
    /// former level, so the node must start again.
    #[error(
        "the trust level of the application `{0}` was changed after this node had read it: start the node again"
    )]
    LevelChanged(AppName),
    /// The node was asked to let another node lead.
    #[error("the node was asked to step down")]
    SteppedDown,
    /// A service ended although it was not asked to.
    #[error("{service} ended: {why}")]
    ServiceEnded {
        /// The name of the service.
        service: &'static str,
        /// The reason.
        why: ServiceError,
    },
    /// Partitions ended without a proof that every write was answered. So the lease was not
    /// released, and the next node waits until the lease expires.
    #[error(
        "partitions may have unanswered writes; the lease is left to expire: {}",
        .0.join("; ")
    )]
    NotEnded(Vec<String>),
    /// A part of the node did not stop in time, and was given up.
    #[error("{0} did not stop in time")]
    NotStopped(String),
}

impl From<sysvvm::Error> for Problem {
    fn from(error: sysvvm::Error) -> Problem {
        match error {
            sysvvm::Error::Storage(error) => Problem::of_storage(&error),
            error @ sysvvm::Error::Importing { .. } => {
                Problem::Refused(format!("{error}: wait for it, repeat it or discard it"))
            }
            error => Problem::Refused(error.to_string()),
        }
    }
}

impl Problem {
    pub(crate) fn of_storage(error: &istorage::Error) -> Problem {
        let text = with_causes(error);
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Corrupt => Problem::Refused(text),
            ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::Closed => {
                Problem::Storage(text)
            }
        }
    }
}

/// The first problem of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstProblem {
    first: Arc<OnceLock<Arc<Problem>>>,
    is_there: CancellationToken,
}

impl FirstProblem {
    /// Reports a problem. Only the first one counts; later ones are only logged.
    pub(crate) fn report(&self, problem: Problem) {
        let problem = Arc::new(problem);
        if self.first.set(Arc::clone(&problem)).is_ok() {
            error!(%problem, "node must stop");
            self.is_there.cancel();
        } else {
            warn!(%problem, "another problem after the first");
        }
    }

    pub(crate) fn get(&self) -> Option<Arc<Problem>> {
        self.first.get().cloned()
    }

    /// Waits until there is a problem.
    pub(crate) async fn wait(&self) -> Arc<Problem> {
        loop {
            self.is_there.cancelled().await;
            if let Some(problem) = self.get() {
                return problem;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tck::trial::LogLines;

    use super::*;

    /// Problems come together: a service fails while the lease is lost. The host is told one, and
    /// the operator reads all of them in the log.
    #[test]
    fn the_first_problem_counts_and_the_others_are_in_the_log() {
        let (lines, _guard) = LogLines::of_this_thread();
        let first = FirstProblem::default();
        first.report(Problem::SteppedDown);
        first.report(Problem::NotStopped("the service `api`".to_owned()));
        assert!(matches!(*first.get().unwrap(), Problem::SteppedDown));
        let [one, other] = &lines.all()[..] else { panic!("{:?}", lines.all()) };
        assert!(one.contains("ERROR node must stop"), "{one}");
        assert!(other.contains("WARN another problem after the first"), "{other}");
        assert!(other.contains("the service `api` did not stop in time"), "{other}");
    }
}
