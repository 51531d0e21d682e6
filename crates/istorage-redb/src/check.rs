//! The check of a whole file, for operators.

use std::{ops::Bound, sync::Arc};

use istorage::{Error, Result};
use redb::{AccessGuard, ReadableDatabase, ReadableTable, StorageError};

use crate::{
    RedbConfig,
    disk::{Disk, Found, How, RealDisk},
    errors::{self, Failure},
    file::StorageFile,
    layout::{Keyspace, Stored},
};

type Guard<'t> = AccessGuard<'t, &'static [u8]>;

/// The number of damages that are described. Further damages are only counted.
const DESCRIBED: usize = 100;

/// The result of the check of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The number of keyspaces in the file.
    pub keyspaces: usize,
    /// The number of rows that were read and are as they were written.
    pub rows: u64,
    /// Descriptions of the first damages, one line each.
    pub damages: Vec<String>,
    /// The number of further damages.
    pub more_damages: u64,
}

impl Checked {
    /// Whether no damage was found.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty()
    }

    fn add(&mut self, damage: String) {
        if self.damages.len() < DESCRIBED {
            self.damages.push(damage);
        } else {
            self.more_damages += 1;
        }
    }
}

/// Reads the whole file and verifies every page and every row. The file is not changed: redb
/// repairs in memory only. The call blocks its thread until the check is done.
///
/// # Errors
/// The errors of [`RedbDriver::open`](crate::RedbDriver::open), and `Invalid` if there is no file.
pub fn check(config: &RedbConfig) -> Result<Checked> {
    config.check().map_err(Error::invalid_setting)?;
    check_on(config, Arc::new(RealDisk))
}

/// Checks the file on the given disk.
pub(crate) fn check_on(config: &RedbConfig, disk: Arc<dyn Disk>) -> Result<Checked> {
    let file = StorageFile::new(config.clone(), disk);
    if file.look()? == Found::Nothing {
        let path = file.path().display();
        return Err(Error::invalid(format!("there is no storage file at {path}")));
    }
    let mut checked = Checked::default();
    let (open, contents) = file.load(How::Untouched)?;
    checked.keyspaces = contents.keyspaces.len();
    let mut names: Vec<_> = contents.keyspaces.into_keys().collect();
    names.sort();
    for keyspace in names.into_iter().map(Keyspace::new) {
        let read = errors::caught(|| check_rows(&open.database, &keyspace, &mut checked));
        match read {
            Ok(Ok(())) => {}
            Ok(Err(why)) => checked.add(format!("the keyspace `{}`: {why}", keyspace.name)),
            Err(unwound) => checked.add(format!("the keyspace `{}`: {unwound}", keyspace.name)),
        }
    }
    // The pages are checked on a fresh handle: redb repairs the file that it checks, and may fall
    // back to an older commit.
    let _ = errors::caught(|| drop(open));
    let (mut open, _) = file.load(How::Untouched)?;
    match errors::caught(|| open.database.check_integrity()) {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => checked.add("the checksums of some pages are wrong".to_owned()),
        Ok(Err(error)) => checked.add(format!("the checksums of some pages are wrong: {error}")),
        Err(unwound) => checked.add(format!("some pages cannot be read: {unwound}")),
    }
    // redb may panic when it closes a file that it could not read.
    let _ = errors::caught(|| drop(open));
    Ok(checked)
}

/// Reads all rows of a keyspace. If a page cannot be read, the rows in front of it are read from
/// the beginning, and the rows behind it from the end.
fn check_rows(
    database: &impl ReadableDatabase,
    keyspace: &Keyspace,
    checked: &mut Checked,
) -> std::result::Result<(), Failure> {
    let txn = database.begin_read()?;
    let table = txn.open_table(keyspace.rows())?;
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    let Some(why) = walk(table.iter()?, keyspace, checked, &mut before) else { return Ok(()) };
    let rest = (Bound::Excluded(&before[..]), Bound::Unbounded);
    walk(table.range::<&[u8]>(rest)?.rev(), keyspace, checked, &mut behind);
    let (before, behind) = (keyspace.name_of(&before), keyspace.name_of(&behind));
    checked.add(format!("the rows between {before} and {behind} cannot be read: {why}"));
    Ok(())
}

/// Checks rows until one cannot be read, and returns the reason. `last` becomes the key of the last
/// row that was read.
fn walk<'t>(
    rows: impl Iterator<Item = std::result::Result<(Guard<'t>, Guard<'t>), StorageError>>,
    keyspace: &Keyspace,
    checked: &mut Checked,
    last: &mut Vec<u8>,
) -> Option<String> {
    let walked = errors::caught(|| {
        for row in rows {
            let (key, row) = row.map_err(|error| error.to_string())?;
            last.clear();
            last.extend_from_slice(key.value());
            match Stored::parse(last, row.value()) {
                Ok(_) => checked.rows += 1,
                Err(why) => checked.add(format!("{}: {why}", keyspace.name_of(last))),
            }
        }
        Ok(())
    });
    walked.unwrap_or_else(|unwound| Err(unwound.to_string())).err()
}
