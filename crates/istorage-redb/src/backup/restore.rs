//! A new file from a backup.

use std::{
    io::{BufReader, Read},
    sync::Arc,
};

use clock::{Clock, WallTime};
use istorage::{Error, Result};
use redb::{Database, WriteTransaction};

use super::{
    format::damaged_backup,
    verify::{BackupItem, BackupReader, BackupReport},
};
use crate::{
    RedbConfig, check,
    disk::{Disk, PathKind, real::RealDisk},
    errors::{self, FileFailure},
    file::StorageFile,
    layout::{self, Keyspace, META, META_TIME},
    log::LogSizes,
    time::Moment,
};

/// A transaction ends with the row that brings it to this many bytes.
const TRANSACTION: u64 = 16 << 20;

/// Makes the file of a backup. The path of the file must be free. The file has another name until
/// it is whole and [checked](crate::check), so a restore that breaks off leaves nothing at the
/// path. The call blocks its thread until the restore is done.
///
/// # Errors
/// `Corrupt` if the backup is damaged, of another version, or from the far future. `Invalid` if
/// there is something at the path of the file, or the log of another file beside it. `Unavailable`
/// if the backup cannot be read, or the file cannot be written.
pub fn restore(backup: impl Read, config: &RedbConfig, clock: &Clock) -> Result<BackupReport> {
    config.check().map_err(Error::invalid_setting)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let file = StorageFile::new(config.clone(), disk, LogSizes::default());
    // Another process may make the file meanwhile, and makes its log after the file.
    let logs = file.existing_logs()?;
    if file.path_kind()? != PathKind::Absent {
        return Err(errors::taken(file.path()));
    }
    if !logs.is_empty() {
        return Err(errors::log_of_former_file(&logs));
    }
    let mut reader = BackupReader::open(BufReader::with_capacity(1 << 20, backup))?;
    check_time(reader.time, clock.wall())?;
    file.make_whole(
        clock.random(),
        |database| fill(database, &mut reader),
        |made, report| {
            let found = check(&RedbConfig { path: made.to_owned(), ..config.clone() })?;
            let BackupReport { keyspaces, rows, .. } = *report;
            if !found.is_intact() || (found.keyspaces as u64, found.rows) != (keyspaces, rows) {
                return Err(Error::corrupt(format!(
                    "the restored file differs from the backup: {} of {rows} rows are whole; check the disk, and \
                     restore again",
                    found.rows
                )));
            }
            Ok(())
        },
    )
}

/// Refuses a backup if its file would have been open for longer than the time since 1970. If a file
/// is near the end of its time, the time cannot go on, and no lease could last.
fn check_time(open_for: Moment, now: WallTime) -> Result<()> {
    const YEAR: u64 = 365 * 24 * 3_600 * 1_000_000_000;
    if open_for.0 <= now.as_nanos() {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "the backup is from the far future: its storage file would have been open for {} years, and by the clock of this \
         machine only {} years have passed since 1970: correct the clock (`date`) if it is wrong, or use another backup",
        open_for.0 / YEAR,
        now.as_nanos() / YEAR
    )))
}

/// Writes the contents of a backup into an empty database.
fn fill<R: Read>(database: &Database, reader: &mut BackupReader<R>) -> Result<BackupReport> {
    let mut keyspace = None;
    loop {
        let mut txn = database.begin_write().map_err(FileFailure::from)?;
        txn.set_quick_repair(true);
        let until = reader.report.bytes + TRANSACTION;
        let is_end =
            errors::catch_page_error(|| fill_transaction(&txn, reader, &mut keyspace, until))
                .unwrap_or_else(|page_error| Err(FileFailure::damaged(page_error).into()))?;
        txn.commit().map_err(|error| FileFailure::unavailable(error.into()))?;
        if is_end {
            return Ok(reader.report);
        }
    }
}

/// The reason why no more rows are written to a keyspace.
enum FillEnd {
    /// The transaction is full.
    Transaction,
    /// This keyspace follows.
    Keyspace(Keyspace),
    Backup,
}

/// Writes the rows of one transaction. Returns whether the backup has ended.
fn fill_transaction<R: Read>(
    txn: &WriteTransaction,
    reader: &mut BackupReader<R>,
    keyspace: &mut Option<Keyspace>,
    until: u64,
) -> Result<bool> {
    loop {
        let end = match keyspace {
            Some(keyspace) => fill_keyspace(txn, reader, keyspace, until)?,
            None => match reader.next()? {
                Some(BackupItem::Keyspace(next)) => {
                    FillEnd::Keyspace(Keyspace::new(next.name.clone()))
                }
                Some(BackupItem::Row { .. }) => {
                    return Err(damaged_backup("a row has no keyspace"));
                }
                None => FillEnd::Backup,
            },
        };
        match end {
            FillEnd::Transaction => return Ok(false),
            FillEnd::Keyspace(next) => *keyspace = Some(next),
            FillEnd::Backup => {
                let mut meta = txn.open_table(META).map_err(FileFailure::from)?;
                let time = layout::encode_time(reader.time);
                meta.insert(META_TIME, &time[..]).map_err(FileFailure::from)?;
                return Ok(true);
            }
        }
    }
}

/// Writes rows of a keyspace.
fn fill_keyspace<R: Read>(
    txn: &WriteTransaction,
    reader: &mut BackupReader<R>,
    keyspace: &Keyspace,
    until: u64,
) -> Result<FillEnd> {
    let mut rows = txn.open_table(keyspace.rows()).map_err(FileFailure::from)?;
    let mut expiry = txn.open_table(keyspace.expiry()).map_err(FileFailure::from)?;
    while reader.report.bytes < until {
        match reader.next()? {
            Some(BackupItem::Row { key, bytes, row }) => {
                rows.insert(key, bytes).map_err(FileFailure::from)?;
                if let Some(at) = row.kind.expires() {
                    let key = layout::expiry_key(at, key);
                    expiry.insert(&key[..], ()).map_err(FileFailure::from)?;
                }
            }
            Some(BackupItem::Keyspace(next)) => {
                return Ok(FillEnd::Keyspace(Keyspace::new(next.name.clone())));
            }
            None => return Ok(FillEnd::Backup),
        }
    }
    Ok(FillEnd::Transaction)
}
