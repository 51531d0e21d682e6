//! The driver of the engine: it makes the calls to the store, waits, and keeps the term up to date.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use causes::in_full;
use clock::{Clock, Instant};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, info, warn};

use crate::{
    Budget, ElectionRow, GiveUpReason, InvalidTiming, KillFn, Leadership, Lease, LockFile,
    LossReason, ObservedLease, Observer, Slot, StoreError, Timing, TtlStore,
    engine::{Action, Candidacy, ElectionEngine, EngineInput, Notice, StoreAnswer, StoreCall},
    killer, meters,
    term::Term,
};

/// The health check of a leader: whether the services under the leadership are well. The runtime
/// calls it before each renewal, so it must not block.
pub type HealthCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// A node that can lead.
pub struct Elections {
    store: Arc<dyn TtlStore>,
    clock: Clock,
    budget: Budget,
    owner: SocketAddr,
    kill: Option<KillFn>,
    health: Option<HealthCheck>,
    lock: Option<Arc<LockFile>>,
}

impl std::fmt::Debug for Elections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elections")
            .field("store", &self.store)
            .field("budget", &self.budget)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// The reason for which a node does not lead.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// The node waited until its time was over, or the store does not work.
    #[error(transparent)]
    GaveUp(#[from] GiveUpReason),
    /// The killer thread could not be started.
    #[error("the killer thread could not be started")]
    NoKiller(#[source] std::io::Error),
}

impl Elections {
    /// Makes a node with the address `owner`.
    ///
    /// # Errors
    /// Fails if the parts of a lease do not fit into the lease. The error shows the sum.
    pub fn new(
        store: Arc<dyn TtlStore>,
        clock: Clock,
        owner: SocketAddr,
        timing: Timing,
    ) -> Result<Elections, InvalidTiming> {
        let budget = Budget::of_store(timing, &*store)?;
        Ok(Elections { store, clock, budget, owner, kill: None, health: None, lock: None })
    }

    /// Sets the function that ends the process if work continues after the end of a leadership.
    /// Without a killer such work continues.
    #[must_use]
    pub fn with_killer(self, kill: KillFn) -> Elections {
        Elections { kill: Some(kill), ..self }
    }

    /// Sets the health check. The leader gives its leadership up if the check fails.
    #[must_use]
    pub fn with_health(self, health: HealthCheck) -> Elections {
        Elections { health: Some(health), ..self }
    }

    /// Sets the lock file. After a crash the node leads again at once, if the lock file proves that
    /// its former process is gone.
    #[must_use]
    pub fn with_comeback(self, lock: LockFile) -> Elections {
        Elections { lock: Some(Arc::new(lock)), ..self }
    }

    /// Returns an observer of the leaders.
    pub fn observer(&self) -> Observer {
        let timeout = self.budget.timing().call_timeout;
        Observer::new(Arc::clone(&self.store), self.clock.clone(), timeout)
    }

    /// Returns the split of the time of a lease.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Waits for the leadership of one of the slots from 1 to `slots`. An attempt that is under way
    /// at `until` is finished.
    ///
    /// # Errors
    /// Fails if other nodes hold all slots until `until`, or if the store does not work.
    ///
    /// # Cancel safety
    /// A dropped call may leave a lease that expires.
    pub async fn acquire(&self, slots: Slot, until: Instant) -> Result<Leadership, AcquireError> {
        meters::begins(slots);
        let former = self.lock.as_ref().map_or_else(Vec::new, |lock| lock.former().to_vec());
        let candidacy = Candidacy { owner: self.owner, slots, until, former };
        let random = self.clock.clone();
        let engine = ElectionEngine::new(candidacy, self.budget, Box::new(move || random.random()));
        let mut runner = EngineRunner {
            engine,
            store: Arc::clone(&self.store),
            clock: self.clock.clone(),
            budget: self.budget,
            health: self.health.clone(),
            lock: self.lock.clone(),
        };
        let (mut input, mut told) = (EngineInput::Woke, None);
        loop {
            let own = self.own_lease(&input);
            let step = runner.engine.next(runner.clock.now(), input);
            if let (Some(ObservedLease { slot, value, left }), Action::Wait(_)) = (own, &step.next)
                && told.as_ref() != Some(&value)
            {
                let expires_in = (left < Duration::MAX).then(|| format!("{left:.1?}"));
                info!(%slot, owner = %self.owner, expires_in, "waiting for the lease of this node's former process");
                told = Some(value);
            }
            match step.notice {
                Some(Notice::Leads { slot, lease, work_from, valid_until }) => {
                    let ends = (valid_until, self.budget.kill_at(valid_until));
                    let clock = self.clock.clone();
                    let term = Arc::new(Term::new(slot, lease, self.lock.clone(), ends, clock));
                    return self.lead(runner, term, work_from, step.next).await;
                }
                Some(Notice::GaveUp(why)) => return Err(why.into()),
                Some(Notice::Extended { .. } | Notice::Lost(_)) | None => {}
            }
            input = runner.perform(step.next).await;
        }
    }

    /// Returns a lease that a former process of this node left in the store.
    fn own_lease(&self, input: &EngineInput) -> Option<ObservedLease> {
        let EngineInput::Answer(StoreAnswer::Leases(seen)) = input else { return None };
        let owner = |seen: &ObservedLease| Some(Lease::from_bytes(&seen.value)?.owner);
        seen.iter().find(|seen| owner(seen) == Some(self.owner)).cloned()
    }

    async fn lead(
        &self,
        runner: EngineRunner,
        term: Arc<Term>,
        work_from: Instant,
        next: Action,
    ) -> Result<Leadership, AcquireError> {
        if let Some(kill) = &self.kill {
            killer::watch(&term, Arc::clone(kill)).map_err(AcquireError::NoKiller)?;
        }
        let Lease { epoch, .. } = term.lease;
        info!(slot = %term.slot, %epoch, "leadership acquired");
        meters::acquired(term.slot);
        // Only an attempt records a lease. From now on the term holds the lock.
        let runner = EngineRunner { lock: None, ..runner };
        let renewals = RenewalTask::start(runner, Arc::clone(&term), next);
        // Before `work_from`, writes of a former process of this node may land.
        self.clock.sleep_until(work_from).await;
        Ok(Leadership::new(term, renewals))
    }
}

/// Records a lease that is about to be sent. Without the record a comeback is slower, and nothing
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

/// The task that renews a lease. The task ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct RenewalTask {
    term: Arc<Term>,
    stopped: mpsc::Sender<oneshot::Sender<()>>,
    task: tokio::task::AbortHandle,
}

