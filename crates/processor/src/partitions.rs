//! Which partitions of an application are at work on this node, and which of them a command is for.

use std::{
    num::NonZeroU16,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use clock::{Clock, Instant};
use eventlog::{Epoch, Log, WsId};
use hashbrown::HashMap;
use isequencer::SeqStorage;

use crate::{
    Application, Busy, Command, Commands, Ended, Partition, Refused, Settings, Status,
    queue::Answered,
};

/// The partitions of an application that are at work on this node. A workspace is always in the same one: its number modulo that of the
/// partitions.
#[derive(Debug)]
pub struct Partitions {
    application: Arc<Application>,
    count: NonZeroU16,
    clock: Clock,
    at: RwLock<At>,
}

#[derive(Debug, Default)]
struct At {
    work: HashMap<u16, Partition>,
    /// Those that ended under an epoch, and may still be written under it.
    open: HashMap<u16, Epoch>,
}

/// Why a partition is not deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDeployable {
    /// There is no such one.
    #[error("there is no partition {0}: the application has {1}")]
    Unknown(u16, NonZeroU16),
    /// Undeploy it first.
    #[error("partition {0} is at work already: undeploy it first")]
    Twice(u16),
    /// It takes a new lead.
    #[error("partition {0} ended under epoch {epoch}, and may still be written under it: take a new lead", epoch = .1.0)]
    Open(u16, Epoch),
}

impl Partitions {
    /// None is at work yet. How many there are is fixed when the application is deployed for the first time.
    pub fn new(application: Arc<Application>, count: NonZeroU16, clock: Clock) -> Partitions {
        Partitions { application, count, clock, at: RwLock::default() }
    }

    /// The partition that a workspace is in.
    pub fn of(&self, ws: WsId) -> u16 {
        ws.partition(self.count)
    }

    /// Puts the partition of a log to work: it recovers, and then takes commands.
    ///
    /// # Errors
    /// Why not.
    ///
    /// # Panics
    /// Outside of a tokio runtime. It must be one with timers.
    pub fn deploy(
        &self,
        log: Arc<Log>,
        numbers: Arc<dyn SeqStorage>,
        settings: Settings,
    ) -> Result<(), NotDeployable> {
        let (partition, epoch) = (log.partition(), log.epoch());
        if partition >= self.count.get() {
            return Err(NotDeployable::Unknown(partition, self.count));
        }
        let mut at = self.write();
        if at.work.contains_key(&partition) {
            return Err(NotDeployable::Twice(partition));
        }
        if at.open.get(&partition) == Some(&epoch) {
            return Err(NotDeployable::Open(partition, epoch));
        }
        let (application, clock) = (Arc::clone(&self.application), self.clock.clone());
        let deployed = Partition::deploy(application, log, numbers, clock, settings);
        at.work.insert(partition, deployed);
        Ok(())
    }

    /// Has a command done by the partition of its workspace.
    ///
    /// # Errors
    /// As [`Commands::run`], and [`Busy::NotDeployed`] if the partition is not at work here.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn run(&self, command: Command) -> Answered {
        match self.commands(self.of(command.ws)) {
            Some(commands) => commands.run(command).await,
            None => Err(Refused::Busy(Busy::NotDeployed)),
        }
    }

    /// Where the commands of a partition are sent; `None` if it is not at work here.
    pub fn commands(&self, partition: u16) -> Option<Commands> {
        self.read().work.get(&partition).map(|partition| partition.commands().clone())
    }

    /// What those that are at work are doing, by number.
    pub fn status(&self) -> Vec<(u16, Status)> {
        let mut all: Vec<_> = self
            .read()
            .work
            .iter()
            .map(|(number, partition)| (*number, partition.status()))
            .collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all
    }

    /// Stops a partition in order. One that is not at work is stopped.
    ///
    /// # Cancel safety
    /// A dropped call ends the partition in the middle of whatever it does, and it can be deployed again only under another epoch.
    pub async fn undeploy(&self, partition: u16, deadline: Instant) -> Ended {
        let working = {
            let mut at = self.write();
            let Some(working) = at.work.remove(&partition) else {
                return match at.open.get(&partition) {
                    Some(_) => Ended::Unproved("it ended before, and not surely".to_owned()),
                    None => Ended::Stopped,
                };
            };
            at.open.insert(partition, working.epoch());
            working
        };
        let epoch = working.epoch();
        let ended = working.undeploy(deadline).await;
        if ended == Ended::Stopped {
            // Another one may have been at work since, and may not have ended so well.
            let mut at = self.write();
            if at.open.get(&partition) == Some(&epoch) {
                at.open.remove(&partition);
            }
        }
        ended
    }

    fn read(&self) -> RwLockReadGuard<'_, At> {
        self.at.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, At> {
        self.at.write().unwrap_or_else(PoisonError::into_inner)
    }
}
