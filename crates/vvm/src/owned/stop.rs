//! The stop of one partition while the node goes on leading.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use processor::PartitionEnd;
use sysvvm::{
    AppName,
    ownership::{OwnerEpoch, PartitionId},
};

use crate::{
    Node,
    partitions::{self, StoppedPartition},
    series,
};

/// A partition that goes to another node sends no more writes when this time has passed since the
/// end of its services.
const BRAKE: Duration = Duration::from_millis(500);

/// The time that the task of a partition needs to end after its last call has ended.
const REST: Duration = Duration::from_secs(2);

/// The times of a stop. They count from the end of the services of the partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopTimes {
    /// The partition sends no write after this time.
    brake: Duration,
    /// A partition that has not ended by this time is late. Its services, which end first, have
    /// half of this time.
    late: Duration,
    /// Whether the partition goes to another node.
    is_move: bool,
}

/// A partition that has stopped.
pub(super) struct PartitionStop {
    pub(super) id: PartitionId,
    pub(super) epoch: OwnerEpoch,
    pub(super) stopped: StoppedPartition,
    /// The highest epoch that the partition has seen in its log.
    pub(super) log_epoch: OwnerEpoch,
}

/// The partitions that are stopping.
///
/// They belong to the leadership, not to the task that begins their stops: the task may end first.
/// A simpler version ended them with that task. A node whose drain took too long then dropped the
/// stops of four partitions in the middle of their last writes. Their ends were not proved, so its
/// lease was left to expire.
#[derive(Default)]
pub(crate) struct PartitionStops {
    stops: FuturesUnordered<BoxFuture<'static, PartitionStop>>,
    partitions: BTreeMap<AppName, BTreeSet<u16>>,
}

impl fmt::Debug for PartitionStops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.partitions).finish()
    }
}

impl PartitionStops {
    /// Begins to stop a partition, unless it is stopping.
    pub(super) fn begin(
        &mut self,
        node: &Node,
        app: &AppName,
        id: PartitionId,
        epoch: OwnerEpoch,
        times: StopTimes,
    ) {
        if self.partitions.entry(app.clone()).or_default().insert(id.partition) {
            self.stops.push(stop_partition(node.clone(), app.clone(), id, epoch, times).boxed());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Whether a partition is stopping.
    pub(crate) fn has(&self, app: &AppName, partition: u16) -> bool {
        self.partitions.get(app).is_some_and(|stopping| stopping.contains(&partition))
    }

    /// Waits until the next partition has stopped; forever if none is stopping.
    ///
    /// # Cancel safety
    /// Safe: the stops go on with the next call.
    pub(super) async fn next(&mut self) -> PartitionStop {
        let Some(stop) = self.stops.next().await else { return std::future::pending().await };
        if let Some(stopping) = self.partitions.get_mut(&stop.stopped.app) {
            stopping.remove(&stop.stopped.partition);
        }
        stop
    }

    /// Waits until all partitions have stopped, or the deadline.
    pub(crate) async fn all(mut self, clock: &Clock, deadline: Instant) -> Vec<StoppedPartition> {
        let mut all = Vec::new();
        while !self.is_empty() {
            match clock.timeout_at(deadline, self.next()).await {
                Ok(stop) => all.push(stop.stopped),
                Err(_) => break,
            }
        }
        for (app, late) in self.partitions {
            let late = late.into_iter().map(|partition| StoppedPartition {
                app: app.clone(),
                partition,
                end: PartitionEnd::Late,
                fence: None,
            });
            all.extend(late);
        }
        all
    }
}

impl StopTimes {
    /// The times of a partition that goes to another node.
    pub(super) fn of_move(call_timeout: Duration) -> StopTimes {
        StopTimes { brake: BRAKE, late: BRAKE + call_timeout * 2 + REST, is_move: true }
    }

    /// The times of a partition that has failed: its task has ended or ends now.
    pub(super) fn of_failed(call_timeout: Duration) -> StopTimes {
        StopTimes { brake: Duration::ZERO, late: call_timeout * 2 + REST, is_move: false }
    }
}

/// Stops a partition.
///
/// A partition stops in order: it finishes its group, and stores its numbers. But a write without
/// an answer is sent again until the lease ends. So one slow part of the storage would keep the
/// partition from its next owner. The brake closes the fence, so that the task ends after at most
/// one call.
async fn stop_partition(
    node: Node,
    app: AppName,
    id: PartitionId,
    epoch: OwnerEpoch,
    StopTimes { brake, late, is_move }: StopTimes,
) -> PartitionStop {
    let clock = node.clock();
    let partition = id.partition;
    let stop = |stopped, log_epoch| PartitionStop { id, epoch, stopped, log_epoch };
    // The applications of a node do not change.
    let Some(here) = node.app(app.owner(), app.name()) else {
        let stopped = StoppedPartition { app, partition, end: PartitionEnd::Stopped, fence: None };
        return stop(stopped, epoch);
    };
    let started = here.opened.get().and_then(|it| it.started().get(&partition).cloned());
    // The brake would end the partition while its services still use it.
    let for_services = clock.now() + late / 2;
    if !partitions::stop_services(here, partition, for_services).await {
        let stopped = StoppedPartition { app, partition, end: PartitionEnd::Late, fence: None };
        return stop(stopped, epoch);
    }
    let start = clock.now();
    let mut stopping = std::pin::pin!(partitions::stop(here, partition, start + late));
    let stopped = match clock.timeout_at(start + brake, &mut stopping).await {
        Ok(stopped) => stopped,
        Err(_) => {
            if let Some(started) = &started {
                let why = if is_move {
                    "the partition goes to another node"
                } else {
                    "the partition has failed"
                };
                started.fence.close(why);
            }
            stopping.await
        }
    };
    if is_move {
        series::give_back(here, partition).await;
    }
    let later = started.and_then(|started| started.log.fence().later_leader());
    let log_epoch = later.and_then(|later| u32::try_from(later.0).ok()).map_or(epoch, OwnerEpoch);
    stop(stopped, log_epoch.min(OwnerEpoch::MAX))
}
