//! The life of a node: one task starts everything, watches it, and stops it in order.
//!
//! Invariant: the lease is released only if every partition has proved that it writes nothing any
//! more.

use std::{mem, pin::pin, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use ielections::{Elections, KillFn, Leadership, LockFile, LossReason};
use sysvvm::System;
use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    Node, NodeSettings, Problem, Service, Stage,
    clients::{Clients, Systems},
    lease_fence::LeaseFence,
    opening, partitions,
    problem::FirstProblem,
    service::Services,
};

/// The interval at which the task checks whether the node is ready.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The deadlines of the parts of a node, which stop one after another, as shares of the time to
/// stop.
mod shares {
    pub(super) const SERVICES: u32 = 8;
    pub(super) const PARTITIONS: u32 = 12;
    pub(super) const LEAD: u32 = 13;
    pub(super) const STORAGE: u32 = 14;
    /// The admin services stop last.
    pub(super) const OF: u32 = 16;
}

/// The parts of a node of which nothing runs.
pub(crate) struct NodeParts {
    pub(crate) settings: NodeSettings,
    pub(crate) clients: Clients,
    pub(crate) clock: Clock,
    pub(crate) node: Node,
    pub(crate) problem: FirstProblem,
    pub(crate) admin: Vec<Box<dyn Service>>,
    pub(crate) services: Vec<Box<dyn Service>>,
    pub(crate) kill: Option<KillFn>,
    pub(crate) lock: Option<LockFile>,
}

/// A node that was launched. [`shutdown`](Launched::shutdown) stops the node in order. Dropping
/// this value asks the node to stop, and waits for nothing.
#[derive(Debug)]
pub struct Launched {
    node: Node,
    problem: FirstProblem,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Launched {
    pub(crate) fn start(parts: NodeParts) -> Launched {
        let (node, problem) = (parts.node.clone(), parts.problem.clone());
        let shutdown = CancellationToken::new();
        #[expect(
            clippy::disallowed_methods,
            reason = "whoever launched it owns the task, and awaits it in `shutdown`"
        )]
        let task = tokio::spawn(parts.run(shutdown.clone()));
        Launched { node, problem, shutdown, task }
    }

    /// The node as its services see it.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Waits until the node leads and its partitions have recovered. Partitions that an operator
    /// must put right first do not count: the others work.
    ///
    /// # Errors
    /// The problem of the node, or the stage of a node that was not ready in time.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ready(&self, deadline: Instant) -> Result<(), NotReady> {
        let clock = self.node.clock();
        loop {
            if let Some(problem) = self.problem.get() {
                return Err(NotReady::Problem(problem));
            }
            match self.node.stage() {
                Stage::Leading => return Ok(()),
                stage if clock.now() >= deadline => return Err(NotReady::Late(stage)),
                _ => clock.sleep(CHECK_INTERVAL).await,
            }
        }
    }

    /// Waits until the node cannot go on. Never returns if all is well.
    ///
    /// # Cancel safety
    /// Safe: the next call returns the same problem.
    pub async fn problem(&self) -> Arc<Problem> {
        self.problem.wait().await
    }

    /// Stops everything: first the services, then the partitions. Then the lease is released, if it
    /// is proved that nothing is written any more. The storage and the admin services stop last.
    /// The method may be called right after the launch.
    ///
    /// # Errors
    /// The first problem of the node.
    ///
    /// # Cancel safety
    /// If the future is dropped, the node stops all the same, and nothing waits for its end.
    pub async fn shutdown(mut self) -> Result<(), Arc<Problem>> {
        self.shutdown.cancel();
        // If the task panicked, it has reported the panic as a problem.
        let _ = (&mut self.task).await;
        self.problem.get().map_or(Ok(()), Err)
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The reason why a node is not ready.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotReady {
    /// The node cannot go on.
    #[error("the node cannot get ready: {0}")]
    Problem(Arc<Problem>),
    /// The node takes longer than the deadline.
    #[error("the node was not ready in time: its stage is {0:?}")]
    Late(Stage),
}

/// Reports a panic of the orchestrator, for example in the `bind` of a service. Without this report
/// the host would wait forever for a problem.
struct PanicReport(FirstProblem);

impl Drop for PanicReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (service, why) = ("the orchestrator", "the task panicked".into());
            self.0.report(Problem::ServiceEnded { service, why });
        }
    }
}

/// Waits until the leadership is lost; forever if there is no leadership.
async fn until_lost(held: Option<&HeldLease>) {
    match held {
        Some(held) => drop(held.leadership.over().await),
        None => std::future::pending().await,
    }
}

