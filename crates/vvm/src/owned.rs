//! The partitions that a node owns under one leadership: it takes them, starts them, watches their
//! ownership rows, and gives them to other nodes.
//!
//! [`Balancer`] says what the node wishes, and [`OwnershipEngine`] decides what is safe. This
//! module makes the calls, with the client and on the runtime of elections, and starts partitions
//! on the runtime of requests. So requests do not delay a takeover.

mod deployments;
mod expected;
mod failures;
mod plan;
mod stop;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base::with_causes;
use clock::Instant;
use eventlog::TrustLevel;
use processor::{PartitionEnd, Status};
use sysvvm::{
    OwnerRows,
    ownership::{
        Balancer, LOOK_EVERY, Owner, OwnerEpoch, OwnerRow, OwnershipAction, OwnershipAnswer,
        OwnershipCall, OwnershipEngine, OwnershipNotice, PartitionId,
    },
};
use tokio::sync::{oneshot, watch};
use tracing::{error, info, warn};

pub(crate) use self::stop::PartitionStops;
use self::{
    deployments::DeploymentChecks,
    expected::ExpectedPartitions,
    failures::EarlyFailures,
    stop::{PartitionStop, StopTimes},
};
use crate::{
    App, Node, Problem,
    app::ServedApp,
    cluster_view::ClusterReport,
    drain::DrainStage,
    lease_fence::PartitionFence,
    membership::Wishes,
    partitions::{Deployer, StoppedPartition},
    successor::AskedSuccessors,
};

/// How often the rows are read while another node is about to give a partition to this one.
const LOOK_OFTEN: Duration = Duration::from_millis(50);

/// How often a failure of the same call is logged again.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// All partitions of the cluster that a node can run, each with its application.
pub(crate) type AllPartitions<'a> = BTreeMap<PartitionId, (&'a App, &'a ServedApp)>;

/// The partitions that a node owns.
pub(crate) struct OwnedPartitions<'a> {
    deployer: &'a Deployer<'a>,
    rows: OwnerRows,
    engine: OwnershipEngine,
    balancer: Balancer,
    all: AllPartitions<'a>,
    /// The partitions that were started and did not leave this node since.
    started: BTreeMap<PartitionId, OwnerEpoch>,
    stops: &'a mut PartitionStops,
    /// The fences of partitions that ended without a proof. A later epoch in the ownership row
    /// proves that their writes are fenced.
    unproved: BTreeMap<PartitionId, Arc<PartitionFence>>,
    checks: DeploymentChecks<'a>,
    failures: EarlyFailures,
    /// The partitions that nobody can take: their rows make no sense, or have the highest epoch.
    blocked: BTreeSet<PartitionId>,
    /// The partitions whose moves operators have ordered, and when this node saw the order first.
    ordered: BTreeMap<(PartitionId, OwnerEpoch), Instant>,
    /// When the last read of the rows was sent.
    looked: Option<Instant>,
    expected: ExpectedPartitions,
    asked: AskedSuccessors,
    /// The time of the next attempt to take partitions, and the number of partitions in the last.
    next_attempt: (Instant, usize),
    log_at: Instant,
    reports: watch::Receiver<ClusterReport>,
    drains: watch::Receiver<DrainStage>,
}

/// The beat of the task, which ends with it. Then the node is no successor any more: nobody would
/// start the partitions that it got.
struct Beat<'a>(&'a Node);

impl Drop for Beat<'_> {
    fn drop(&mut self) {
        self.0.note_beat(None);
        *self.0.membership().wishes() = Wishes::default();
        self.0.view().ask_now();
    }
}