impl RenewalTask {
    fn start(runner: EngineRunner, term: Arc<Term>, next: Action) -> RenewalTask {
        let (stopped, release) = mpsc::channel(1);
        #[expect(clippy::disallowed_methods, reason = "the leadership owns the task and ends it")]
        let task = tokio::spawn(renew(runner, Arc::clone(&term), next, release)).abort_handle();
        RenewalTask { term, stopped, task }
    }

    /// Ends the renewals and releases the lease. Afterwards `done` is dropped or sent to.
    pub(crate) async fn release(&self, done: oneshot::Sender<()>) {
        // If the task has ended, `done` is dropped. The receiver then sees the same result.
        let _ = self.stopped.send(done).await;
    }
}

impl Drop for RenewalTask {
    fn drop(&mut self) {
        self.term.lose(LossReason::Dropped);
        self.task.abort();
    }
}

async fn renew(
    mut runner: EngineRunner,
    term: Arc<Term>,
    mut next: Action,
    mut release: mpsc::Receiver<oneshot::Sender<()>>,
) {
    let _lost = LossOnDrop(Arc::clone(&term));
    let mut done = None;
    while next != Action::End {
        let input = tokio::select! {
            biased;
            Some(sender) = release.recv(), if done.is_none() => {
                done = Some(sender);
                EngineInput::Stopped
            }
            input = runner.perform(next) => input,
        };
        let input = match input {
            EngineInput::Woke => match term.lost() {
                Some(why) => EngineInput::Ends(why),
                None if runner.is_well() => EngineInput::Woke,
                None => EngineInput::Ends(LossReason::Unhealthy),
            },
            input => input,
        };
        let step = runner.engine.next(runner.clock.now(), input);
        match step.notice {
            Some(Notice::Extended { valid_until }) => {
                let left = term.valid_until().saturating_since(runner.clock.now());
                meters::renewed(term.slot, left);
                term.extend(valid_until, runner.budget.kill_at(valid_until));
            }
            Some(Notice::Lost(why)) => {
                term.lose(why);
            }
            _ => {}
        }
        next = step.next;
    }
    if let Some(done) = done {
        // The receiver may be gone.
        let _ = done.send(());
    }
}

