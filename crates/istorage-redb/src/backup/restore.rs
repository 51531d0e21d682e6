//! A new file from a backup.

use std::{
    io::{BufReader, Read},
    sync::Arc,
};

use clock::{Clock, WallTime};
use istorage::{Error, Result};
use redb::Database;

use super::verify::{BackupItem, BackupReader, BackupReport};
use crate::{
    RedbConfig, check,
    disk::{Disk, PathKind, real::RealDisk},
    errors::{self, FileFailure},
    file::StorageFile,
    filing::{AtIndex, FilingTransaction},
    layout::{self, Keyspace, KeyspaceChange, META, META_TIME},
    log::LogSizes,
    mem_table::MemTable,
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
    let mut is_end = false;
    while !is_end {
        let (mut rows, mut made) = (MemTable::default(), Vec::new());
        let until = reader.report.bytes + TRANSACTION;
        while !is_end && reader.report.bytes < until {
            match reader.next()? {
                Some(BackupItem::Keyspace(keyspace)) => made.push(Keyspace::new(keyspace.clone())),
                Some(BackupItem::Row { keyspace, key, row }) => rows.set(keyspace, key, Some(row)),
                None => is_end = true,
            }
        }
        let time = is_end.then_some(reader.time);
        errors::catch(|| fill_transaction(database, made, &rows, time))?;
    }
    Ok(reader.report)
}

/// Makes keyspaces, and writes rows. The last transaction also writes the time.
fn fill_transaction(
    database: &Database,
    made: Vec<Keyspace>,
    rows: &MemTable,
    time: Option<Moment>,
) -> std::result::Result<(), FileFailure> {
    let mut txn = database.begin_write()?;
    txn.set_quick_repair(true);
    let filing = FilingTransaction { txn: &txn, index: Some(&AtIndex::default()) };
    for keyspace in made {
        filing.change(&KeyspaceChange::Make(Arc::new(keyspace)))?;
    }
    filing.write(rows)?;
    if let Some(time) = time {
        txn.open_table(META)?.insert(META_TIME, &layout::encode_time(time)[..])?;
    }
    Ok(txn.commit()?)
}
