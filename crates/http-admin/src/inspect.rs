//! The contents of a storage, as lines of JSON for operators. A node and an operator without a node
//! get the same lines of the same rows.
//!
//! Invariant: nothing is written. The storage is behind a [`ReadOnlyDriver`]. Lines come one after
//! another as their rows are read, so a view of any length needs bounded memory.

mod logs;
mod numbers;
mod raw;
mod system;
mod view;

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use serde_json::Value;
use vvm::{
    eventlog::{self, DeploymentError, Reader},
    istorage::{self, KeyspaceName, ReadOnlyDriver, StorageDriver},
    sysvvm::{self, AppName, OpenedApp, System},
};

pub use self::view::{InvalidView, RawPartitions, View};

/// The longest time of a call of the storage, and of a page of rows.
const CALL_TIME: Duration = Duration::from_secs(10);

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

/// Reads a storage for operators.
#[derive(Debug)]
pub struct Inspector {
    system: System,
    clock: Clock,
}

impl Inspector {
    /// Opens the system keyspace for reading.
    ///
    /// # Errors
    /// [`InspectError::System`] if the keyspace does not exist, is not of this program, or cannot
    /// be read.
    pub async fn open(
        driver: Arc<dyn StorageDriver>,
        keyspace: KeyspaceName,
        clock: Clock,
        deadline: Instant,
    ) -> Result<Inspector, InspectError> {
        let driver = Arc::new(ReadOnlyDriver::new(driver));
        let system = System::open(driver, keyspace, clock.clone(), deadline).await?;
        Ok(Inspector { system, clock })
    }

    /// Reads a view. The first error of a stream ends it.
    ///
    /// # Errors
    /// If the view cannot be begun.
    pub async fn lines(&self, view: View) -> Result<Lines, InspectError> {
        match view {
            View::Apps => self.apps().await.map(all),
            View::Partitions => self.partitions().await.map(all),
            View::Leases => self.leases().await.map(all),
            View::Numbers { app, ws } => self.numbers(&app, ws).await.map(all),
            View::Plog { app, partition, from, limit } => {
                let opened = self.app(&app).await?;
                if partition >= opened.entry.partitions.get() {
                    return Err(InspectError::NoPartition { app, partition });
                }
                Ok(logs::plog(&self.reader(&opened), partition, from, limit))
            }
            View::Wlog { app, ws, from, limit } => {
                let app = self.app(&app).await?;
                Ok(logs::wlog(&self.reader(&app), ws, from, limit))
            }
            View::Records { app, ws, from, limit } => {
                let app = self.app(&app).await?;
                self.records(&app, ws, from, limit).await
            }
            View::Rows { keyspace, partitions, limit } => {
                self.rows(keyspace, partitions, limit).await
            }
        }
    }

    async fn app(&self, app: &AppName) -> Result<OpenedApp, InspectError> {
        Ok(self.system.open_app(app, self.deadline()).await?)
    }

    fn reader(&self, app: &OpenedApp) -> Reader {
        let storage = Arc::clone(&app.storage);
        Reader::new(storage, self.clock.clone(), CALL_TIME, app.entry.partitions)
    }

    fn deadline(&self) -> Instant {
        self.clock.now() + CALL_TIME
    }
}

fn all(lines: Vec<Value>) -> Lines {
    stream::iter(lines.into_iter().map(Ok)).boxed()
}

/// The first lines.
fn limited(lines: Lines, limit: usize) -> Lines {
    lines.take(limit).boxed()
}

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines as one line of JSON each.
pub(crate) fn texts(lines: Lines) -> BoxStream<'static, Result<String, InspectError>> {
    lines.map_ok(|line| format!("{line}\n")).boxed()
}
