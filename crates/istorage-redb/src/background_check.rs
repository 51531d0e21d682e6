//! Checks a file that was not closed in order, while the driver works with it.
//!
//! After a power failure a disk may hold other bytes than were written. Reads find a damaged row
//! only when they need it, perhaps after a year. So a separate thread reads all rows once, and
//! reports damage while there still is a backup with the row.
//!
//! Each piece is read from a snapshot of its own, so the file keeps no old pages for the check. A
//! piece ends at a row that a search finds, because the next piece begins with a search for this
//! row.

#[cfg(test)]
mod tests;

use std::{
    ops::Bound,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use istorage::KeyspaceName;
use metrics::Counter;
use redb::TableError;

use crate::{
    errors::{self, FileFailure},
    file::StorageFile,
    layout::{FileRow, Keyspace},
    search,
};

/// The size of a piece. The pause for this many bytes keeps the check to 10 MiB a second.
const PIECE: usize = 256 << 10;
const PAUSE: Duration = Duration::from_millis(25);

/// The pause after a piece. The piece may have a whole row more than [`PIECE`] bytes.
fn pause_after(bytes: usize) -> Duration {
    PAUSE * u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX)
}

/// How many findings the node log describes. Further ones are only counted.
const DESCRIBED: u64 = 20;

/// The check of all rows of a file.
pub(crate) struct BackgroundCheck {
    pub(crate) file: Arc<StorageFile>,
    /// A channel that ends when the driver is closed or dropped.
    pub(crate) stop: Receiver<()>,
    pub(crate) meter: Counter,
    /// The number of rows that are as they were written, and of findings.
    pub(crate) rows: u64,
    pub(crate) damaged: u64,
}

impl BackgroundCheck {
    /// Reads all rows, unless the driver is closed first.
    pub(crate) fn run(mut self, keyspaces: Vec<KeyspaceName>) {
        let file = self.file.path().display().to_string();
        tracing::info!(file, "storage file not closed in order: its rows are checked meanwhile");
        for keyspace in keyspaces.into_iter().map(Keyspace::new) {
            let mut next = Some((Vec::new(), PIECE));
            while let Some((from, read)) = next {
                if self.is_stopped_within(pause_after(read)) {
                    let advice = "check the file with `vvm storage check`";
                    return tracing::warn!(file, advice, "storage file not checked to its end");
                }
                next = self.check_piece(&keyspace, from);
            }
        }
        let BackgroundCheck { rows, damaged, .. } = self;
        if damaged == 0 {
            tracing::info!(file, rows, "storage file checked: no row is damaged");
        } else {
            let advice = errors::RESTORE;
            tracing::error!(file, rows, damaged, advice, "storage file checked: it is damaged");
        }
    }

    fn is_stopped_within(&self, pause: Duration) -> bool {
        matches!(self.stop.recv_timeout(pause), Err(RecvTimeoutError::Disconnected))
    }

    /// Checks the rows from the key `from` on. Returns the first key of the next piece, and the
    /// bytes of this one; `None` at the end of the keyspace, or if the rest of it cannot be read.
    fn check_piece(&mut self, keyspace: &Keyspace, from: Vec<u8>) -> Option<(Vec<u8>, usize)> {
        let read = errors::catch_page_error(|| self.check_rows(keyspace, &from));
        let damage = match read {
            Ok(Ok(next)) => return next,
            // The filer opens the file again.
            Ok(Err(failure)) if !failure.is_damage() => return Some((from, PIECE)),
            Ok(Err(damage)) => damage.to_string(),
            Err(page_error) => page_error.to_string(),
        };
        self.add(rest(keyspace, &from), damage);
        None
    }

    fn check_rows(
        &mut self,
        keyspace: &Keyspace,
        from: &[u8],
    ) -> Result<Option<(Vec<u8>, usize)>, FileFailure> {
        let snapshot = self.file.begin_read()?;
        let table = match snapshot.open_table(keyspace.rows()) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut rows = match from {
            [] => redb::ReadableTable::lower_bound(&table, Bound::<&[u8]>::Unbounded)?,
            from => search::rows_from(&table, from)?,
        };
        let (mut bytes, mut next) = (0, from.to_vec());
        while let Some((key, row)) = rows.next()? {
            let (key, row) = (key.value(), row.value());
            bytes += key.len() + row.len();
            if let Err(why) = FileRow::parse(key, row) {
                self.add(keyspace.row_name(key), why);
                continue;
            }
            if key < &next[..] {
                self.add(keyspace.row_name(key), "it is not in its place");
                continue;
            }
            self.rows += 1;
            next.clear();
            next.extend_from_slice(key);
            next.push(0);
            if bytes >= PIECE && search::rows_from(&table, &next).is_ok() {
                return Ok(Some((next, bytes)));
            }
        }
        Ok(None)
    }

    /// Reports damage.
    fn add(&mut self, what: impl std::fmt::Display, why: impl std::fmt::Display) {
        self.damaged += 1;
        self.meter.increment(1);
        if self.damaged <= DESCRIBED {
            let error = errors::damaged_row(what, why);
            tracing::error!(%error, "the storage file is damaged");
        }
    }
}

/// The rows that are not checked, as messages name them.
fn rest(keyspace: &Keyspace, from: &[u8]) -> String {
    match from {
        [] => keyspace.table_label(),
        from => format!("the part from {} on", keyspace.row_name(from)),
    }
}
