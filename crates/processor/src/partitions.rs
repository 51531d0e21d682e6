//! The partitions of an application that are at work on this node, and the way from a command to
//! its partition.
//!
//! Invariant: a partition is deployed at most once under an epoch, and never under a lower one.

use std::{
    num::NonZeroU16,
    sync::{Arc, RwLock},
};

use base::locks::{read, write};
use clock::{Clock, Instant};
use eventlog::{Epoch, LogWriter, WsId};
use hashbrown::HashMap;
use isequencer::SeqStorage;

use crate::{Application, Commands, Partition, PartitionEnd, PartitionSettings, Status};

/// The partitions of an application that are at work on this node. A workspace is always in the
/// same partition: its number modulo the number of partitions.
#[derive(Debug)]
pub struct Partitions {
    application: Arc<Application>,
    count: NonZeroU16,
    clock: Clock,
    deployments: RwLock<Deployments>,
}

#[derive(Debug, Default)]
struct Deployments {
    running: HashMap<u16, Partition>,
    /// The last deployment of each partition.
    last: HashMap<u16, LastDeployment>,
}

#[derive(Clone, Copy, Debug)]
struct LastDeployment {
    epoch: Epoch,
    /// Whether the partition has ended, and no write of it can land any more.
    is_proved: bool,
}

/// The reason why a partition cannot be deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDeployable {
    /// The application has no partition of this number.
    #[error("there is no partition {0}: the application has {1}")]
    Unknown(u16, NonZeroU16),
    /// The partition is at work already. Undeploy it first.
    #[error("partition {0} is at work already: undeploy it first")]
    Twice(u16),
    /// The partition was at work on this node under this epoch. A higher epoch is needed.
    #[error("partition {0} was at work under epoch {epoch} before: deploy it under a higher epoch", epoch = .1.0)]
    Used(u16, Epoch),
}

impl Partitions {
    /// Creates the set without any partition. The number of partitions is fixed when the
    /// application is deployed for the first time.
    pub fn new(application: Arc<Application>, count: NonZeroU16, clock: Clock) -> Partitions {
        Partitions { application, count, clock, deployments: RwLock::default() }
    }

    /// The partition of a workspace.
    pub fn of(&self, ws: WsId) -> u16 {
        ws.partition(self.count)
    }

    /// Deploys the partition of a log: the partition recovers, and then takes commands.
    ///
    /// Each deployment of a partition needs a higher epoch than the one before, even after a stop
    /// in order. The epoch belongs to the owner of the partition. A simpler version lets a
    /// partition begin again under the epoch under which it has stopped. Suppose that the node
    /// gives the partition to another node after the stop, and gets no answer: the other node may
    /// work under the next epoch already.
    ///
    /// # Errors
    /// The reason why the partition cannot be deployed.
    ///
    /// # Panics
    /// Outside of a tokio runtime with timers.
    pub fn deploy(
        &self,
        log: Arc<LogWriter>,
        numbers: Arc<dyn SeqStorage>,
        settings: PartitionSettings,
    ) -> Result<(), NotDeployable> {
        let (partition, epoch) = (log.partition(), log.fence().epoch());
        if partition >= self.count.get() {
            return Err(NotDeployable::Unknown(partition, self.count));
        }
        let mut deployments = write(&self.deployments);
        if deployments.running.contains_key(&partition) {
            return Err(NotDeployable::Twice(partition));
        }
        if let Some(last) = deployments.last.get(&partition)
            && epoch <= last.epoch
        {
            return Err(NotDeployable::Used(partition, last.epoch));
        }
        let (application, clock) = (Arc::clone(&self.application), self.clock.clone());
        let deployed = Partition::deploy(application, log, numbers, clock, settings);
        deployments.running.insert(partition, deployed);
        deployments.last.insert(partition, LastDeployment { epoch, is_proved: false });
        Ok(())
    }

    /// The handle that takes the commands of a partition; `None` if the partition is not at work on
    /// this node.
    pub fn commands(&self, partition: u16) -> Option<Arc<Commands>> {
        let deployments = read(&self.deployments);
        deployments.running.get(&partition).map(|partition| Arc::clone(&partition.commands))
    }

    /// The status of each partition that is at work, sorted by number.
    pub fn status(&self) -> Vec<(u16, Status)> {
        let mut all: Vec<_> = read(&self.deployments)
            .running
            .iter()
            .map(|(number, partition)| (*number, partition.status()))
            .collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all
    }

    /// Stops a partition in order. A partition that is not at work counts as stopped.
    ///
    /// # Cancel safety
    /// Dropping the call ends the task of the partition at once, even during a write. Then the end
    /// of the partition is not proved.
    pub async fn undeploy(&self, partition: u16, deadline: Instant) -> PartitionEnd {
        let working = write(&self.deployments).running.remove(&partition);
        let Some(working) = working else {
            return match read(&self.deployments).last.get(&partition) {
                Some(LastDeployment { is_proved: false, .. }) => {
                    PartitionEnd::Unproved("the partition ended before without a proof".to_owned())
                }
                _ => PartitionEnd::Stopped,
            };
        };
        let epoch = working.epoch();
        let ended = working.undeploy(deadline).await;
        if ended == PartitionEnd::Stopped {
            // Another deployment of the partition may have begun since, and its end may be
            // unproved.
            let mut deployments = write(&self.deployments);
            if let Some(last) = deployments.last.get_mut(&partition)
                && last.epoch == epoch
            {
                last.is_proved = true;
            }
        }
        ended
    }
}
