//! The check of a whole file, for operators.

use std::{ops::Bound, sync::Arc};

use istorage::{Error, Result};
use redb::{AccessGuard, ReadableDatabase, ReadableTable, StorageError};

use crate::{
    RedbConfig,
    disk::{Disk, OpenMode, real::RealDisk},
    errors::{self, FileFailure},
    file::StorageFile,
    layout::{FileRow, Keyspace},
};

type Guard<'t> = AccessGuard<'t, &'static [u8]>;

/// How many findings of damage are described. Further findings are only counted.
const DESCRIBED: usize = 100;

/// The result of the check of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The number of keyspaces in the file.
    pub keyspaces: usize,
    /// The number of rows that were read and are as they were written.
    pub rows: u64,
    /// Descriptions of the first findings of damage, one line each.
    pub damage: Vec<String>,
    /// The number of further findings.
    pub more_damage: u64,
}

impl CheckReport {
    /// Whether no damage was found.
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }

    fn add(&mut self, finding: String) {
        if self.damage.len() < DESCRIBED {
            self.damage.push(finding);
        } else {
            self.more_damage += 1;
        }
    }
}

/// Reads the whole file and verifies every page and every row. The file is not changed: redb
/// repairs in memory only. The call blocks its thread until the check is done.
///
/// # Errors
/// The errors of [`RedbDriver::open`](crate::RedbDriver::open), and `Invalid` if there is no file.
pub fn check(config: &RedbConfig) -> Result<CheckReport> {
    config.check().map_err(Error::invalid_setting)?;
    check_on(config, Arc::new(RealDisk))
}

/// Checks the file on the given disk.
pub(crate) fn check_on(config: &RedbConfig, disk: Arc<dyn Disk>) -> Result<CheckReport> {
    let file = StorageFile::for_reading(config.clone(), disk);
    let mut report = CheckReport::default();
    let (open, contents) = file.load_to_read()?;
    report.keyspaces = contents.keyspaces.len();
    for keyspace in contents.keyspaces.into_iter().map(Keyspace::new) {
        let read = errors::catch_page_error(|| check_rows(&open.database, &keyspace, &mut report));
        match read {
            Ok(Ok(())) => {}
            Ok(Err(why)) => report.add(format!("the keyspace `{}`: {why}", keyspace.name)),
            Err(page_error) => {
                report.add(format!("the keyspace `{}`: {page_error}", keyspace.name))
            }
        }
    }
    // The pages are checked on a fresh handle: redb repairs the file that it checks, and may fall
    // back to an older commit.
    let _ = errors::catch_page_error(|| drop(open));
    let (mut open, _) = file.load(OpenMode::ReadOnly)?;
    match errors::catch_page_error(|| open.database.check_integrity()) {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => report.add("the checksums of some pages are wrong".to_owned()),
        Ok(Err(error)) => report.add(format!("the checksums of some pages are wrong: {error}")),
        Err(page_error) => report.add(format!("some pages cannot be read: {page_error}")),
    }
    // redb may panic when it closes a file that it could not read.
    let _ = errors::catch_page_error(|| drop(open));
    Ok(report)
}

/// Reads all rows of a keyspace. If a page cannot be read, the rows before it are read from the
/// beginning, and the rows after it from the end.
fn check_rows(
    database: &impl ReadableDatabase,
    keyspace: &Keyspace,
    report: &mut CheckReport,
) -> std::result::Result<(), FileFailure> {
    let txn = database.begin_read()?;
    let table = txn.open_table(keyspace.rows())?;
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    let Some(why) = walk(table.iter()?, keyspace, report, &mut before) else { return Ok(()) };
    let rest = (Bound::Excluded(&before[..]), Bound::Unbounded);
    walk(table.range::<&[u8]>(rest)?.rev(), keyspace, report, &mut behind);
    let (before, behind) = (keyspace.row_name(&before), keyspace.row_name(&behind));
    report.add(format!("the rows between {before} and {behind} cannot be read: {why}"));
    Ok(())
}

/// Checks rows until one cannot be read, and returns the reason. `last` becomes the key of the last
/// row that was read.
fn walk<'t>(
    rows: impl Iterator<Item = std::result::Result<(Guard<'t>, Guard<'t>), StorageError>>,
    keyspace: &Keyspace,
    report: &mut CheckReport,
    last: &mut Vec<u8>,
) -> Option<String> {
    let walked = errors::catch_page_error(|| {
        for row in rows {
            let (key, row) = row.map_err(|error| error.to_string())?;
            last.clear();
            last.extend_from_slice(key.value());
            match FileRow::parse(last, row.value()) {
                Ok(_) => report.rows += 1,
                Err(why) => report.add(format!("{}: {why}", keyspace.row_name(last))),
            }
        }
        Ok(())
    });
    walked.unwrap_or_else(|page_error| Err(page_error.to_string())).err()
}
