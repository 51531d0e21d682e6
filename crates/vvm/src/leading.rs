//! The leadership of a node: how it is acquired, what works under it, and how it ends.
//!
//! Invariant: the lease is released only if every partition has proved that it writes nothing any
//! more.

use std::{convert::Infallible, sync::Arc, time::Duration};

use clock::Instant;
use eventlog::{Deployment, TrustLevel};
use ielections::{Budget, Elections, Leadership, LockFile, LossReason, ReleaseOutcome, Seat};
use sysvvm::{
    System,
    ownership::{LONGEST_TAKE_WAIT, PartitionId},
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    NodeSettings, Problem, Stage,
    clients::SystemClients,
    cluster_view::READ_EVERY,
    lease_fence::LeaseFence,
    node::STAGE_CHECK_INTERVAL,
    node_service, opening,
    owned::{AllPartitions, OwnedPartitions, PartitionStops},
    partitions::{self, Deployer, not_deployed},
    parts::NodeParts,
    running_services::RunningServices,
};

/// The values that exist while the node leads.
pub(crate) struct HeldLease {
    leadership: Leadership,
    fence: Arc<LeaseFence>,
    stops: PartitionStops,
    /// The services of the leadership, from the time when the applications are open.
    services: Option<RunningServices>,
}

impl HeldLease {
    pub(crate) fn leadership(&self) -> &Leadership {
        &self.leadership
    }
}

/// Returns the longest time from the death of an owner to the start of its partitions on other
/// nodes, which then recover them. The bound holds if a node that can run them has a lease, the
/// storage answers each call in time, and one call can take all of them.
fn takeover_bound(budget: &Budget, check_of_deployment: Duration) -> Duration {
    // A read of the cluster, a look at the ownership rows that was under way, and the four calls
    // that take a partition. A check of the deployment that was under way counts, too.
    let calls = 6 * budget.timing().call_timeout;
    budget.failover_bound() + READ_EVERY + LONGEST_TAKE_WAIT + calls + 2 * check_of_deployment
}

/// Whether the leadership is lost; false if there is no leadership.
pub(crate) fn is_lost(leadership: Option<&Leadership>) -> bool {
    leadership.is_some_and(|leadership| leadership.lost().is_some())
}

/// Waits until the leadership is lost; forever if there is no leadership.
pub(crate) async fn until_lost(leadership: Option<&Leadership>) {
    match leadership {
        Some(leadership) => drop(leadership.over().await),
        None => std::future::pending().await,
    }
}

