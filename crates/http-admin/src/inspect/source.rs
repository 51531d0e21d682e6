//! Where the views read: the system keyspace and the keyspaces of applications.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::{StreamExt, stream::BoxStream};
use serde_json::Value;
use vvm::{
    eventlog::{self, DeploymentError, Reader},
    istorage::{self, KeyspaceName},
    sysvvm::{self, AppName, OpenedApp, System},
};

/// The time limit of a call of the storage, and of a page of rows.
pub(super) const CALL_TIME: Duration = Duration::from_secs(10);

/// The lines of a view. Each is a JSON object. A damaged row has a line with the field `damaged`.
pub type Lines = BoxStream<'static, Result<Value, InspectError>>;

/// The reason why a view cannot be shown, or ends early.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The system keyspace or the application cannot be opened.
    #[error(transparent)]
    System(#[from] sysvvm::Error),
    /// The keyspace does not exist.
    #[error("the keyspace `{0}` does not exist")]
    NoKeyspace(KeyspaceName),
    /// The application has fewer partitions.
    #[error("the application {app} has no partition {partition}")]
    NoPartition {
        /// The application.
        app: AppName,
        /// The number that the application does not have.
        partition: u16,
    },
    /// The storage failed, or a row is damaged.
    #[error(transparent)]
    Storage(#[from] istorage::Error),
    /// A log or a record cannot be read.
    #[error(transparent)]
    Log(#[from] eventlog::Error),
    /// The deployment of an application cannot be read.
    #[error(transparent)]
    Deployment(#[from] DeploymentError),
}

/// The storage that an operator inspects.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) system: System,
    pub(super) clock: Clock,
}

impl Source {
    pub(super) async fn app(&self, app: &AppName) -> Result<OpenedApp, InspectError> {
        Ok(self.system.open_app(app, self.deadline()).await?)
    }

    pub(super) fn reader(&self, app: &OpenedApp) -> Reader {
        let storage = Arc::clone(&app.storage);
        Reader::new(storage, self.clock.clone(), CALL_TIME, app.entry.partitions)
    }

    /// The deadline of a call that begins now.
    pub(super) fn deadline(&self) -> Instant {
        self.clock.now() + CALL_TIME
    }
}

/// The first lines.
pub(super) fn limited(lines: Lines, limit: usize) -> Lines {
    lines.take(limit).boxed()
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
