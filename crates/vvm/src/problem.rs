//! Why a node does not go on: reported once, whatever happens together.

use std::sync::{Arc, OnceLock};

use ielections::{Lost, NotAcquired};
use istorage::ErrorKind;
use processor::in_full;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// Whatever ended a service.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a node does not go on. Its host is told, and shuts it down.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// What a service needs is taken, such as its port. Nothing was begun.
    #[error("{service} cannot begin: {why}")]
    NotBound {
        /// Its name.
        service: &'static str,
        /// Why.
        why: Failure,
    },
    /// The storage was deployed in another way, or holds what is not ours, or cannot be asked so. Correct the configuration.
    #[error("{0}")]
    Refused(String),
    /// The storage does not do what it is asked to. Try later.
    #[error("the storage does not do what it is asked to: {0}")]
    Storage(String),
    /// The node does not lead. Others do, or the store does not work.
    #[error("the lead was not acquired: {0}")]
    NotAcquired(#[from] NotAcquired),
    /// The node leads no more.
    #[error("the lead is lost: {0}")]
    LeadLost(Lost),
    /// It was asked to let another node lead.
    #[error("it was asked to step down")]
    SteppedDown,
    /// A service ended although nobody asked it to.
    #[error("{service} ended: {why}")]
    ServiceEnded {
        /// Its name.
        service: &'static str,
        /// Why.
        why: Failure,
    },
    /// Partitions did not end with every write answered, so the lease was not released: the next node waits until it expires.
    #[error("partitions did not end in order, and the lease is left to expire: {}", .0.join("; "))]
    NotEnded(Vec<String>),
    /// Something did not stop in time, and was given up.
    #[error("{0} did not stop in time, and was given up")]
    NotStopped(String),
}

impl From<sysvvm::Error> for Problem {
    fn from(error: sysvvm::Error) -> Problem {
        match error {
            sysvvm::Error::Storage(error) => Problem::of_storage(&error),
            error => Problem::Refused(error.to_string()),
        }
    }
}

impl Problem {
    pub(crate) fn of_storage(error: &istorage::Error) -> Problem {
        let text = in_full(error);
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
    /// The first counts; those after it are only logged.
    pub(crate) fn report(&self, problem: Problem) {
        let problem = Arc::new(problem);
        if self.first.set(Arc::clone(&problem)).is_ok() {
            error!(%problem, "the node does not go on");
            self.is_there.cancel();
        } else {
            warn!(%problem, "another problem, after the first");
        }
    }

    pub(crate) fn get(&self) -> Option<Arc<Problem>> {
        self.first.get().cloned()
    }

    /// Waits for it.
    pub(crate) async fn wait(&self) -> Arc<Problem> {
        loop {
            self.is_there.cancelled().await;
            if let Some(problem) = self.get() {
                return problem;
            }
        }
    }
}
