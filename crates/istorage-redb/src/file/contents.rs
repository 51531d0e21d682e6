//! The contents of a file: whether this driver made it, and the starting state of the writer.

use std::{collections::HashMap, path::Path};

use istorage::{KeyspaceName, Result};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableError, TableHandle};

use crate::{
    errors::{self, FileFailure},
    layout::{
        self, FORMAT, Keyspace, MAGIC, META, META_FORMAT, META_LOG, META_MAGIC, META_TIME,
        WITHOUT_BANDS, WITHOUT_FILER, WITHOUT_LOG,
    },
    log::LogState,
    time::Moment,
};

/// What a file has when it is opened.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Every keyspace, and when its first row expires.
    pub(crate) keyspaces: HashMap<KeyspaceName, Option<Moment>>,
    /// The highest time of the file so far.
    pub(crate) time: Option<Moment>,
    /// The state of the log; `None` if the file has no log yet.
    pub(crate) log: Option<LogState>,
}

impl Contents {
    /// Reads the contents. Fails if this driver did not make the file.
    pub(super) fn read(database: &impl ReadableDatabase, path: &Path) -> Result<Contents> {
        let (magic, format, time, log) = read(database, |txn| {
            let meta = match txn.open_table(META) {
                Ok(meta) => meta,
                Err(TableError::Storage(error)) => return Err(error.into()),
                Err(_) => return Ok((false, None, None, None)),
            };
            let bytes =
                |name| Ok::<_, redb::Error>(meta.get(name)?.map(|bytes| bytes.value().to_vec()));
            let magic = meta.get(META_MAGIC)?.is_some_and(|magic| magic.value() == MAGIC);
            Ok((magic, bytes(META_FORMAT)?, bytes(META_TIME)?, bytes(META_LOG)?))
        })?;
        if !magic {
            return Err(errors::foreign_file(path));
        }
        let format = format.and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        if ![FORMAT, WITHOUT_FILER, WITHOUT_BANDS, WITHOUT_LOG].map(Some).contains(&format) {
            return Err(errors::other_format(path, format));
        }
        let damaged = |what| errors::damaged_file(path, format!("the {what} cannot be read"));
        let time =
            time.map(|bytes| layout::parse_time(&bytes).ok_or_else(|| damaged("time of the file")));
        let log =
            log.map(|bytes| LogState::parse(&bytes).ok_or_else(|| damaged("state of the log")));
        // Without its name the state would be absent, and the log would not be read.
        if log.is_none() && format == Some(FORMAT) {
            return Err(damaged("state of the log"));
        }
        let (keyspaces, time) = (keyspaces(database, path)?, time.transpose()?);
        // Each write of a row that expires also writes the time.
        if time.is_none() && keyspaces.values().any(Option::is_some) {
            return Err(damaged("time of the file"));
        }
        Ok(Contents { keyspaces, time, log: log.transpose()? })
    }
}

/// Makes an empty database a file of this driver, still without a log.
pub(super) fn initialise(database: &Database) -> std::result::Result<(), redb::Error> {
    let mut txn = database.begin_write()?;
    txn.set_quick_repair(true);
    {
        let mut meta = txn.open_table(META)?;
        meta.insert(META_MAGIC, MAGIC)?;
        meta.insert(META_FORMAT, &WITHOUT_LOG.to_be_bytes()[..])?;
    }
    Ok(txn.commit()?)
}

fn keyspaces(
    database: &impl ReadableDatabase,
    path: &Path,
) -> Result<HashMap<KeyspaceName, Option<Moment>>> {
    let tables: Vec<String> = read(database, |txn| {
        Ok(txn.list_tables()?.map(|table| table.name().to_owned()).collect())
    })?;
    // A flipped bit of its name would make a keyspace absent, and it would be made again, empty.
    for table in tables.iter().filter(|table| *table != META.name()) {
        if !layout::other_table(table).is_some_and(|other| tables.contains(&other)) {
            return Err(errors::damaged_file(path, format!("the table `{table}` is unknown")));
        }
    }
    let mut keyspaces = HashMap::new();
    for keyspace in tables.iter().filter_map(|table| Keyspace::of_table(table)) {
        let keyspace = keyspace?;
        let first = errors::catch_page_error(|| first_expiry(database, &keyspace));
        // The index is needed only to remove expired rows. If a page of it is damaged, the moment 0
        // makes the filer look at the index again when it removes rows.
        let first = first.unwrap_or(Ok(Some(Moment(0))))?;
        keyspaces.insert(keyspace.name, first);
    }
    Ok(keyspaces)
}

/// When the first row of a keyspace expires.
fn first_expiry(database: &impl ReadableDatabase, keyspace: &Keyspace) -> Result<Option<Moment>> {
    let first = read(database, |txn| {
        let expiry = txn.open_table(keyspace.expiry())?;
        Ok(expiry.first()?.map(|(key, _)| key.value().to_vec()))
    })?;
    first.map(|key| layout::parse_expiry_key(&key).map(|(at, _)| at)).transpose()
}

fn read<T>(
    database: &impl ReadableDatabase,
    read: impl FnOnce(&ReadTransaction) -> std::result::Result<T, redb::Error>,
) -> Result<T> {
    let txn = database.begin_read().map_err(FileFailure::from)?;
    Ok(read(&txn).map_err(FileFailure::unavailable)?)
}
