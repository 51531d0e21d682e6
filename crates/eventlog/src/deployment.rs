//! The deployment of an application, stored beside its rows.
//!
//! Invariant: the rows are always read and written with a schema and a trust level that fit the
//! deployment.

use bytes::Bytes;
use clock::{Clock, Instant};
use istorage::{
    AppStorageExt, Conditional, Outcome, SharedStorage,
    settle::{SettleLimits, write_if_settled},
};

use crate::{DecodeError, IncompatibleSchema, Schema, TrustLevel, layout, wire};

/// The reason for which an application cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// The application has another trust level.
    #[error(
        "the application was deployed with trust level {there}, and cannot be deployed with {wanted}: the level is fixed"
    )]
    OtherLevel {
        /// The trust level of the application.
        there: TrustLevel,
        /// The trust level that was asked for.
        wanted: TrustLevel,
    },
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The trust level. It never changes.
    pub level: TrustLevel,
    /// The tables and the ids of the sequences. They may grow.
    pub schema: Schema,
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
    /// Checks whether an application can be deployed in this way. Stores the first deployment, and
    /// later deployments with more tables. Any number of nodes may call this at the same time.
    ///
    /// # Errors
    /// Fails with the reason. Then nothing has changed.
    pub async fn fix(
        &self,
        storage: &SharedStorage,
        clock: &Clock,
        deadline: Instant,
    ) -> Result<(), DeploymentError> {
        let key = layout::deployment();
        let ours = self.to_bytes();
        let there = storage.get_linearizable(&key, deadline).await?;
        let ccols = key.ccols;
        let op = match there {
            None => Conditional::Insert { ccols, value: ours.clone(), ttl: None },
            Some(there) if there == ours => return Ok(()),
            Some(old) => {
                self.follows(&Deployment::from_bytes(&old)?)?;
                Conditional::Swap { ccols, old, new: ours.clone(), ttl: None }
            }
        };
        let limits = SettleLimits { call_timeout: (deadline - clock.now()) / 3, until: deadline };
        let outcome = write_if_settled(&**storage, clock, key.pkey, vec![op], limits).await?;
        match outcome {
            Outcome::Applied => Ok(()),
            // Another node stored the same deployment.
            Outcome::NotApplied(conflicts)
                if conflicts.iter().any(|conflict| conflict.actual.as_ref() == Some(&ours)) =>
            {
                Ok(())
            }
            Outcome::NotApplied(_) => Err(DeploymentError::Raced),
        }
    }

    /// Checks whether [`Deployment::fix`] would accept this deployment now. Nothing is stored.
    ///
    /// # Errors
    /// Those of [`Deployment::fix`].
    pub async fn check(
        &self,
        storage: &SharedStorage,
        deadline: Instant,
    ) -> Result<(), DeploymentError> {
        match storage.get_linearizable(&layout::deployment(), deadline).await? {
            Some(there) if there != self.to_bytes() => {
                self.follows(&Deployment::from_bytes(&there)?)
            }
            _ => Ok(()),
        }
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

    /// Returns the size of the row of this deployment.
    pub fn row_size(&self) -> usize {
        self.to_bytes().len()
    }

    fn follows(&self, earlier: &Deployment) -> Result<(), DeploymentError> {
        if self.level != earlier.level {
            let (there, wanted) = (earlier.level, self.level);
            return Err(DeploymentError::OtherLevel { there, wanted });
        }
        Ok(self.schema.can_follow(&earlier.schema)?)
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        wire::deployment(self.level as u8, &self.schema.to_string())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Deployment, DecodeError> {
        let (level, schema) = wire::read_deployment(bytes)?;
        let level = level.to_string().parse().map_err(wire::malformed)?;
        Ok(Deployment { level, schema: schema.parse().map_err(wire::malformed)? })
    }
}
