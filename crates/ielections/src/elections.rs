//! A node that can lead: its settings, and its way from candidate to leader.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use tracing::info;

use crate::{
    Budget, GiveUpReason, HealthCheck, InvalidTiming, KillFn, Leadership, Lease, LockFile,
    ObservedLease, Observer, Seat, Timing, TtlStore,
    engine::{Action, Candidacy, ElectionEngine, EngineInput, Notice, StoreAnswer},
    killer, meters,
    renewal::RenewalTask,
    runner::EngineRunner,
    term::Term,
};

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

/// Why a node does not lead.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// The candidate's time was over, or the store does not work.
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

    /// Sets the health check. The leader gives up its leadership if the check fails.
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

    /// Waits for the leadership of one of the seats from 1 to `last_seat`. At `until`, an attempt
    /// that is under way goes on to its end.
    ///
    /// # Errors
    /// Fails if other nodes hold all seats until `until`, or if the store does not work.
    ///
    /// # Cancel safety
    /// A dropped call may leave a lease that expires.
    pub async fn acquire(
        &self,
        last_seat: Seat,
        until: Instant,
    ) -> Result<Leadership, AcquireError> {
        meters::begins(last_seat);
        let former = self.lock.as_ref().map_or_else(Vec::new, |lock| lock.former().to_vec());
        let candidacy = Candidacy { owner: self.owner, last_seat, until, former };
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
        let (mut input, mut logged) = (EngineInput::Woke, None);
        loop {
            let seen = self.lease_in_the_way(&input);
            let step = runner.engine.next(runner.clock.now(), input);
            if let (Some((seat, lease, left)), Action::Wait(_)) = (seen, &step.next)
                && logged != Some(lease)
            {
                self.log_wait(seat, lease, left);
                logged = Some(lease);
            }
            match step.notice {
                Some(Notice::Leads { seat, lease, work_from, valid_until }) => {
                    let (lock, clock) = (self.lock.clone(), self.clock.clone());
                    let kill_at = self.budget.kill_at(valid_until);
                    let term = Term::new(seat, lease, lock, valid_until, kill_at, clock);
                    return self.lead(runner, Arc::new(term), work_from, step.next).await;
                }
                Some(Notice::GaveUp(why)) => return Err(why.into()),
                Some(Notice::Extended { .. } | Notice::Lost(_) | Notice::LeaseGone) | None => {}
            }
            input = runner.perform(step.next).await;
        }
    }

    /// Returns a lease that a candidate may wait for, and the time until it ends: the lease that a
    /// former process of this node left in the store, or else the first one.
    fn lease_in_the_way(&self, input: &EngineInput) -> Option<(Seat, Lease, Duration)> {
        let EngineInput::Answer(StoreAnswer::Leases(seen)) = input else { return None };
        let lease =
            |seen: &ObservedLease| Some((seen.seat, Lease::from_bytes(&seen.value)?, seen.left));
        let leases = || seen.iter().filter_map(lease);
        leases().find(|(_, lease, _)| lease.owner == self.owner).or_else(|| leases().next())
    }

    /// Logs what the candidate waits for. Without the line a waiting node looks as if it hung.
    fn log_wait(&self, seat: Seat, Lease { owner, .. }: Lease, left: Duration) {
        let expires_in = (left < Duration::MAX).then(|| format!("{left:.1?}"));
        if owner == self.owner {
            info!(%seat, %owner, expires_in, "waiting for the lease of this node's former process");
        } else {
            // This node may be the standby of a leader, or the copy of a node that is gone.
            info!(%seat, %owner, expires_in, "waiting for the lease of a node with another address");
        }
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
        info!(seat = %term.seat, %epoch, "leadership acquired");
        meters::acquired(term.seat);
        // Only an attempt records a lease. From now on the term holds the lock.
        let runner = EngineRunner { lock: None, ..runner };
        let renewals = RenewalTask::start(runner, Arc::clone(&term), next);
        // Before `work_from`, writes of a former process of this node may land. With `late_write` 0
        // there is no wait, and a node of VVM uses a lock file only then.
        self.clock.sleep_until(work_from).await;
        Ok(Leadership::new(term, renewals))
    }
}