/// The values that exist while the node leads.
struct HeldLease {
    leadership: Leadership,
    fence: Arc<LeaseFence>,
}

impl NodeParts {
    async fn run(self, shutdown: CancellationToken) {
        let _told = PanicReport(self.problem.clone());
        let node = self.node.clone();
        tokio::select! {
            () = self.work_until(shutdown) => {}
            never = node.leaders().watch() => match never {},
        }
    }

    async fn work_until(mut self, shutdown: CancellationToken) {
        let (mut admin, mut services) = (Services::default(), Services::default());
        let mut held = None;
        let is_bound = tokio::select! {
            biased;
            () = shutdown.cancelled() => false,
            is_bound = self.bind() => is_bound,
        };
        if is_bound {
            let (control, requests) = (Handle::current(), &self.clients.runtime);
            admin = Services::start(mem::take(&mut self.admin), &self.node, &control);
            services = Services::start(mem::take(&mut self.services), &self.node, requests);
            let lock = self.lock.take();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                _ = self.problem.wait() => {}
                problem = self.work(lock, &mut held) => self.problem.report(problem),
                problem = admin.ended() => self.problem.report(problem),
                problem = services.ended() => self.problem.report(problem),
            }
        }
        // The host acts on a problem: it shuts the node down.
        shutdown.cancelled().await;
        self.stop(admin, services, held).await;
    }

    /// Takes the exclusive resources of all services.
    async fn bind(&mut self) -> bool {
        for service in self.admin.iter_mut().chain(&mut self.services) {
            if let Err(why) = service.bind().await {
                self.problem.report(Problem::NotBound { service: service.name(), why });
                return false;
            }
        }
        true
    }

    /// Acquires leadership and works under it until there is a problem. The leadership stays in
    /// `held`, where the stop finds it.
    async fn work(&self, lock: Option<LockFile>, held: &mut Option<HeldLease>) -> Problem {
        match self.try_work(lock, held).await {
            Ok(lost) => Problem::LeadLost(lost),
            Err(problem) => problem,
        }
    }

    async fn try_work(
        &self,
        lock: Option<LockFile>,
        held: &mut Option<HeldLease>,
    ) -> Result<LossReason, Problem> {
        let work = async {
            let systems = self.open().await?;
            self.lead(&systems, lock, held).await
        };
        tokio::select! {
            biased;
            // The failure of a client also counts while the storage is being opened: a driver that
            // cannot go on cannot be opened again.
            failed = self.clients.failed() => Err(failed),
            ended = work => ended,
        }
    }

    /// Acquires leadership and works under it until the leadership is lost.
    async fn lead(
        &self,
        systems: &Systems,
        lock: Option<LockFile>,
        held: &mut Option<HeldLease>,
    ) -> Result<LossReason, Problem> {
        let leadership = self.acquire(&systems.elections, lock).await?;
        let slot = leadership.slot();
        let fence = Arc::new(LeaseFence::new(leadership.work().map_err(Problem::LeadLost)?));
        self.node.set_lease(Some((slot, Arc::clone(&fence))));
        self.node.set_stage(Stage::Recovering);
        let HeldLease { leadership, fence } = held.insert(HeldLease { leadership, fence });
        let settings = &self.settings;
        tokio::select! {
            biased;
            lost = leadership.over() => return Ok(lost),
            deployed = partitions::deploy(&self.node, &systems.requests, settings, (slot, fence), &self.clients) => deployed?,
        }
        self.node.set_stage(Stage::Leading);
        tokio::select! {
            biased;
            lost = leadership.over() => return Ok(lost),
            () = self.recovered() => {
                info!(slot = slot.get(), at = %self.settings.advertised, "node ready");
                let partitions = self.node.count_violated();
                if partitions > 0 {
                    warn!(partitions, "partitions with violations: an operator must put their logs right, as their status says");
                }
            }
        }
        Ok(leadership.over().await)
    }

    /// Waits until the partitions have recovered.
    async fn recovered(&self) {
        while self.node.stage() != Stage::Leading {
            self.clock.sleep(CHECK_INTERVAL).await;
        }
    }

    /// Opens the system keyspace. A node that waits for leadership without a limit waits for its
    /// storage, too.
    async fn open(&self) -> Result<Systems, Problem> {
        let deadline = match self.settings.acquire_within {
            None => Instant::FAR_FUTURE,
            Some(_) => self.clock.now(),
        };
        let open = || self.clients.open(&self.settings, &self.clock);
        opening::retry_until(&self.clock, deadline, open).await
    }

    async fn acquire(
        &self,
        system: &System,
        lock: Option<LockFile>,
    ) -> Result<Leadership, Problem> {
        let NodeSettings { slots, advertised, .. } = self.settings;
        let levels = self.node.apps().iter().map(|app| app.settings.level);
        let storage = system.storage().capabilities();
        let lease = self.settings.lease_for(levels, storage.late_write);
        let lease = lease.map_err(|bad| Problem::Refused(bad.to_string()))?;
        let (store, clock) = (Arc::new(system.elections()), self.clock.clone());
        let elections = Elections::new(store, clock, advertised, lease);
        let mut elections = elections.map_err(|why| Problem::Refused(why.to_string()))?;
        if let Some(kill) = &self.kill {
            elections = elections.with_killer(Arc::clone(kill));
        }
        if let Some(lock) = lock {
            elections = elections.with_comeback(lock);
        }
        let node = self.node.clone();
        let elections = elections.with_health(Arc::new(move || node.is_well()));
        let budget = elections.budget();
        let gives_up_after = self.settings.acquire_limit(storage.expiry_is_watched, budget);
        // `failover` counts from the death of a leader whose storage answers in time.
        // `failover_of_slow` counts from the last good renewal of a leader that lives and whose
        // storage is slow; the delay of the storage comes on top.
        info!(
            failover = ?budget.failover_bound(),
            failover_of_slow = ?budget.slow_store_bound(),
            stop = ?budget.stop_bound(),
            ?gives_up_after,
            "waiting for leadership"
        );
        self.node.leaders().set_observer(elections.observer());
        self.node.set_stage(Stage::Waiting);
        let until = gives_up_after.map_or(Instant::FAR_FUTURE, |time| self.clock.now() + time);
        Ok(elections.acquire(slots, until).await?)
    }

    /// Stops the parts of the node in the reverse order of their start. Each part has its share of
    /// the time ([`shares`]).
    async fn stop(self, mut admin: Services, mut services: Services, held: Option<HeldLease>) {
        let start = self.clock.now();
        let until = |share: u32| start + self.settings.stop_within * share / shares::OF;
        self.node.set_stage(Stage::Stopping);
        {
            let services = services.stop(&self.clock, until(shares::SERVICES), &self.problem);
            let mut services = pin!(services);
            // After the leadership is lost, the killer ends the process if work goes on. So
            // services that wait for slow clients must not delay the end of that work.
            let have_ended = tokio::select! {
                biased;
                () = until_lost(held.as_ref()) => false,
                () = services.as_mut() => true,
            };
            if let Some(held) = held {
                self.end_leadership(held, until(shares::PARTITIONS), until(shares::LEAD)).await;
            }
            if !have_ended {
                services.await;
            }
        }
        let closed = self.clients.close();
        if self.clock.timeout_at(until(shares::STORAGE), closed).await.is_err() {
            warn!("storage not closed in time");
            self.problem.report(Problem::NotStopped("the storage".to_owned()));
        }
        self.node.set_stage(Stage::Stopped);
        admin.stop(&self.clock, until(shares::OF), &self.problem).await;
        info!(took = ?(self.clock.now() - start), "node stopped");
    }

    /// Ends all work under the leadership. Releases the lease if it is proved that nothing is
    /// written any more.
    async fn end_leadership(
        &self,
        HeldLease { leadership, fence }: HeldLease,
        partitions: Instant,
        deadline: Instant,
    ) {
        let ended = partitions::undeploy(&self.node, partitions).await;
        self.node.set_lease(None);
        if let Some(lost) = leadership.lost() {
            self.problem.report(Problem::LeadLost(lost));
        }
        if !ended.unproved.is_empty() {
            self.problem.report(Problem::NotEnded(ended.unproved));
            // If a partition is late, its work may go on. The guard stays, so the killer ends the
            // process when the lease is nearly over.
            if !ended.is_late {
                fence.abandon();
            }
            return;
        }
        fence.finish();
        match leadership.stopped(deadline).await {
            Ok(stopped) => match self.clock.timeout_at(deadline, stopped.release()).await {
                Ok(_) => info!("lease released"),
                Err(_) => {
                    warn!("lease not released, and left to expire: the storage does not answer")
                }
            },
            Err(unproved) => warn!(%unproved, "lease not released, and left to expire"),
        }
    }
}