/// Ends the leadership when the renewing task ends. The task ends early if it panics, or if its
/// runtime drops it.
struct LossOnDrop(Arc<Term>);

impl Drop for LossOnDrop {
    fn drop(&mut self) {
        let is_panic = std::thread::panicking();
        self.0.lose(if is_panic { LossReason::Panicked } else { LossReason::Dropped });
    }
}

/// An engine, and the things that its decisions need.
struct EngineRunner {
    engine: ElectionEngine,
    store: Arc<dyn TtlStore>,
    clock: Clock,
    budget: Budget,
    health: Option<HealthCheck>,
    lock: Option<Arc<LockFile>>,
}

impl EngineRunner {
    fn is_well(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health())
    }

    async fn perform(&self, next: Action) -> EngineInput {
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

    /// Records a lease before it is sent. A kill may come at any moment afterwards, and the next
    /// process finds the lease in the file. A slow disk takes at most half of the time of the call.
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
                warn!(?op, error = in_full(&error), "a call of the election failed");
                match error {
                    StoreError::Unavailable(_) => StoreAnswer::Unavailable,
                    StoreError::Unknown(_) => StoreAnswer::Unknown,
                    StoreError::Broken(_) => StoreAnswer::Broken,
                }
            }
            Err(_) if reads => StoreAnswer::Unavailable,
            Err(_) => {
                debug!(?op, "a call of the election was not answered in time");
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
        StoreCall::ReadEpoch(slot) => {
            return store.get(ElectionRow::Epoch(slot), deadline).await.map(StoreAnswer::EpochRow);
        }
        StoreCall::Take { slot, lease, over: None, ttl } => {
            let row = ElectionRow::Lease(slot);
            store.insert_if_not_exist(row, lease.to_bytes(), Some(ttl), deadline).await
        }
        StoreCall::Take { slot, lease, over: Some(over), ttl } => {
            let (old, new) = (over.to_bytes(), lease.to_bytes());
            store.compare_and_swap(ElectionRow::Lease(slot), old, new, Some(ttl), deadline).await
        }
        StoreCall::RaiseEpoch { slot, from: None, to } => {
            store.insert_if_not_exist(ElectionRow::Epoch(slot), to.to_bytes(), None, deadline).await
        }
        StoreCall::RaiseEpoch { slot, from: Some(from), to } => {
            let (old, new) = (from.to_bytes(), to.to_bytes());
            store.compare_and_swap(ElectionRow::Epoch(slot), old, new, None, deadline).await
        }
        StoreCall::Renew { slot, lease, ttl } => {
            let bytes = lease.to_bytes();
            store
                .compare_and_swap(
                    ElectionRow::Lease(slot),
                    bytes.clone(),
                    bytes,
                    Some(ttl),
                    deadline,
                )
                .await
        }
        StoreCall::Release { slot, lease } => {
            store.compare_and_delete(ElectionRow::Lease(slot), lease.to_bytes(), deadline).await
        }
    };
    written.map(StoreAnswer::Written)
}
