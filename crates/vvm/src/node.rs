//! A node as its services see it: its own leadership, the other leaders, and its applications.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex, OnceLock, RwLock},
    time::Duration,
};

use base::locks::{lock, read, write};
use clock::{Clock, Instant};
use ielections::{Incarnation, Seat};
use istorage::KeyspaceName;
use sysvvm::ownership::{Member, MemberState, OwnerRow, PartitionId};

use crate::{
    App, AppSettings, NodeService, NodeSettings, PartitionService,
    cluster_view::{ClusterReport, ClusterView},
    drain::Drain,
    lease_fence::LeaseFence,
    membership::Membership,
    problem::FirstProblem,
    status::{LeadershipStatus, NodeStatus, StorageStatus},
    successor::SuccessorCheck,
};

/// The longest time that a slow storage may delay an answer that names the owner of a partition.
const REDIRECT_WITHIN: Duration = Duration::from_millis(500);

/// The longest time that a slow storage may delay the status. Programs ask for the status often and
/// expect an answer at once.
const STATUS_WITHIN: Duration = Duration::from_millis(50);

/// How long a start of the node counts.
const START_COUNTS_FOR: Duration = Duration::from_secs(600);

/// How often a request that waits for a partition checks whether the partition takes commands.
const OWNER_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How often a wait for a stage checks the stage.
pub(crate) const STAGE_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The stage of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The node opens its storage.
    Opening,
    /// The node waits for the leadership of a seat.
    Waiting,
    /// The node leads. Some of its partitions are being deployed, recover, wait until the storage
    /// takes their writes, or take no more commands because their queue is full.
    Recovering,
    /// The node leads, and its partitions have recovered, except those that an operator must put
    /// right first.
    Leading,
    /// The node is being stopped.
    Stopping,
    /// No part of the node works any more.
    Stopped,
}

/// A node as its services see it. Clones are the same node.
#[derive(Clone, Debug)]
pub struct Node(Arc<NodeInner>);

#[derive(Debug)]
struct NodeInner {
    clock: Clock,
    launched: Instant,
    settings: NodeSettings,
    driver: &'static str,
    apps: Vec<App>,
    partition_services: Vec<Arc<dyn PartitionService>>,
    node_services: Vec<Arc<dyn NodeService>>,
    stage: Mutex<Stage>,
    drain: Drain,
    membership: Membership,
    /// The time by which the task that owns partitions beats again, while it runs.
    beat: Mutex<Option<Instant>>,
    fence: RwLock<Option<(Seat, Arc<LeaseFence>)>>,
    view: ClusterView,
    successor_check: OnceLock<Arc<dyn SuccessorCheck>>,
    problem: FirstProblem,
}

impl Node {
    pub(crate) fn new(
        settings: NodeSettings,
        driver: &'static str,
        apps: Vec<AppSettings>,
        partition_services: Vec<Arc<dyn PartitionService>>,
        node_services: Vec<Arc<dyn NodeService>>,
        clock: Clock,
        problem: FirstProblem,
    ) -> Node {
        let apps = apps.into_iter().map(|settings| App::new(settings, clock.clone())).collect();
        Node(Arc::new(NodeInner {
            launched: clock.now(),
            view: ClusterView::new(clock.clone()),
            clock: clock.clone(),
            settings,
            driver,
            apps,
            partition_services,
            node_services,
            stage: Mutex::new(Stage::Opening),
            drain: Drain::new(),
            membership: Membership::new(&clock),
            beat: Mutex::new(None),
            fence: RwLock::new(None),
            successor_check: OnceLock::new(),
            problem,
        }))
    }

    /// The clock of the node.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The address where clients of other nodes find this node.
    pub fn advertised(&self) -> SocketAddr {
        self.0.settings.advertised
    }

    /// The name of the system keyspace.
    pub fn system_keyspace(&self) -> &KeyspaceName {
        &self.0.settings.system
    }

