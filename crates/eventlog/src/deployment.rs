//! The deployment of an application, stored beside its rows.
//!
//! Invariant: the rows are always read and written with a schema and a trust level that fit the
//! deployment.

mod level_change;

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{
    AppStorageExt, Conditional, Key, Outcome, SharedStorage,
    settle::{SettleLimits, write_if_settled},
};

pub use self::level_change::LevelChange;
use crate::{DecodeError, Epoch, IncompatibleSchema, Schema, TrustLevel, layout, wire};

/// Why an application cannot be deployed, or its level cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// The trust level of the application has changed since it was opened.
    #[error(
        "the trust level was changed from {opened} to {stored} while the application was open: start the node again"
    )]
    OtherLevel {
        /// The trust level when the application was opened.
        opened: TrustLevel,
        /// The trust level now.
        stored: TrustLevel,
    },
    /// The application was never deployed.
    #[error("the application was never deployed: start a node with it")]
    NotDeployed,
    /// A node deployed the application while its level was changed. The level has not changed.
    #[error(
        "a node started while the trust level was changed, so the level stays {0}: stop all nodes, and try again"
    )]
    ChangeCancelled(TrustLevel),
    /// Rows of the application could not be read with the new tables.
    #[error("the tables and sequences are not compatible with the deployed ones: {0}")]
    Schema(#[from] IncompatibleSchema),
    /// Another version of the program stores rows in other formats.
    #[error(
        "another version of this program deployed the application, and the formats of the rows differ (format {0}): run that version, or begin with an empty storage"
    )]
    OtherFormat(u8),
    /// The row of the deployment is damaged.
    #[error("the row of the deployment cannot be read ({0}): restore the row")]
    Damaged(DecodeError),
    /// Other nodes deploy the application in another way at the same time.
    #[error("other nodes deploy the application at the same time: try again")]
    Raced,
    /// The storage failed. Try again later.
    #[error("storage error")]
    Storage(#[from] istorage::Error),
}

/// The schema and the trust level of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// The trust level. Only a [`LevelChange`] changes it.
    pub level: TrustLevel,
    /// Level 2 has written only under epochs below this one; 0 if the level never was 2. While the
    /// level is 2, every epoch counts, whatever this bound is.
    pub stray_before: Epoch,
    /// The tables and the ids of the sequences. They may grow. They have every field that was ever
    /// deployed.
    pub schema: Schema,
    /// A change of the level that has begun and has not finished.
    change: Option<BegunChange>,
}

/// A change of the level that has begun, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BegunChange {
    pub(crate) to: TrustLevel,
    /// A random number, so that no two attempts store the same row.
    pub(crate) attempt: u64,
}

impl From<DecodeError> for DeploymentError {
    fn from(why: DecodeError) -> DeploymentError {
        match why {
            DecodeError::OtherVersion(format) => DeploymentError::OtherFormat(format),
            why => DeploymentError::Damaged(why),
        }
    }
}

impl Deployment {
    /// The first deployment of an application.
    pub fn new(level: TrustLevel, schema: Schema) -> Deployment {
        Deployment { level, stray_before: Epoch(0), schema, change: None }
    }

    /// Returns this deployment with the tables of a program. Those that are stored may also have
    /// fields that other programs declare.
    #[must_use]
    pub fn of_program(self, schema: Schema) -> Deployment {
        Deployment { schema, ..self }
    }

    /// The target level of a change that has begun; `None` if no change is under way. If its
    /// command was killed, the next node or command cancels it.
    pub fn changing_to(&self) -> Option<TrustLevel> {
        self.change.map(|change| change.to)
    }

    /// Stores the first deployment of an application, or a later one with more tables. Returns the
    /// deployment that is stored now. The level counts only for the first deployment: afterwards
    /// only a [`LevelChange`] changes it. Any number of nodes may call this at the same time.
    ///
    /// A change of the level that has not finished is cancelled. So a command that was killed while
    /// it changed the level leaves nothing behind.
    ///
    /// # Errors
    /// Fails with the reason. Then nothing has changed.
    pub async fn store(
        &self,
        storage: &SharedStorage,
        clock: &Clock,
        deadline: Instant,
    ) -> Result<Deployment, DeploymentError> {
        let there = storage.get_linearizable(&layout::deployment(), deadline).await?;
        let new = match &there {
            None => self.clone(),
            Some(there) => self.after(Deployment::from_bytes(there)?)?,
        };
        if there.as_ref() == Some(&new.to_bytes()) {
            return Ok(new);
        }
        match new.replace(there, storage, clock, deadline).await? {
            true => Ok(new),
            false => Err(DeploymentError::Raced),
        }
    }

