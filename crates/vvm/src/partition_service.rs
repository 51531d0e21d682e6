//! Services that are bound to the owner of a partition: they run on the node that owns the
//! partition, and are told to end when it no longer owns the partition.
//!
//! Invariant: a service of a partition starts after the recovery, and the partition changes its
//! owner only after the service has ended. A service that does not end costs the node its lease.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use eventlog::{Epoch, Fence};
use ielections::WorkGuard;
use processor::Status;
use sysvvm::AppName;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{
    App, LocalPartition, Node, NotOwner, ServiceError,
    lease_fence::PartitionFence,
    running_services::{RunningServices, keep_running},
};

/// How often a service checks whether its partition has recovered.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A service that runs for each partition that the node owns.
#[async_trait]
pub trait PartitionService: fmt::Debug + Send + Sync + 'static {
    /// The name of the service in logs.
    fn name(&self) -> &'static str;

    /// Works for one partition until `stop` is cancelled, and then returns soon: the partition
    /// waits for the return before it goes to another node. `stop` is also cancelled when the
    /// leadership is lost, and when another node has taken the partition. The node calls this
    /// method once for each start of a partition, and again after a pause if it returns before
    /// `stop` is cancelled.
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

/// Starts the services of a partition, until `stop` is cancelled. Each waits for the recovery of
/// the partition first.
pub(crate) fn start_services(
    services: &[Arc<dyn PartitionService>],
    partition: &OwnedPartition,
    work: WorkGuard,
    stop: CancellationToken,
    runtime: &Handle,
) -> RunningServices {
    let mut running = RunningServices::new(work, stop, runtime.clone());
    for service in services {
        let (service, partition, stop) = (Arc::clone(service), partition.clone(), running.stop());
        running.start(async move {
            let clock = partition.node.clock().clone();
            while !is_recovered(&partition) {
                if stop.is_cancelled() {
                    return;
                }
                clock.sleep(CHECK_INTERVAL).await;
            }
            let of = format!("partition {} of {}", partition.number, partition.app);
            let run = || service.run(partition.clone(), stop.clone());
            keep_running(service.name(), &of, &clock, &stop, run).await;
        });
    }
    running
}

fn is_recovered(partition: &OwnedPartition) -> bool {
    matches!(partition.status(), Some(Status::Ready | Status::Full(_)))
}
