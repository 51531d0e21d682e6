//! Services that are bound to the owner of a partition: they run on the node that owns the partition,
//! and on no other.
//!
//! Invariant: a service of a partition starts after the recovery, and the partition changes its
//! owner only after the service has ended. A service that does not end costs the node its lease.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::{Clock, Instant};
use eventlog::{Epoch, Fence};
use futures::FutureExt;
use ielections::WorkGuard;
use processor::Status;
use sysvvm::AppName;
use tokio::{runtime::Handle, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{App, LocalPartition, Node, NotOwner, ServiceError, lease_fence::PartitionFence};

/// The interval at which a service waits for the recovery of its partition.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The shortest and the longest pause before a service that ended by itself starts again.
const RESTART_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// A service that runs for each partition which the node owns.
#[async_trait]
pub trait PartitionService: fmt::Debug + Send + Sync + 'static {
    /// The name of the service in logs.
    fn name(&self) -> &'static str;

    /// Works for one partition until `stop` is cancelled, and then returns soon: the partition waits
    /// for the return before it goes to another node. The node calls this method once for each
    /// start of a partition, and again after a pause if it returns before `stop` is cancelled.
    ///
    /// The writes of the service need protection of their own. [`OwnedPartition::may_work`] tells
    /// whether the node still owns the partition, and [`OwnedPartition::epoch`] is a fencing token.
    ///
    /// # Errors
    /// The reason why the service cannot go on. It is logged.
    async fn run(
        &self,
        partition: OwnedPartition,
        stop: CancellationToken,
    ) -> Result<(), ServiceError>;
}

/// A partition that this node owns, for a service.
#[derive(Clone, Debug)]
pub struct OwnedPartition {
    node: Node,
    app: AppName,
    number: u16,
    fence: Arc<PartitionFence>,
}

impl OwnedPartition {
    pub(crate) fn new(
        node: Node,
        app: &App,
        number: u16,
        fence: Arc<PartitionFence>,
    ) -> OwnedPartition {
        OwnedPartition { node, app: app.name().clone(), number, fence }
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The owner and the name of the application.
    pub fn app(&self) -> &AppName {
        &self.app
    }

    /// The number of the partition.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The epoch of this ownership. Each later owner has a higher one.
    pub fn epoch(&self) -> Epoch {
        self.fence.epoch()
    }

    /// Whether a call that takes up to `timeout` may be sent now. The clock decides, so a process
    /// that stood still learns at once that its lease is over.
    pub fn may_work(&self, timeout: Duration) -> bool {
        self.fence.may_send(timeout)
    }

    /// The partition of a workspace, for commands and reads.
    ///
    /// # Errors
    /// If the workspace belongs to another partition, or the node no longer owns this one.
    pub fn at(&self, ws: eventlog::WsId) -> Result<LocalPartition<'_>, NotOwner> {
        let app = self.node.app(self.app.owner(), self.app.name());
        let app = app.ok_or(NotOwner { partition: self.number })?;
        let partition = app.partition_of(ws);
        match app.at(ws)? {
            local if partition == self.number && local.epoch() == self.epoch() => Ok(local),
            _ => Err(NotOwner { partition }),
        }
    }

    fn status(&self) -> Option<Status> {
        let app = self.node.app(self.app.owner(), self.app.name())?;
        Some(app.partitions.commands(self.number)?.status())
    }
}

/// The services of one partition while it is at work here.
#[derive(Debug)]
pub(crate) struct RunningServices {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    /// Each task holds a clone. So the killer ends the process if a task does not end.
    work: Arc<WorkGuard>,
}

impl RunningServices {
    /// Starts the services on a runtime. Each waits for the recovery of the partition first.
    pub(crate) fn start(
        services: &[Arc<dyn PartitionService>],
        partition: &OwnedPartition,
        work: WorkGuard,
        runtime: &Handle,
    ) -> RunningServices {
        let (stop, mut tasks, work) = (CancellationToken::new(), JoinSet::new(), Arc::new(work));
        for service in services {
            let (held, stop) = (Arc::clone(&work), stop.clone());
            let service = work_until(Arc::clone(service), partition.clone(), stop);
            let service = async move {
                service.await;
                drop(held);
            };
            tasks.spawn_on(service, runtime);
        }
        RunningServices { stop, tasks, work }
    }

    /// Stops the services. Returns whether all have ended by the deadline; the others are aborted.
    pub(crate) async fn stop(mut self, clock: &Clock, deadline: Instant) -> bool {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let has_ended = clock.timeout_at(deadline, ended).await.is_ok();
        if has_ended && let Ok(work) = Arc::try_unwrap(self.work) {
            work.finish();
        }
        has_ended
    }
}

/// Runs a service, again and again if it ends by itself, until `stop` is cancelled.
async fn work_until(
    service: Arc<dyn PartitionService>,
    partition: OwnedPartition,
    stop: CancellationToken,
) {
    let clock = partition.node.clock().clone();
    let [shortest, longest] = RESTART_PAUSES;
    let mut pause = shortest;
    while !is_recovered(&partition) {
        if stop.is_cancelled() {
            return;
        }
        clock.sleep(CHECK_INTERVAL).await;
    }
    let (name, number) = (service.name(), partition.number);
    info!(service = name, app = %partition.app, partition = number, "partition service started");
    while !stop.is_cancelled() {
        let began = clock.now();
        let running = AssertUnwindSafe(service.run(partition.clone(), stop.clone()));
        let ended = running.catch_unwind().await;
        if stop.is_cancelled() {
            return;
        }
        let why = match ended {
            Ok(Ok(())) => "the service returned".to_owned(),
            Ok(Err(why)) => why.to_string(),
            Err(_) => "the service panicked".to_owned(),
        };
        if clock.now() - began >= longest {
            pause = shortest;
        }
        warn!(service = name, app = %partition.app, partition = number, why, ?pause, "partition service ended");
        // Either the pause or the stop ends the wait.
        let _ = clock.timeout_at(clock.now() + pause, stop.cancelled()).await;
        pause = (pause * 2).min(longest);
    }
}

fn is_recovered(partition: &OwnedPartition) -> bool {
    matches!(partition.status(), Some(Status::Ready | Status::Full(_)))
}
