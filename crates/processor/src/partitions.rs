//! The partitions of an application that are at work on this node, and the way from a command to
//! its partition.
//!
//! Invariant: a partition that did not prove its end is never deployed again under the same epoch.

use std::{
    num::NonZeroU16,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use clock::{Clock, Instant};
use eventlog::{Epoch, Log, WsId};
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
    /// The epoch of each partition whose end is not proved: old writes may still land under it.
    unproved: HashMap<u16, Epoch>,
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
    /// The partition ended under this epoch without a proof. A new leadership is needed.
    #[error("partition {0} ended under epoch {epoch} without a proof, and may still write: deploy it under a new leadership", epoch = .1.0)]
    Open(u16, Epoch),
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
    /// # Errors
    /// The reason why the partition cannot be deployed.
    ///
    /// # Panics
    /// Outside of a tokio runtime with timers.
    pub fn deploy(
        &self,
        log: Arc<Log>,
        numbers: Arc<dyn SeqStorage>,
        settings: PartitionSettings,
    ) -> Result<(), NotDeployable> {
        let (partition, epoch) = (log.partition(), log.epoch());
        if partition >= self.count.get() {
            return Err(NotDeployable::Unknown(partition, self.count));
        }
        let mut deployments = self.write();
        if deployments.running.contains_key(&partition) {
            return Err(NotDeployable::Twice(partition));
        }
        if deployments.unproved.get(&partition) == Some(&epoch) {
            return Err(NotDeployable::Open(partition, epoch));
        }
        let (application, clock) = (Arc::clone(&self.application), self.clock.clone());
        let deployed = Partition::deploy(application, log, numbers, clock, settings);
        deployments.running.insert(partition, deployed);
        Ok(())
    }

    /// The handle to which commands of a partition are sent; `None` if the partition is not at work
    /// on this node.
    pub fn commands(&self, partition: u16) -> Option<Commands> {
        self.read().running.get(&partition).map(|partition| partition.commands().clone())
    }

    /// The status of each partition that is at work, sorted by number.
    pub fn status(&self) -> Vec<(u16, Status)> {
        let mut all: Vec<_> = self
            .read()
            .running
            .iter()
            .map(|(number, partition)| (*number, partition.status()))
            .collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all
    }

    /// Stops a partition in order. A partition that is not at work counts as stopped.
    ///
    /// The partition counts as unproved from the beginning of the call. A simpler version notes the
    /// result at the end. The call is dropped during a write; the partition is deployed again under
    /// the same epoch; the write lands. So two tasks would write under one epoch, and the epoch
    /// would not tell their rows apart.
    ///
    /// # Cancel safety
    /// Dropping the call ends the task of the partition at once, even during a write. Then the
    /// partition can be deployed again only under another epoch.
    pub async fn undeploy(&self, partition: u16, deadline: Instant) -> PartitionEnd {
        let working = {
            let mut deployments = self.write();
            let Some(working) = deployments.running.remove(&partition) else {
                return match deployments.unproved.get(&partition) {
                    Some(_) => PartitionEnd::Unproved(
                        "the partition ended before without a proof".to_owned(),
                    ),
                    None => PartitionEnd::Stopped,
                };
            };
            deployments.unproved.insert(partition, working.epoch());
            working
        };
        let epoch = working.epoch();
        let ended = working.undeploy(deadline).await;
        if ended == PartitionEnd::Stopped {
            // Another deployment of the partition may have begun since, under another epoch, and
            // its end may be unproved. So only the mark of this epoch is removed.
            let mut deployments = self.write();
            if deployments.unproved.get(&partition) == Some(&epoch) {
                deployments.unproved.remove(&partition);
            }
        }
        ended
    }

    fn read(&self) -> RwLockReadGuard<'_, Deployments> {
        self.deployments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Deployments> {
        self.deployments.write().unwrap_or_else(PoisonError::into_inner)
    }
}