    /// The stage of the node.
    pub fn stage(&self) -> Stage {
        let stage = *lock(&self.0.stage);
        // Partitions recover and stall by themselves, so the stage of a leading node follows from
        // their status.
        let recovers = |app: &App| {
            use processor::{FullQueue, Status};
            let all = app.partitions.status();
            all.iter().any(|(_, status)| {
                matches!(
                    status,
                    Status::Recovering(_) | Status::Stalled(_) | Status::Full(FullQueue::Numbers)
                )
            })
        };
        match stage {
            Stage::Leading if self.0.apps.iter().any(recovers) => Stage::Recovering,
            stage => stage,
        }
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        *lock(&self.0.stage) = stage;
    }

    /// The applications of the node.
    pub fn apps(&self) -> &[App] {
        &self.0.apps
    }

    /// The application of this owner and name.
    pub fn app(&self, owner: &str, name: &str) -> Option<&App> {
        let is_it = |app: &&App| app.name().owner() == owner && app.name().name() == name;
        self.0.apps.iter().find(is_it)
    }

    /// Gives all partitions to other nodes, and ends the leadership in order, so that another node
    /// can lead. The host of the node learns [`SteppedDown`](crate::Problem::SteppedDown),
    /// and shuts the node down.
    ///
    /// # Errors
    /// If the node does not lead.
    pub fn step_down(&self) -> Result<(), NotLeading> {
        let is_stopping = matches!(self.stage(), Stage::Stopping | Stage::Stopped);
        if self.fence().is_none() || is_stopping {
            return Err(NotLeading);
        }
        self.0.drain.step_down();
        Ok(())
    }

    /// The owner of a partition as the storage showed it last, about a second ago. An owner whose
    /// lease is gone, or may be gone, is absent.
    pub fn owner_of(&self, app: &App, partition: u16) -> OwnerRow {
        self.owner_in(&self.0.view.last(), app, partition)
    }

    fn owner_in(&self, report: &ClusterReport, app: &App, partition: u16) -> OwnerRow {
        let (Some(app), Some(seen)) = (app.number(), &report.answer) else {
            return OwnerRow::default();
        };
        let row = seen.owner(PartitionId { app: app.get(), partition });
        // If the answer is older than a lease lasts, another node may own the partition now.
        let is_old = self.0.clock.now() >= seen.sent + self.0.settings.lease.duration;
        if is_old { OwnerRow { owner: None, ..row } } else { row }
    }

    /// The address of the owner of a partition that this node does not own, after a fresh read if
    /// the storage answers soon; `None` if nobody owns the partition, or the owner is not known.
    pub async fn find_owner(&self, app: &App, partition: u16) -> Option<SocketAddr> {
        let report = self.0.view.get(REDIRECT_WITHIN).await;
        let owner = self.owner_in(&report, app, partition).owner?.advertised;
        (owner != self.0.settings.advertised).then_some(owner)
    }

