//! The driver: keyspaces in one redb file.

use std::sync::Arc;

use async_trait::async_trait;
use clock::{Clock, Instant};
use futures::{StreamExt, stream};
use istorage::{
    BackupStream, Error, Guarded, KeyspaceName, ReadOnlyDriver, Result, SharedStorage,
    StorageDriver,
};

use crate::{
    RedbConfig,
    desk::Desk,
    disk::{Disk, real::RealDisk},
    engine::RedbEngine,
    file::StorageFile,
    layout::{Keyspace, KeyspaceChange},
    log::LogSizes,
    read,
    request::WriteJob,
    storage::RedbStorage,
    view::RowView,
};

/// Keyspaces in one redb file, for one node.
///
/// # Durability
/// Every acknowledged write is on the disk: in the file, or in its log `FILE.log-0` or
/// `FILE.log-1`. A process that is killed loses nothing acknowledged. Afterwards the driver repeats
/// the writes of the log, which are bounded, and the file opens soon, however large it is.
///
/// If a write to the log fails before any part of it is there, for example because the disk is
/// full, its writes are `Unavailable`. If a part may be there, it is removed before anything else
/// is written or read; until that succeeds, the outcome of its writes is unknown, and every call is
/// `Unavailable`.
///
/// If writing the storage file fails, it is closed and opened again. Its log takes writes
/// meanwhile, until the tables in memory are full: then writes are `Unavailable`. While the file
/// cannot be opened, only rows in memory can be read or written.
///
/// If the file or its log was removed or replaced, the file stays open, so that an operator can
/// bring it back. A file without its name takes no writes.
///
/// After a failed sync, the file is closed and not opened again: the driver has
/// [failed](StorageDriver::failed). The next driver reads the contents of the disk. On Linux the
/// next driver does not read the pages that the system still has in memory.
///
/// # Metrics
/// The histogram `istorage_redb_durable_commit_seconds` of the `metrics` facade has the durations
/// of successful durable commits. There is one for each 16 MiB of the log, for each keyspace that
/// is made or dropped, for each backup, and for the close. Writes go on meanwhile, until a table in
/// memory is full. The counter `istorage_redb_failed_commits_total` counts the commits that failed.
///
/// The histogram `istorage_redb_freeze_seconds` has the durations of the beginnings of a segment of
/// the log, one for each of these commits but that of the close. All writes wait for them. The
/// gauge `istorage_redb_table_bytes` says how full the active table is, and the counter
/// `istorage_redb_slowed_groups_total` counts the groups of writes that were slowed, so that the
/// file keeps up.
///
/// The counter `istorage_redb_damaged_rows_total` counts the damage that the check of a file that
/// was not closed in order has found. Install the recorder before opening the driver.
///
/// # Damage
/// Every row has a checksum, which is verified whenever the row is read. A call on a damaged row is
/// `Corrupt`, and the error names the row. A row is also damaged if its page is damaged or the disk
/// cannot read the page. All other rows are served. If a bit of the key of a row has flipped, the
/// call is `Corrupt` and does not answer that the row is absent. This holds for rows of at most 64
/// KiB with keys of at most 1 KiB. The rows of a file that was not closed in order are checked in
/// the background. [`check`](crate::check) verifies the whole file. If not even the beginning of
/// the file can be read, every call is `Unavailable`.
///
/// # Atomicity
/// Every call is one frame of the log, or a part of one. A batch of puts, too, is written whole or
/// not at all. All other writes wait for the frame, so write a million rows in batches of some
/// thousands.
///
/// # Expiry
/// The file has a time of its own, which judges expiry. This time goes on with the monotonic clock
/// while the file is open, and stands still while the file is closed. The time never goes back
/// before a write that it judged.
///
/// So a wrong calendar expires nothing. While the file is closed, no row gets older. If the file
/// was not closed in order, its time also goes back to its last write. Expired rows are absent at
/// once. They are removed from the file a moment later.
///
/// # Backups
/// A [backup](StorageDriver::backup) first brings all rows into the file, and then reads one
/// snapshot of it. It stops no writes. Until the backup ends, the file keeps the pages of the
/// snapshot, and grows by the pages that are written meanwhile. An
/// [`OfflineBackup`](crate::OfflineBackup) copies a file that no driver has open, and
/// [`restore`](crate::restore) makes a new file from a backup.
///
/// # Dropping
/// The driver and all its storages can be dropped without [`close`](StorageDriver::close). Requests
/// that were already sent are still written. Then the threads end and the file is closed, all in
/// the background.
#[derive(Debug)]
pub struct RedbDriver {
    engine: Arc<RedbEngine>,
}

