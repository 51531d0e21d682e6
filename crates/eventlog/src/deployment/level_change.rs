//! The change of an application's trust level, while no node works on the application.
//!
//! Invariant: the level changes only if no partition was started since the change began. A simpler
//! version replaces the level at once. The command stalls before its write, and its leases expire;
//! a node starts partitions at level 0; the write lands. So the next owner of a partition works at
//! level 2, while writes of the first owner, which level 0 guards, may still land. Therefore the
//! change is written twice. A node that meets the first row removes it before it starts a
//! partition, and then the second write is refused.

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{AppStorageExt, SharedStorage};

use super::{BegunChange, Deployment, DeploymentError};
use crate::{Epoch, TrustLevel, layout};

/// A change of the trust level that has begun. The caller proves that no node works on the
/// application until the change has [finished](LevelChange::finish).
#[derive(Debug)]
pub struct LevelChange {
    begun: Deployment,
    change: BegunChange,
}

impl LevelChange {
    /// Begins a change. A change that an earlier call began can no longer finish.
    ///
    /// # Errors
    /// Fails with the reason. Then the level has not changed.
    pub async fn begin(
        to: TrustLevel,
        storage: &SharedStorage,
        clock: &Clock,
        deadline: Instant,
    ) -> Result<LevelChange, DeploymentError> {
        let there = storage.get_linearizable(&layout::deployment(), deadline).await?;
        let there = there.ok_or(DeploymentError::NotDeployed)?;
        let change = BegunChange { to, attempt: clock.random() };
        let begun = Deployment::from_bytes(&there)?.changing(change);
        match begun.replace(Some(there), storage, clock, deadline).await? {
            true => Ok(LevelChange { begun, change }),
            false => Err(DeploymentError::Raced),
        }
    }

    /// The level before the change.
    pub fn from(&self) -> TrustLevel {
        self.begun.level
    }

    /// Finishes the change. No partition of the application had an epoch of `next_epoch` or above,
    /// and each owner from now on has such an epoch.
    ///
    /// # Errors
    /// [`DeploymentError::ChangeCancelled`] if a node deployed the application meanwhile, or if
    /// another change began. With an error of the storage the level may have changed.
    pub async fn finish(
        self,
        next_epoch: Epoch,
        storage: &SharedStorage,
        clock: &Clock,
        deadline: Instant,
    ) -> Result<Deployment, DeploymentError> {
        let LevelChange { begun, change: BegunChange { to, .. } } = self;
        let stray_before = match begun.level {
            TrustLevel::Two => next_epoch,
            TrustLevel::Zero | TrustLevel::One => begun.stray_before,
        };
        let read: Bytes = begun.to_bytes();
        let finished = Deployment { level: to, stray_before, change: None, ..begun };
        match finished.replace(Some(read), storage, clock, deadline).await? {
            true => Ok(finished),
            false => Err(DeploymentError::ChangeCancelled(begun.level)),
        }
    }
}
