//! The contract of a storage, on tables that are filed after a few rows.
//!
//! The tables of a node have 16 MiB, so nearly all rows of a test stay in memory. Here most reads
//! meet rows of the file, of the frozen table and of the active one.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clock::{Clock, ManualClock};
use istorage::{Result, StorageDriver};
use tck::{
    storage::{Scale, ScratchKeyspace, Subject, trials},
    trial::{Conclusion, TrialReport, run_all},
};

use crate::{RedbConfig, RedbDriver, disk::real::RealDisk, log::LogSizes};

const SIZES: LogSizes = LogSizes { segment: 4 << 10, growth: 4 << 10 };

/// A file with small tables, and spare files beside it that trials may close.
struct SmallTables {
    manual: ManualClock,
    folder: PathBuf,
    driver: Arc<RedbDriver>,
    spares: AtomicU32,
}

async fn open(path: PathBuf, clock: Clock) -> Result<Arc<RedbDriver>> {
    let driver = RedbDriver::open_on(RedbConfig::new(path), clock, Arc::new(RealDisk), SIZES);
    Ok(Arc::new(driver.await?))
}

#[async_trait]
impl Subject for SmallTables {
    fn clock(&self) -> Clock {
        self.manual.clock()
    }

    fn scale(&self) -> Scale {
        Scale::Embedded
    }

    async fn node(&self, _wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::clone(&self.driver) as _)
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        let file = format!("spare{}.redb", self.spares.fetch_add(1, Ordering::Relaxed));
        Ok(open(self.folder.join(file), self.clock()).await? as _)
    }

    async fn pass(&self, duration: Duration) {
        self.manual.advance(duration);
    }

    fn max_concurrent_trials(&self) -> usize {
        1
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_is_kept_on_small_tables() {
    let (folder, manual) = (tempfile::tempdir().unwrap(), ManualClock::new(1));
    let driver = open(folder.path().join("nodes.redb"), manual.clock()).await.unwrap();
    let (folder, spares) = (folder.path().to_owned(), AtomicU32::new(0));
    let subject = SmallTables { manual, folder, driver, spares };
    let scratch = ScratchKeyspace::create(Arc::new(subject)).await.unwrap();
    let report = run_all(&scratch, trials().filter(|trial| !trial.is_long()), |_| {}).await;
    let has_failed = |trial: &&TrialReport| matches!(trial.conclusion, Conclusion::Failed(_));
    let failed: Vec<_> = report.trials.iter().filter(has_failed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