impl<'a> OwnedPartitions<'a> {
    /// Makes the state of a leadership that has just begun.
    pub(crate) fn new(
        deployer: &'a Deployer<'a>,
        rows: OwnerRows,
        all: AllPartitions<'a>,
        stops: &'a mut PartitionStops,
    ) -> OwnedPartitions<'a> {
        let clock = deployer.node.clock();
        let now = clock.now();
        let me = Owner {
            incarnation: deployer.leadership.incarnation(),
            advertised: deployer.settings.advertised,
            cluster: deployer.settings.cluster,
        };
        let engine = OwnershipEngine::new(me, all.keys().copied(), rows.rows_at_once(), now);
        OwnedPartitions {
            deployer,
            rows,
            engine,
            balancer: Balancer::new(me, clock.random()),
            all,
            started: BTreeMap::new(),
            stops,
            unproved: BTreeMap::new(),
            checks: DeploymentChecks::default(),
            failures: EarlyFailures::default(),
            blocked: BTreeSet::new(),
            ordered: BTreeMap::new(),
            looked: None,
            expected: ExpectedPartitions::new(now),
            asked: AskedSuccessors::new(deployer.clients.runtime.clone()),
            next_attempt: (now, usize::MAX),
            log_at: now,
            reports: deployer.node.view().reports(),
            drains: deployer.node.drain().stages(),
        }
    }

    /// Takes, starts, watches and gives up partitions until there is a problem. Reports to
    /// `settled` when the node owns and has started everything that it takes at its start.
    pub(crate) async fn run(&mut self, settled: oneshot::Sender<()>) -> Problem {
        let node = self.deployer.node;
        let _beat = Beat(node);
        node.membership().wishes().is_ready = true;
        node.view().ask_now();
        match self.run_until_problem(settled).await {
            Ok(never) => match never {},
            Err(problem) => problem,
        }
    }

    async fn run_until_problem(
        &mut self,
        settled: oneshot::Sender<()>,
    ) -> Result<std::convert::Infallible, Problem> {
        let clock = self.deployer.node.clock().clone();
        let beats_within = BEAT_WITHIN + self.deployer.settings.lease.call_timeout;
        let mut settled = Some(settled);
        let mut answer = OwnershipAnswer::None;
        loop {
            self.deployer.node.note_beat(Some(clock.now() + beats_within));
            self.end_failed();
            let action = self.engine.next(clock.now(), answer);
            self.handle_notices()?;
            self.begin_checks();
            let (is_settled, has_told) = self.plan(clock.now());
            let has_told = self.handle_notices()? || has_told;
            if is_settled && let Some(settled) = settled.take() {
                // The receiver is gone if the leadership is over.
                let _ = settled.send(());
            }
            answer = match action {
                OwnershipAction::Call(call) => self.call(&call).await?,
                OwnershipAction::Wait(_) if has_told => OwnershipAnswer::None,
                OwnershipAction::Wait(until) => {
                    self.wait(until).await?;
                    OwnershipAnswer::None
                }
            };
        }
    }

    /// Waits until a time, or until there is something to do.
    async fn wait(&mut self, until: Instant) -> Result<(), Problem> {
        let node = self.deployer.node;
        let clock = node.clock();
        let longest = if self.expected.may_come(clock.now()) { LOOK_OFTEN } else { LOOK_EVERY };
        let until = until.min(clock.now() + longest);
        tokio::select! {
            () = clock.sleep_until(until) => {}
            stop = self.stops.next() => self.note_stop(stop)?,
            (checked, waiting) = self.checks.next() => self.note_check(checked, waiting)?,
            missing = self.asked.answered(|| clock.now()) => {
                if let Some(missing) = missing {
                    warn!(successor = %missing, "successor does not answer");
                    self.balancer.successor_failed(clock.now(), missing);
                }
            }
            // The senders live as long as the node. A change since the last wait ends this one at
            // once: it may have come after the last plan.
            _ = self.reports.changed() => {}
            _ = self.drains.changed() => {}
        }
        let now = clock.now();
        if self.expected.may_come(now)
            && self.looked.is_none_or(|looked| now >= looked + LOOK_OFTEN)
        {
            self.engine.look_soon(now);
        }
        Ok(())
    }

    /// Makes a call. Meanwhile partitions that stop are noted.
    async fn call(&mut self, call: &OwnershipCall) -> Result<OwnershipAnswer, Problem> {
        let clock = self.deployer.node.clock().clone();
        let sent = clock.now();
        let deadline = sent + self.deployer.settings.lease.call_timeout;
        let rows = self.rows.clone();
        let mut answer = std::pin::pin!(clock.timeout_at(deadline, rows.answer(call, deadline)));
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                stop = self.stops.next() => self.note_stop(stop)?,
                (checked, waiting) = self.checks.next() => self.note_check(checked, waiting)?,
            }
        };
        let now = clock.now();
        // A write without an answer may have been sent.
        match answered.unwrap_or(Ok(OwnershipAnswer::Unknown)) {
            Ok(answer) => {
                if matches!(answer, OwnershipAnswer::Rows(_)) {
                    self.looked = Some(sent);
                }
                let failed = [OwnershipAnswer::Unavailable, OwnershipAnswer::Unknown];
                if failed.contains(&answer) && now >= self.log_at {
                    self.log_at = now + LOG_EVERY;
                    warn!("storage does not answer: owners of partitions not known");
                }
                Ok(answer)
            }
            Err(error) => {
                self.note(&error, now);
                Ok(OwnershipAnswer::Unavailable)
            }
        }
    }

    /// Notes an error of a call that changed nothing. A partition whose row makes no sense is
    /// not taken any more.
    fn note(&mut self, error: &sysvvm::Error, now: Instant) {
        let blocked = OwnerRows::partition_of(error);
        if let Some(partition) = blocked {
            self.engine.set_aside(now, partition);
        }
        let is_new = blocked.is_some_and(|partition| self.blocked.insert(partition));
        if is_new || now >= self.log_at {
            self.log_at = now + LOG_EVERY;
            error!(error = %with_causes(error), "owners of partitions not known");
        }
    }

    /// Handles all notices of the engine. Returns whether there were any.
    fn handle_notices(&mut self) -> Result<bool, Problem> {
        let notices = self.engine.notices();
        let is_some = !notices.is_empty();
        let mut taken = None;
        for notice in notices {
            match notice {
                OwnershipNotice::Start(partition, epoch) => {
                    let now = self.deployer.node.clock().now();
                    self.checks.add(now, partition, epoch);
                }
                OwnershipNotice::Stop(partition, epoch) => self.stop(partition, epoch),
                OwnershipNotice::Left(partition) => self.leave(partition),
                // Another node may have taken several partitions at once.
                OwnershipNotice::Foreign(partition, row) => {
                    let problem = self.close(partition, row);
                    taken.get_or_insert(problem);
                }
                OwnershipNotice::NoEpochLeft(partition) => {
                    error!(%partition, "partition has no epoch left");
                    self.blocked.insert(partition);
                }
            }
        }
        match taken {
            None => Ok(is_some),
            Some(problem) => {
                self.stop_all_services();
                Err(problem)
            }
        }
    }

    /// Tells the services of all partitions to end. From now on nobody notices if another node
    /// takes one of them.
    fn stop_all_services(&self) {
        for (id, (_, served)) in &self.all {
            if let Some(started) = served.started().get(&id.partition) {
                started.stop_services();
            }
        }
    }

    fn start(&mut self, partition: PartitionId, epoch: OwnerEpoch) -> Result<(), Problem> {
        let Some(&(app, served)) = self.all.get(&partition) else { return Ok(()) };
        self.started.insert(partition, epoch);
        self.fenced(partition);
        let now = self.deployer.node.clock().now();
        self.deployer.node.membership().wishes().starts.insert(partition, now);
        info!(app = %app.name(), partition = partition.partition, %epoch, "partition started");
        self.deployer.start(app, served, partition.partition, epoch.into())
    }

    /// The row has a later epoch than a partition that ended without a proof. So its writes that
    /// may still land are fenced, and the end counts as proved.
    fn fenced(&mut self, partition: PartitionId) {
        if let Some(fence) = self.unproved.remove(&partition) {
            fence.finish();
        }
    }

    /// Stops a partition that goes to another node. Its client requests wait meanwhile, so writes
    /// without an answer must not delay the stop for long.
    fn stop(&mut self, partition: PartitionId, epoch: OwnerEpoch) {
        self.checks.forget(partition);
        let settings = self.deployer.settings;
        let times = StopTimes::of_move(settings.request_call_timeout);
        self.push_stop(partition, epoch, times);
    }

    fn push_stop(&mut self, partition: PartitionId, epoch: OwnerEpoch, times: StopTimes) {
        if let Some((app, _)) = self.all.get(&partition) {
            self.stops.begin(self.deployer.node, app.name(), partition, epoch, times);
        }
    }

    /// Ends the partitions that have failed. The engine starts them again, after a pause.
    fn end_failed(&mut self) {
        let failed = |app: &App, partition| {
            let status = app.partitions.commands(partition).map(|here| here.status());
            matches!(status, Some(Status::Failed(_) | Status::LeadershipLost(_)))
        };
        let mut ended = Vec::new();
        for (&id, &epoch) in &self.started {
            let app = self.all.get(&id).map(|(app, _)| app);
            if app.is_some_and(|app| failed(app, id.partition)) {
                ended.push((id, epoch));
            }
        }
        for (id, epoch) in ended {
            let is_stopping =
                self.all.get(&id).is_some_and(|(app, _)| self.stops.has(app.name(), id.partition));
            if !is_stopping {
                self.note_failure(id);
            }
            let times = StopTimes::of_failed(self.deployer.settings.request_call_timeout);
            self.push_stop(id, epoch, times);
        }
    }

    /// Notes that a partition has stopped. Its row may change when none of its writes can take
    /// effect any more.
    fn note_stop(&mut self, stop: PartitionStop) -> Result<(), Problem> {
        let PartitionStop { id, epoch, stopped, log_epoch } = stop;
        let StoppedPartition { end, fence, .. } = stopped;
        let Some((app, served)) = self.all.get(&id) else { return Ok(()) };
        let now = self.deployer.node.clock().now();
        let why = match end {
            PartitionEnd::Stopped => None,
            PartitionEnd::Unproved(why) | PartitionEnd::LeadershipLost(why) => Some(why),
            PartitionEnd::Late => {
                let name = app.name();
                let why = format!("partition {} of {name} did not end in time", id.partition);
                return Err(Problem::NotEnded(vec![why]));
            }
        };
        let mut safe_at = now;
        if let Some(why) = why {
            // At levels 0 and 1 a write that still lands is adopted, is refused by its condition,
            // or is superseded by its order.
            if served.deployment.level == TrustLevel::Two {
                safe_at = now + served.app.storage.capabilities().late_write;
            }
            warn!(app = %app.name(), partition = id.partition, %epoch, why, "partition ended unproved");
        }
        if let Some(fence) = fence {
            self.unproved.insert(id, fence);
        }
        self.engine.ended(now, id, epoch, safe_at, log_epoch);
        Ok(())
    }

    fn leave(&mut self, partition: PartitionId) {
        self.started.remove(&partition);
        self.failures.forget(partition);
        self.fenced(partition);
        let node = self.deployer.node;
        node.membership().wishes().starts.remove(&partition);
        node.view().ask_now();
        if let Some((app, _)) = self.all.get(&partition) {
            let OwnerRow { epoch, owner } = self.engine.row(partition);
            let to = owner.map(|owner| owner.advertised);
            info!(app = %app.name(), partition = partition.partition, %epoch, ?to, "partition given up");
        }
    }

    /// Closes the fence of a partition that another node has taken.
    fn close(&self, partition: PartitionId, row: OwnerRow) -> Problem {
        let Some(&(app, served)) = self.all.get(&partition) else {
            return Problem::OwnershipLost(format!("the owner of {partition} is unexpected"));
        };
        let why = taken(app, partition.partition, row);
        if let Some(started) = served.started().get(&partition.partition) {
            started.fence.close(&why);
        }
        Problem::OwnershipLost(why)
    }
}

/// The longest time between two beats of the task, without the time of a call.
const BEAT_WITHIN: Duration = Duration::from_secs(5);

fn taken(app: &App, partition: u16, row: OwnerRow) -> String {
    let name = app.name();
    match row.owner {
        Some(owner) => {
            format!(
                "{} took partition {partition} of {name} in epoch {}",
                owner.advertised, row.epoch
            )
        }
        None => format!("partition {partition} of {name} has no owner any more"),
    }
}
