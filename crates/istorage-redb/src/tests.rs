//! The contract of a storage, on tables that are filed after a few rows.
//!
//! The tables of a node have 16 MiB, so nearly all rows of a test stay in memory. Here most reads
//! meet rows of the file, of the frozen table and of the active one.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant, ManualClock};
use futures::{TryStreamExt, future::join3};
use istorage::{Consistency, Key, KeyspaceName, Put, Range, Result, StorageDriver};
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

/// A view that took a snapshot, and then tables of a later moment, showed half of a write.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_sees_whole_writes_while_tables_are_filed() {
    const WRITES: u64 = 1_500;
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::system());
    let driver = open(folder.path().join("nodes.redb"), clock).await.unwrap();
    let (name, forever) = (KeyspaceName::new("tests").unwrap(), Instant::FAR_FUTURE);
    driver.create(&name, forever).await.unwrap();
    let storage = driver.open(&name, forever).await.unwrap().unwrap();
    let keys: Vec<Key> = (0..12_u8).map(|n| Key::new("p", vec![n])).collect();
    // A write puts its number into some rows. The first one puts it into all.
    let is_of = |number: u64, n: usize| number == 1 || (number * 7 + n as u64 * 5) % 11 < 4;
    let value = |number: u64| Bytes::from(number.to_be_bytes().to_vec());
    let write = async |number: u64| {
        let puts = keys.iter().enumerate().filter(|(n, _)| is_of(number, *n));
        let puts = puts.map(|(_, key)| Put { key: key.clone(), value: value(number) });
        storage.put_batch(puts.collect(), forever).await.unwrap();
    };
    // All rows as they are after a write.
    let after = |number: u64| -> Vec<Bytes> {
        let last = |n| (1..=number).rev().find(|number| is_of(*number, n));
        (0..keys.len()).map(|n| value(last(n).unwrap())).collect()
    };
    write(1).await;
    let answered = AtomicU64::new(1);
    let writes = async {
        for number in 2..WRITES {
            write(number).await;
            answered.store(number, Ordering::Release);
        }
        answered.store(WRITES, Ordering::Release);
    };
    let reads = async |is_stream: bool| {
        let (mut seen, mut reads) = (0, 0_u32);
        loop {
            let least = answered.load(Ordering::Acquire);
            if least == WRITES {
                return reads;
            }
            let found: Vec<Bytes> = if is_stream {
                let (pkey, range) = (Bytes::from("p"), Range::all());
                let rows = storage.read(pkey, range, Consistency::Plain, Duration::MAX);
                rows.map_ok(|row| row.value).try_collect().await.unwrap()
            } else {
                storage.get_values(&keys, forever).await.unwrap().into_iter().flatten().collect()
            };
            let number = found.iter().map(|row| u64::from_be_bytes(row[..].try_into().unwrap()));
            let number = number.max().unwrap();
            assert_eq!(found, after(number), "half of a write");
            assert!(number >= least && number >= seen, "{number} after {least} and {seen}");
            (seen, reads) = (number, reads + 1);
        }
    };
    let (_, streams, batches) = join3(writes, reads(true), reads(false)).await;
    assert!(streams > 100 && batches > 100, "{streams} streams, {batches} batches");
    driver.close().await;
}
