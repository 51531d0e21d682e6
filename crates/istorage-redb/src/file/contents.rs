//! The contents of a file: whether this driver made it, and the starting state of the writer.

use std::{collections::BTreeSet, path::Path};

use istorage::{KeyspaceName, Result};
use redb::{Database, ReadTransaction, ReadableDatabase, TableError, TableHandle};

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
pub(crate) struct Contents {
    pub(crate) keyspaces: BTreeSet<KeyspaceName>,
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
        // A flipped bit of a name hides a value. Without the state the log would not be read, and
        // without the time rows would live longer.
        if (log.is_none() || time.is_none()) && format == Some(FORMAT) {
            return Err(damaged("state of the log or the time"));
        }
        let keyspaces = keyspaces(database, path)?;
        Ok(Contents { keyspaces, time: time.transpose()?, log: log.transpose()? })
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

fn keyspaces(database: &impl ReadableDatabase, path: &Path) -> Result<BTreeSet<KeyspaceName>> {
    let tables: Vec<String> = read(database, |txn| {
        Ok(txn.list_tables()?.map(|table| table.name().to_owned()).collect())
    })?;
    // A flipped bit of its name would make a keyspace absent, and it would be made again, empty.
    for table in tables.iter().filter(|table| *table != META.name()) {
        if !layout::other_table(table).is_some_and(|other| tables.contains(&other)) {
            return Err(errors::damaged_file(path, format!("the table `{table}` is unknown")));
        }
    }
    let keyspaces = tables.iter().filter_map(|table| Keyspace::of_table(table));
    keyspaces.map(|keyspace| Ok(keyspace?.name)).collect()
}

fn read<T>(
    database: &impl ReadableDatabase,
    read: impl FnOnce(&ReadTransaction) -> std::result::Result<T, redb::Error>,
) -> Result<T> {
    let txn = database.begin_read().map_err(FileFailure::from)?;
    Ok(read(&txn).map_err(FileFailure::unavailable)?)
}
