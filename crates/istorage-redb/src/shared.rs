//! What the writer and the filer share.

use std::sync::Arc;

use clock::Clock;
use metrics::{Counter, Gauge, Histogram};
use tokio::sync::watch;

use crate::{desk::Desk, errors::FileFailure, file::StorageFile, time::SteadyTime};

#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) file: Arc<StorageFile>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) clock: Clock,
    pub(crate) time: Arc<SteadyTime>,
    /// Set when the driver cannot go on.
    pub(crate) failed: Arc<watch::Sender<Option<FileFailure>>>,
    pub(crate) meters: EngineMeters,
}

/// The metrics of the writer and the filer.
#[derive(Clone, Debug)]
pub(crate) struct EngineMeters {
    /// How long each filing took.
    pub(crate) commits: Histogram,
    /// Counts the tries of a filing that failed.
    pub(crate) failed_commits: Counter,
    /// How long it took to begin each segment. Writes wait meanwhile.
    pub(crate) freezes: Histogram,
    /// Counts the groups that were slowed.
    pub(crate) slowed: Counter,
    /// How full the active table is.
    pub(crate) table: Gauge,
}

impl EngineMeters {
    pub(crate) fn new() -> EngineMeters {
        EngineMeters {
            commits: metrics::histogram!("istorage_redb_durable_commit_seconds"),
            failed_commits: metrics::counter!("istorage_redb_failed_commits_total"),
            freezes: metrics::histogram!("istorage_redb_freeze_seconds"),
            slowed: metrics::counter!("istorage_redb_slowed_groups_total"),
            table: metrics::gauge!("istorage_redb_table_bytes"),
        }
    }
}