    /// Waits until the owner of a partition differs from `seen`, until the partition takes commands
    /// on this node, or until a time. Meanwhile the owners are read at most every 100 ms.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn owner_changed(&self, app: &App, partition: u16, seen: OwnerRow, until: Instant) {
        let clock = &self.0.clock;
        let mut reports = self.0.view.reports();
        let is_ready = || {
            let commands = app.partitions.commands(partition);
            commands.is_some_and(|commands| commands.status() == processor::Status::Ready)
        };
        let was_ready = is_ready();
        while clock.now() < until && self.owner_of(app, partition) == seen {
            self.0.view.ask();
            if is_ready() != was_ready {
                return;
            }
            let next = until.min(clock.now() + OWNER_CHECK_INTERVAL);
            // The loop checks again after a report, and after the interval.
            let _ = clock.timeout_at(next, reports.changed()).await;
        }
    }

    /// The incarnation of the node's lease; `None` while the node does not lead.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.fence().map(|(_, fence)| fence.incarnation())
    }

    /// Whether the node gives its partitions to other nodes, because it is about to stop or an
    /// operator asked it to.
    pub fn is_draining(&self) -> bool {
        self.0.drain.stage().begun.is_some()
    }

    /// Whether the node can answer requests: its partitions work, or it can forward requests to
    /// another node that works. A node that drains is not ready, so that load balancers leave it
    /// before it stops.
    pub fn is_ready(&self) -> bool {
        // The stage stays until the host stops a node that has lost its leadership.
        let leads = self.stage() == Stage::Leading && self.left_ms().is_some();
        !self.is_draining() && (leads || self.can_forward())
    }

    fn can_forward(&self) -> bool {
        let is_stopping = matches!(self.stage(), Stage::Stopping | Stage::Stopped);
        let Some(seen) = self.0.view.last().answer.filter(|_| self.0.settings.cluster.is_some())
        else {
            return false;
        };
        let is_old = self.0.clock.now() >= seen.sent + self.0.settings.lease.duration;
        let works = |member: &Member| {
            let leads = member.incarnation.is_some_and(|it| seen.living.contains(&it));
            member.id != self.0.membership.id()
                && member.state == MemberState::Ready
                && member.cluster.is_some()
                && leads
                && seen.is_fresh(member.id)
        };
        !is_stopping && !is_old && seen.members.iter().any(|row| works(&row.member))
    }

    /// Sets how this node asks a successor whether it is there, before a partition is given to it.
    /// Without one a node gives partitions to nodes whose rows look alive. The service that
    /// connects the nodes sets it once; later calls change nothing.
    pub fn set_successor_check(&self, check: Arc<dyn SuccessorCheck>) {
        let _ = self.0.successor_check.set(check);
    }

    pub(crate) fn successor_check(&self) -> Option<&Arc<dyn SuccessorCheck>> {
        self.0.successor_check.get()
    }

    /// Whether this node holds the lease of this incarnation, and starts partitions that are given
    /// to it.
    pub fn can_own(&self, incarnation: Incarnation) -> bool {
        let holds = self.fence().is_some_and(|(_, fence)| {
            fence.incarnation() == incarnation && fence.left(self.0.clock.now()).is_some()
        });
        holds && !self.is_draining() && self.membership().wishes().is_ready
    }

    /// Begins to give all partitions to other nodes. The node goes on answering requests, by
    /// forwarding them, until it is stopped or the drain is [cancelled](Node::cancel_drain).
    pub fn begin_drain(&self) {
        self.0.drain.begin(self.0.clock.now());
        self.0.view.ask_now();
    }

    /// Ends a drain: the node takes partitions again. A node that stops goes on draining.
    pub fn cancel_drain(&self) {
        self.0.drain.cancel();
        self.0.view.ask_now();
    }

    pub(crate) fn partition_services(&self) -> &[Arc<dyn PartitionService>] {
        &self.0.partition_services
    }

    pub(crate) fn node_services(&self) -> &[Arc<dyn NodeService>] {
        &self.0.node_services
    }

    pub(crate) fn drain(&self) -> &Drain {
        &self.0.drain
    }

    pub(crate) fn membership(&self) -> &Membership {
        &self.0.membership
    }

    /// The seat of the node, while it leads.
    pub fn seat(&self) -> Option<u32> {
        self.fence().map(|(seat, _)| seat.get())
    }

    /// The time until the leadership ends, unless the lease is renewed.
    pub(crate) fn left_ms(&self) -> Option<u64> {
        let (_, fence) = self.fence()?;
        fence.left(self.0.clock.now()).map(|left| left.as_millis() as u64)
    }

    /// Waits until this node has read the cluster again.
    pub async fn cluster_changed(&self) {
        let mut reports = self.0.view.reports();
        // The sender lives as long as the node.
        let _ = reports.changed().await;
    }

    pub(crate) fn seats(&self) -> NonZeroU32 {
        self.0.settings.seats
    }

    pub(crate) fn cluster_address(&self) -> Option<SocketAddr> {
        self.0.settings.cluster
    }

    /// The starts of this node in the last 10 minutes, this one included.
    pub(crate) fn recent_starts(&self) -> u32 {
        let up = self.0.clock.now().saturating_since(self.0.launched);
        let starts = self.0.settings.earlier_starts.iter().chain([&Duration::ZERO]);
        starts.filter(|before| **before + up < START_COUNTS_FOR).count() as u32
    }

    /// Notes that the task that owns partitions works, and the deadline of its next beat; `None`
    /// when it has ended.
    pub(crate) fn note_beat(&self, next: Option<Instant>) {
        *lock(&self.0.beat) = next;
    }

    /// Whether the task that owns partitions works.
    pub(crate) fn owns_partitions(&self) -> bool {
        lock(&self.0.beat).is_some()
    }

    /// The number of partitions on this node that take no more commands now, because too many
    /// commands or numbers wait.
    pub fn count_full(&self) -> usize {
        let statuses = self.0.apps.iter().flat_map(|app| app.partitions.status());
        statuses.filter(|(_, status)| matches!(status, processor::Status::Full(_))).count()
    }

    /// The number of partitions on this node that run no commands until an operator has put their
    /// logs right.
    pub(crate) fn count_violated(&self) -> usize {
        let statuses = self.0.apps.iter().flat_map(|app| app.partitions.status());
        statuses.filter(|(_, status)| matches!(status, processor::Status::Violation(_))).count()
    }

    /// The cluster, as the storage reported it last.
    pub(crate) fn view(&self) -> &ClusterView {
        &self.0.view
    }

    /// Whether the node can go on leading. An owner that is alive and does nothing would keep its
    /// partitions for ever.
    pub(crate) fn is_healthy(&self) -> bool {
        let beat = *lock(&self.0.beat);
        beat.is_none_or(|next| self.0.clock.now() < next)
    }

    pub(crate) fn set_fence(&self, fence: Option<(Seat, Arc<LeaseFence>)>) {
        *write(&self.0.fence) = fence;
    }

    fn fence(&self) -> Option<(Seat, Arc<LeaseFence>)> {
        read(&self.0.fence).clone()
    }

    /// The full status of the node.
    pub async fn status(&self) -> NodeStatus {
        let seen = self.0.view.get(STATUS_WITHIN).await;
        let now = self.0.clock.now();
        let lead = self.fence().map(|(seat, fence)| LeadershipStatus {
            seat: seat.get(),
            epoch: fence.epoch().0,
            left_ms: fence.left(now).map(|left| left.as_millis() as u64),
        });
        let age = |at: Instant| (now - at).as_millis() as u64;
        let answer_age_ms = seen.answer.as_ref().map(|seen| age(seen.sent));
        let is_silent = seen.answer.is_none() && seen.last_error.is_none();
        let last_error = if is_silent { Some("no answer yet".to_owned()) } else { seen.last_error };
        let leaders = seen.answer.map(|seen| seen.leaders.clone()).unwrap_or_default();
        let storage = StorageStatus {
            driver: self.0.driver,
            system_keyspace: self.0.settings.system.to_string(),
            answers: last_error.is_none(),
            answer_age_ms,
            last_error,
        };
        NodeStatus {
            stage: self.stage(),
            up_ms: (now - self.0.launched).as_millis() as u64,
            advertised: self.0.settings.advertised,
            seats: self.0.settings.seats.get(),
            lead,
            leaders: leaders.iter().map(|(seat, lease)| (seat.get(), lease.owner)).collect(),
            storage,
            apps: self.0.apps.iter().map(App::status).collect(),
            problem: self.0.problem.get().map(|problem| problem.to_string()),
        }
    }
}

/// The error of a node that does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead")]
pub struct NotLeading;

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    /// No suite failed when a node whose partitions nobody looked after renewed its lease for ever.
    #[test]
    fn a_node_whose_owning_task_stands_still_is_not_healthy() {
        let manual = ManualClock::new(1);
        let settings = NodeSettings::new(SocketAddr::from(([127, 0, 0, 1], 1)));
        let (clock, problem) = (manual.clock(), FirstProblem::default());
        let node = Node::new(settings, "mem", vec![], vec![], vec![], clock, problem);
        assert!(node.is_healthy(), "the task has not begun");
        node.note_beat(Some(manual.clock().now() + Duration::from_secs(6)));
        manual.advance(Duration::from_millis(5_999));
        assert!(node.is_healthy());
        manual.advance(Duration::from_millis(1));
        assert!(!node.is_healthy());
        node.note_beat(None);
        assert!(node.is_healthy(), "the task has ended");
    }
}