    /// Checks whether [`Deployment::store`] would accept this deployment now. Nothing is stored.
    /// Returns the deployment that is stored; `None` if the application was never deployed.
    ///
    /// # Errors
    /// Those of [`Deployment::store`].
    pub async fn check(
        &self,
        storage: &SharedStorage,
        deadline: Instant,
    ) -> Result<Option<Deployment>, DeploymentError> {
        let Some(stored) = Deployment::stored(storage, deadline).await? else { return Ok(None) };
        self.after(stored.clone())?;
        Ok(Some(stored))
    }

    /// Stores this deployment again before a partition of the application starts, and so cancels a
    /// change of the level that has not finished. Usually there is nothing to write. The tables are
    /// [those of the program](Deployment::of_program).
    ///
    /// # Errors
    /// [`DeploymentError::OtherLevel`] if the level has changed since the application was opened
    /// with this deployment, and those of [`Deployment::store`].
    pub async fn store_again(
        &self,
        storage: &SharedStorage,
        clock: &Clock,
        deadline: Instant,
    ) -> Result<(), DeploymentError> {
        let stored = self.store(storage, clock, deadline).await?;
        let (opened, stored) = (self.level, stored.level);
        if stored == opened { Ok(()) } else { Err(DeploymentError::OtherLevel { opened, stored }) }
    }

    /// Reads the stored deployment; `None` if the application was never deployed.
    ///
    /// # Errors
    /// [`DeploymentError::OtherFormat`], [`DeploymentError::Damaged`], and those of the storage.
    pub async fn stored(
        storage: &SharedStorage,
        deadline: Instant,
    ) -> Result<Option<Deployment>, DeploymentError> {
        let row = storage.get_linearizable(&layout::deployment(), deadline).await?;
        Ok(row.map(|row| Deployment::from_bytes(&row)).transpose()?)
    }

    /// Returns whether a row of an application's keyspace is its deployment.
    pub fn is_at(key: &Key) -> bool {
        *key == layout::deployment()
    }

    /// Returns the largest size of the row of this deployment.
    pub fn row_size(&self) -> usize {
        let largest = Deployment { stray_before: Epoch(u64::MAX), ..self.clone() };
        let change = BegunChange { to: TrustLevel::Two, attempt: u64::MAX };
        largest.changing(change).to_bytes().len()
    }

    /// Returns this deployment with the beginning of a change of its level.
    pub(crate) fn changing(self, change: BegunChange) -> Deployment {
        Deployment { change: Some(change), ..self }
    }

    /// Returns the deployment that this one makes of an earlier one.
    fn after(&self, earlier: Deployment) -> Result<Deployment, DeploymentError> {
        self.schema.can_follow(&earlier.schema)?;
        let schema = self.schema.clone().with_hidden_fields(&earlier.schema);
        Ok(Deployment { schema, change: None, ..earlier })
    }

    /// Replaces the row that was read with this deployment. Returns whether this deployment is
    /// stored.
    async fn replace(
        &self,
        read: Option<Bytes>,
        storage: &SharedStorage,
        clock: &Clock,
        deadline: Instant,
    ) -> Result<bool, DeploymentError> {
        let (key, ours) = (layout::deployment(), self.to_bytes());
        let (ccols, value) = (key.ccols, ours.clone());
        let op = match read {
            None => Conditional::Insert { ccols, value, ttl: None },
            Some(old) => Conditional::Swap { ccols, old, new: value, ttl: None },
        };
        let limits = SettleLimits { call_timeout: (deadline - clock.now()) / 3, until: deadline };
        match write_if_settled(&**storage, clock, key.pkey, vec![op], limits).await? {
            Outcome::Applied => Ok(true),
            // Another node may have stored the same deployment.
            Outcome::NotApplied(conflicts) => {
                Ok(conflicts.iter().any(|conflict| conflict.actual.as_ref() == Some(&ours)))
            }
        }
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        let change = self.change.map(|BegunChange { to, attempt }| (to as u8, attempt));
        let level = wire::DeployedLevel {
            level: self.level as u8,
            stray_before: self.stray_before.0,
            change,
        };
        wire::deployment(level, &self.schema.to_string())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Deployment, DecodeError> {
        let (level, schema) = wire::read_deployment(bytes)?;
        let parsed = |level: u8| level.to_string().parse().map_err(wire::malformed);
        let begun = |(to, attempt)| Ok(BegunChange { to: parsed(to)?, attempt });
        Ok(Deployment {
            level: parsed(level.level)?,
            stray_before: Epoch(level.stray_before),
            schema: schema.parse().map_err(wire::malformed)?,
            change: level.change.map(begun).transpose()?,
        })
    }
}
