//! The actions of the engine: calls to the store, records in the lock file, and waits.

use std::sync::Arc;

use base::with_causes;
use clock::{Clock, Instant};
use tracing::{debug, warn};

use crate::{
    Budget, ElectionRow, Lease, LockFile, StoreError, TtlStore,
    engine::{Action, ElectionEngine, EngineInput, StoreAnswer, StoreCall},
    meters,
};

/// The health check of a leader: it tells whether the services under the leadership are well. The
/// runtime calls it before each renewal, so it must not block.
pub type HealthCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// An engine, and the things that its decisions need.
pub(crate) struct EngineRunner {
    pub(crate) engine: ElectionEngine,
    pub(crate) store: Arc<dyn TtlStore>,
    pub(crate) clock: Clock,
    pub(crate) budget: Budget,
    pub(crate) health: Option<HealthCheck>,
    pub(crate) lock: Option<Arc<LockFile>>,
}

impl EngineRunner {
    /// Whether the health check passes.
    pub(crate) fn is_healthy(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health())
    }

    /// Does the next action of the engine. Returns the next input of the engine.
    pub(crate) async fn perform(&self, next: Action) -> EngineInput {
        match next {
            Action::Wait(until) => {
                self.clock.sleep_until(until).await;
                EngineInput::Woke
            }
            Action::Call(op, deadline) => {
                if let (StoreCall::Take { lease, over, .. }, Some(lock)) = (&op, &self.lock) {
                    self.record(lock, *lease, *over, deadline).await;
                }
                let start = self.clock.now();
                let answer = self.call(&op, deadline).await;
                meters::called(&op, &answer, self.clock.now() - start);
                EngineInput::Answer(answer)
            }
            Action::End => std::future::pending().await,
        }
    }

    /// Records a lease before it is sent. Whenever a kill comes afterwards, the next process finds
    /// the lease in the file. A slow disk takes at most half of the time of the call.
    async fn record(
        &self,
        lock: &Arc<LockFile>,
        lease: Lease,
        over: Option<Lease>,
        deadline: Instant,
    ) {
        let now = self.clock.now();
        let recorded = record(Arc::clone(lock), lease, over);
        let half = now + deadline.saturating_since(now) / 2;
        if self.clock.timeout_at(half, recorded).await.is_err() {
            warn!(path = %lock.path().display(), "the disk is slow to record the lease for a quick comeback");
        }
    }

    /// Returns the answer to a call. If the deadline passes first, returns `Unavailable` for a read
    /// and `Unknown` for a write, so a store that hangs delays nothing.
    async fn call(&self, op: &StoreCall, deadline: Instant) -> StoreAnswer {
        let reads = matches!(op, StoreCall::Look | StoreCall::ReadEpoch(_));
        let called = self.clock.timeout_at(deadline, call(&*self.store, op, deadline)).await;
        match called {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                warn!(op = op.name(), error = with_causes(&error), "election store error");
                match error {
                    StoreError::Unavailable(_) => StoreAnswer::Unavailable,
                    StoreError::Unknown(_) => StoreAnswer::Unknown,
                    StoreError::Broken(_) => StoreAnswer::Broken,
                }
            }
            Err(_) if reads => StoreAnswer::Unavailable,
            Err(_) => {
                debug!(op = op.name(), "election store call timed out");
                StoreAnswer::Unknown
            }
        }
    }
}

async fn call(
    store: &dyn TtlStore,
    op: &StoreCall,
    deadline: Instant,
) -> Result<StoreAnswer, StoreError> {
    let written = match *op {
        StoreCall::Look => return store.leases(deadline).await.map(StoreAnswer::Leases),
        StoreCall::ReadEpoch(seat) => {
            return store.get(ElectionRow::Epoch(seat), deadline).await.map(StoreAnswer::EpochRow);
        }
        StoreCall::Take { seat, lease, over: None, ttl } => {
            let row = ElectionRow::Lease(seat);
            store.insert_if_not_exists(row, lease.to_bytes(), Some(ttl), deadline).await
        }
        StoreCall::Take { seat, lease, over: Some(over), ttl } => {
            let (old, new) = (over.to_bytes(), lease.to_bytes());
            store.compare_and_swap(ElectionRow::Lease(seat), old, new, Some(ttl), deadline).await
        }
        StoreCall::RaiseEpoch { seat, from: None, to } => {
            let row = ElectionRow::Epoch(seat);
            store.insert_if_not_exists(row, to.to_bytes(), None, deadline).await
        }
        StoreCall::RaiseEpoch { seat, from: Some(from), to } => {
            let (old, new) = (from.to_bytes(), to.to_bytes());
            store.compare_and_swap(ElectionRow::Epoch(seat), old, new, None, deadline).await
        }
        StoreCall::Renew { seat, lease, ttl } => {
            let bytes = lease.to_bytes();
            store
                .compare_and_swap(
                    ElectionRow::Lease(seat),
                    bytes.clone(),
                    bytes,
                    Some(ttl),
                    deadline,
                )
                .await
        }
        StoreCall::Release { seat, lease } => {
            store.compare_and_delete(ElectionRow::Lease(seat), lease.to_bytes(), deadline).await
        }
    };
    written.map(StoreAnswer::Written)
}

/// Records a lease that is about to be sent. If the record fails, a comeback is slower, and nothing
/// else is lost.
async fn record(lock: Arc<LockFile>, lease: Lease, over: Option<Lease>) {
    let path = lock.path().to_owned();
    #[expect(
        clippy::disallowed_methods,
        reason = "a disk may be slow, and the file is the task's own"
    )]
    let recorded = tokio::task::spawn_blocking(move || lock.record(&lease, over.as_ref())).await;
    if let Err(error) = recorded.unwrap_or_else(|panicked| Err(panicked.into())) {
        warn!(path = %path.display(), %error, "the lease cannot be recorded for a quick comeback");
    }
}