impl RedbDriver {
    /// Opens the file, and makes it if it does not exist.
    ///
    /// # Errors
    /// `Unavailable` if another process has the file open, or the disk fails. `Invalid` if the path
    /// cannot be used. `Corrupt` if the file is damaged, is not a redb file, is not a file of this
    /// driver, or has a format that this version does not know. If a file is refused as `Corrupt`,
    /// it is unchanged.
    pub async fn open(config: RedbConfig, clock: Clock) -> Result<RedbDriver> {
        RedbDriver::open_on(config, clock, Arc::new(RealDisk), LogSizes::default()).await
    }

    /// Opens the file on the given disk, with a log of these sizes.
    pub(crate) async fn open_on(
        config: RedbConfig,
        clock: Clock,
        disk: Arc<dyn Disk>,
        sizes: LogSizes,
    ) -> Result<RedbDriver> {
        RedbDriver::start(StorageFile::new(config, disk, sizes), clock, Arc::default()).await
    }

    /// Opens the file, with a filer at this desk.
    pub(crate) async fn start(
        file: StorageFile,
        clock: Clock,
        desk: Arc<Desk>,
    ) -> Result<RedbDriver> {
        let engine = Arc::new(RedbEngine::start(file, clock, desk).await?);
        Ok(RedbDriver { engine })
    }

    /// Opens an existing file for reading only. The file is not changed, not even after a crash:
    /// redb repairs it in memory. Other processes may read the file meanwhile, and none may write
    /// it.
    ///
    /// # Errors
    /// Those of [`RedbDriver::open`], and `Invalid` if there is no file.
    pub async fn open_for_reading(config: RedbConfig, clock: Clock) -> Result<ReadOnlyDriver> {
        let file = StorageFile::for_reading(config, Arc::new(RealDisk));
        let driver = RedbDriver::start(file, clock, Arc::default()).await?;
        Ok(ReadOnlyDriver::new(Arc::new(driver)))
    }

    async fn change(&self, change: KeyspaceChange, deadline: Instant) -> Result<()> {
        let changed =
            self.engine.ask_writer(|place, reply| WriteJob::Change { change, place, reply });
        self.bounded(deadline, changed).await
    }

    async fn bounded<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let clock = self.engine.clock();
        let late = || Error::unavailable("the storage did not answer before the deadline");
        if clock.now() >= deadline {
            return Err(late());
        }
        clock.timeout_at(deadline, call).await.unwrap_or_else(|_| Err(late()))
    }
}

#[async_trait]
impl StorageDriver for RedbDriver {
    fn name(&self) -> &'static str {
        "redb"
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        let keyspace = Arc::new(Keyspace::new(keyspace.clone()));
        self.change(KeyspaceChange::Make(keyspace), deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let keyspace = Arc::new(Keyspace::new(keyspace.clone()));
        if !self.bounded(deadline, self.engine.read(&keyspace, read::exists)).await? {
            return Ok(None);
        }
        let storage = Arc::new(RedbStorage::new(Arc::clone(&self.engine), keyspace));
        Ok(Some(Arc::new(Guarded::new(storage, self.engine.clock().clone()))))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        let keyspace = Arc::new(Keyspace::new(keyspace.clone()));
        self.change(KeyspaceChange::Drop(keyspace), deadline).await
    }

    async fn backup(&self, until: Instant) -> Result<Option<BackupStream>> {
        let begun = self.engine.ask_writer(|place, reply| WriteJob::Backup { place, reply });
        let run = self.bounded(until, begun).await?;
        let engine = Arc::clone(&self.engine);
        let pieces = stream::try_unfold(run, move |mut run| {
            let engine = Arc::clone(&engine);
            async move {
                if engine.clock().now() >= until {
                    return Err(Error::unavailable("the backup was not read in time"));
                }
                let read = |_: &mut RowView| Ok(run.piece()?.map(|piece| (piece, run)));
                engine.ask_reader(read).await
            }
        });
        Ok(Some(pieces.boxed()))
    }

    async fn failed(&self) -> Error {
        self.engine.failed().await
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}