impl NodeParts {
    /// Acquires leadership and works under it until there is a problem. The leadership stays in
    /// `held`, where the stop finds it.
    pub(crate) async fn work(
        &self,
        lock: Option<LockFile>,
        held: &mut Option<HeldLease>,
    ) -> Problem {
        match self.try_work(lock, held).await {
            Ok(lost) => Problem::LeadershipLost(lost),
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
        systems: &SystemClients,
        lock: Option<LockFile>,
        lease: &mut Option<HeldLease>,
    ) -> Result<LossReason, Problem> {
        let levels = self.levels(&systems.elections).await?;
        let serves_level_2 = levels.contains(&TrustLevel::Two);
        let leadership = self.acquire(&systems.elections, lock, &levels).await?;
        let seat = leadership.seat();
        let fence = Arc::new(LeaseFence::new(leadership.work().map_err(Problem::LeadershipLost)?));
        self.node.set_fence(Some((seat, Arc::clone(&fence))));
        self.node.set_stage(Stage::Recovering);
        let stops = PartitionStops::default();
        let held = HeldLease { leadership, fence, stops, services: None };
        let HeldLease { leadership, fence, stops, services } = lease.insert(held);
        let (node, settings, clients) = (&self.node, &self.settings, &self.clients);
        let system = &systems.requests;
        let deployer = Deployer { node, system, settings, clients, leadership, serves_level_2 };
        let work = async {
            let partitions = self.open_apps(&deployer).await?;
            *services = node_service::start_services(node, leadership, fence, &clients.runtime)?;
            let rows = systems.elections.owners();
            let (sender, settled) = oneshot::channel();
            let mut owned = OwnedPartitions::new(&deployer, rows, partitions, stops);
            tokio::select! {
                problem = owned.run(sender) => Err(problem),
                never = self.report_ready(settled, seat) => Ok::<Infallible, Problem>(never),
            }
        };
        tokio::select! {
            biased;
            lost = leadership.over() => Ok(lost),
            ended = work => match ended? {},
        }
    }

    /// Opens all applications. Returns their partitions.
    async fn open_apps(&self, deployer: &Deployer<'_>) -> Result<AllPartitions<'_>, Problem> {
        let mut all = AllPartitions::new();
        for app in self.node.apps() {
            let served = deployer.open(app).await?;
            let number = served.app.entry.number.get();
            for partition in 0..app.settings.partitions.get() {
                all.insert(PartitionId { app: number, partition }, (app, &**served));
            }
        }
        Ok(all)
    }

    /// Reports that the node leads, and later that its partitions have recovered.
    async fn report_ready(&self, settled: oneshot::Receiver<()>, seat: Seat) -> Infallible {
        // The sender is gone if the leadership is over.
        if settled.await.is_ok() {
            self.node.set_stage(Stage::Leading);
            self.recovered().await;
            info!(seat = seat.get(), at = %self.settings.advertised, "node ready");
            let partitions = self.node.count_violated();
            if partitions > 0 {
                warn!(partitions, "partitions blocked by violations; run `vvm repair list`");
            }
        }
        std::future::pending().await
    }

    /// Waits until no partition recovers or is stalled. Until then `Node::stage` reports
    /// [`Stage::Recovering`], although `set_stage` has set [`Stage::Leading`].
    async fn recovered(&self) {
        while self.node.stage() != Stage::Leading {
            self.clock.sleep(STAGE_CHECK_INTERVAL).await;
        }
    }

    /// A node that does not lead yet tries to open its storage until this time. A node that waits
    /// for leadership without a limit waits for its storage, too.
    fn opens_until(&self, within: Duration) -> Instant {
        match self.settings.acquire_within {
            None => Instant::FAR_FUTURE,
            Some(_) => self.clock.now() + within,
        }
    }

    /// Opens the system keyspace.
    async fn open(&self) -> Result<SystemClients, Problem> {
        let deadline = self.opens_until(Duration::ZERO);
        let open = || self.clients.open(&self.settings, &self.clock);
        opening::retry_until(&self.clock, deadline, open).await
    }

    /// Returns the trust levels of the applications. The stored level counts, and the level of the
    /// settings if the application was never deployed.
    async fn levels(&self, system: &Arc<System>) -> Result<Vec<TrustLevel>, Problem> {
        let deadline = self.opens_until(self.settings.open_within);
        let mut levels = Vec::new();
        for app in self.node.apps() {
            let read = || async {
                let deadline = self.clock.now() + self.settings.open_within;
                let opened = match system.open_app(app.name(), deadline).await {
                    Err(sysvvm::Error::DoesNotExist { .. }) => return Ok(None),
                    opened => opened?,
                };
                let stored = Deployment::stored(&opened.storage, deadline).await;
                stored.map_err(|why| not_deployed(app.name(), why))
            };
            let stored = opening::retry_until(&self.clock, deadline, read).await?;
            levels.push(stored.map_or(app.settings.level, |stored| stored.level));
        }
        Ok(levels)
    }

    async fn acquire(
        &self,
        system: &Arc<System>,
        lock: Option<LockFile>,
        levels: &[TrustLevel],
    ) -> Result<Leadership, Problem> {
        let NodeSettings { seats, advertised, .. } = self.settings;
        let storage = system.storage().capabilities();
        let lease = self.settings.lease_for(levels.iter().copied(), storage.late_write);
        let lease = lease.map_err(|bad| Problem::Refused(bad.to_string()))?;
        let (store, clock) = (Arc::new(system.elections()), self.clock.clone());
        let elections = Elections::new(store, clock, advertised, lease);
        let mut elections = elections.map_err(|why| Problem::Refused(why.to_string()))?;
        if let Some(kill) = &self.kill {
            elections = elections.with_killer(Arc::clone(kill));
        }
        // At level 2 a late write of the former process could replace a row of this process.
        if let Some(lock) = lock.filter(|_| !levels.contains(&TrustLevel::Two)) {
            elections = elections.with_comeback(lock);
        }
        let node = self.node.clone();
        let elections = elections.with_health(Arc::new(move || node.is_healthy()));
        let budget = elections.budget();
        let gives_up_after = self.settings.acquire_limit(storage.expiry_is_watched, budget);
        // `failover` counts from the death of a leader whose storage answers in time.
        // `failover_of_slow` counts from the last good renewal of a leader that lives and whose
        // storage is slow; the delay of the storage comes on top. `takeover` counts from the death
        // of an owner.
        info!(
            failover = ?budget.failover_bound(),
            failover_of_slow = ?budget.slow_store_bound(),
            takeover = ?takeover_bound(budget, self.settings.request_call_timeout),
            stop = ?budget.stop_bound(),
            // A node without a limit has no such field.
            gives_up_after = gives_up_after.map(tracing::field::debug),
            "waiting for leadership"
        );
        self.node.view().set_source(system, elections.observer(), self.settings.lease.call_timeout);
        self.node.set_stage(Stage::Waiting);
        let until = gives_up_after.map_or(Instant::FAR_FUTURE, |time| self.clock.now() + time);
        let last_seat = Seat::from(seats);
        Ok(elections.acquire(last_seat, until).await?)
    }

    /// Ends all work under the leadership. Releases the lease if it is proved that nothing is
    /// written any more.
    ///
    /// The release waits until the document numbers are given back. Otherwise the next leader could
    /// reserve the numbers after them, and they would be missing.
    pub(crate) async fn end_leadership(
        &self,
        HeldLease { leadership, fence, stops, services }: HeldLease,
        are_given_back: &CancellationToken,
        [partitions, deadline]: [Instant; 2],
    ) {
        let stopping = partitions::stop_all(&self.node, stops, partitions);
        let services = async {
            match services {
                Some(services) => services.end(&self.clock, partitions).await,
                None => true,
            }
        };
        let (mut ended, have_ended) = tokio::join!(stopping, services);
        if !have_ended {
            ended.unproved.push("a service of the node did not end in time".to_owned());
            ended.is_late = true;
        }
        tokio::select! {
            biased;
            _ = leadership.over() => {}
            () = are_given_back.cancelled() => {}
        }
        self.node.set_fence(None);
        if let Some(lost) = leadership.lost() {
            self.problem.report(Problem::LeadershipLost(lost));
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
        let reason = match leadership.stopped(deadline).await {
            Ok(stopped) => match self.clock.timeout_at(deadline, stopped.release()).await {
                Ok(ReleaseOutcome::LeaseGone) => {
                    info!("lease released");
                    return;
                }
                Ok(ReleaseOutcome::LeftToExpire) | Err(_) => {
                    "there was no time to delete the lease, or the storage did not confirm it"
                        .to_owned()
                }
            },
            Err(unproved) => unproved.to_string(),
        };
        warn!(reason, "lease not released, and left to expire");
    }
}
