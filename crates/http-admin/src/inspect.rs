//! The contents of a storage, as lines of JSON for operators. A node and an operator without a node
//! get the same lines of the same rows.
//!
//! Invariant: nothing is written. The storage is behind a [`ReadOnlyDriver`]. Lines come one after
//! another as their rows are read, so a view of any length needs bounded memory.

mod logs;
mod numbers;
mod raw;
mod source;
mod system;
mod view;

use std::sync::Arc;

use clock::{Clock, Instant};
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use serde_json::Value;
use vvm::{
    istorage::{KeyspaceName, ReadOnlyDriver, StorageDriver},
    sysvvm::System,
};

use self::source::Source;
pub use self::{
    source::{InspectError, Lines},
    view::{InvalidView, RawPartitions, View},
};

/// Reads a storage for operators.
#[derive(Debug)]
pub struct Inspector {
    source: Source,
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
        Ok(Inspector { source: Source { system, clock } })
    }

    /// Reads a view. The first error of a stream ends it.
    ///
    /// # Errors
    /// If the view cannot be begun.
    pub async fn lines(&self, view: View) -> Result<Lines, InspectError> {
        let source = &self.source;
        match view {
            View::Apps => system::apps(source).await.map(all),
            View::Partitions => system::partitions(source).await.map(all),
            View::Leases => system::leases(source).await.map(all),
            View::Numbers { app, ws } => numbers::numbers(source, &app, ws).await.map(all),
            View::Plog { app, partition, from, limit } => {
                let opened = source.app(&app).await?;
                if partition >= opened.entry.partitions.get() {
                    return Err(InspectError::NoPartition { app, partition });
                }
                Ok(logs::plog(&source.reader(&opened), partition, from, limit))
            }
            View::Wlog { app, ws, from, limit } => {
                let app = source.app(&app).await?;
                Ok(logs::wlog(&source.reader(&app), ws, from, limit))
            }
            View::Records { app, ws, from, limit } => {
                let app = source.app(&app).await?;
                logs::records(source, &app, ws, from, limit).await
            }
            View::Rows { keyspace, partitions, limit } => {
                raw::rows(source, keyspace, partitions, limit).await
            }
        }
    }
}

fn all(lines: Vec<Value>) -> Lines {
    stream::iter(lines.into_iter().map(Ok)).boxed()
}

/// The lines as JSON texts, each with its newline.
pub(crate) fn texts(lines: Lines) -> BoxStream<'static, Result<String, InspectError>> {
    lines.map_ok(|line| format!("{line}\n")).boxed()
}
