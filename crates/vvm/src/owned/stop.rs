//! The stop of one partition while the node goes on leading.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use processor::PartitionEnd;
use sysvvm::ownership::{OwnerEpoch, PartitionId};

use crate::{App, app::ServedApp, lease_fence::PartitionFence, partitions};

/// The time after which a partition that goes to another node sends no write any more.
const BRAKE: Duration = Duration::from_millis(500);

/// The time that the task of a partition needs to end after its last call has ended.
const REST: Duration = Duration::from_secs(2);

/// The times of a stop, from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopTimes {
    /// The partition sends no write after this time.
    brake: Duration,
    /// A partition that has not ended by this time is late.
    late: Duration,
}

/// A partition that has stopped.
pub(super) struct PartitionStop {
    pub(super) id: PartitionId,
    pub(super) epoch: OwnerEpoch,
    pub(super) end: PartitionEnd,
    /// The fence, if the end is not proved.
    pub(super) fence: Option<Arc<PartitionFence>>,
    /// The highest epoch that the partition has seen in its log.
    pub(super) log_epoch: OwnerEpoch,
}

impl StopTimes {
    /// The times of a partition that goes to another node.
    pub(super) fn of_move(call_timeout: Duration) -> StopTimes {
        StopTimes { brake: BRAKE, late: BRAKE + call_timeout * 2 + REST }
    }

    /// The times of a partition that has failed: its task has ended or ends now.
    pub(super) fn of_failed(call_timeout: Duration) -> StopTimes {
        StopTimes { brake: Duration::ZERO, late: call_timeout * 2 + REST }
    }
}

/// Stops a partition.
///
/// A partition stops in order: it finishes its group, and stores its numbers. But a write without
/// an answer is sent again until the lease ends. So one slow part of the storage would keep the
/// partition from its next owner. The brake closes the fence, so that the task ends after at most
/// one call.
pub(super) async fn stop_partition(
    (app, served): (&App, &ServedApp),
    (id, epoch): (PartitionId, OwnerEpoch),
    StopTimes { brake, late }: StopTimes,
    clock: Clock,
) -> PartitionStop {
    let started = served.started().get(&id.partition).cloned();
    // The brake would end the partition while its services still use it.
    let for_services = clock.now() + late / 2;
    if !partitions::stop_services(app, id.partition, for_services).await {
        return PartitionStop { id, epoch, end: PartitionEnd::Late, fence: None, log_epoch: epoch };
    }
    let start = clock.now();
    let mut stopping = std::pin::pin!(partitions::stop(app, id.partition, start + late));
    let (end, fence) = match clock.timeout_at(start + brake, &mut stopping).await {
        Ok(ended) => ended,
        Err(_) => {
            if let Some(started) = &started {
                started.fence.close("the partition goes to another node");
            }
            stopping.await
        }
    };
    let later = started.and_then(|started| started.log.later_leader());
    let log_epoch = later.and_then(|later| u32::try_from(later.0).ok()).map_or(epoch, OwnerEpoch);
    PartitionStop { id, epoch, end, fence, log_epoch: log_epoch.min(OwnerEpoch::MAX) }
}
