//! The read of many rows, in parts that a slow storage can read within one call.

use std::sync::atomic::{AtomicUsize, Ordering};

use istorage::{ErrorKind, FoundRow, Key};

use crate::{Log, Result};

/// The largest number of rows that are read by one call.
const MOST_ROWS: usize = 4_096;

/// The number of rows that are read by one call. A log keeps it after a replay that failed, so the
/// next replay begins with it.
#[derive(Debug)]
pub(crate) struct RowsAtOnce(AtomicUsize);

impl Default for RowsAtOnce {
    fn default() -> RowsAtOnce {
        RowsAtOnce(AtomicUsize::new(MOST_ROWS))
    }
}

impl RowsAtOnce {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, rows: usize) {
        self.0.store(rows.clamp(1, MOST_ROWS), Ordering::Relaxed);
    }
}

impl Log {
    /// Reads rows, in their order, by one call or by several. After a call that failed, the next
    /// call reads half as many rows. After a call that took less than a quarter of its time, the
    /// next one reads twice as many. Fails if no call succeeds within the time to apply events.
    ///
    /// Invariant: if the storage can read each row within one call, the replay goes on. A simpler
    /// version reads all rows of a batch by one call. A batch has the rows of 256 events, and the
    /// storage needs longer for them than a call may take. So each replay makes the same call, and
    /// fails.
    pub(super) async fn read_in_parts(&self, keys: &[Key]) -> Result<Vec<Option<FoundRow>>> {
        let mut found = Vec::with_capacity(keys.len());
        let mut until = self.clock.now() + self.settings.apply_for;
        let timeout = self.reader.timeout();
        while found.len() < keys.len() {
            let left = &keys[found.len()..];
            let at_once = self.rows_at_once.get();
            let part = &left[..left.len().min(at_once)];
            let start = self.clock.now();
            match self.storage().get_batch(part, start + timeout).await {
                Ok(rows) => {
                    let end = self.clock.now();
                    if part.len() == at_once && end - start < timeout / 4 {
                        self.rows_at_once.set(at_once * 2);
                    }
                    until = end + self.settings.apply_for;
                    found.extend(rows);
                }
                Err(error) => {
                    if error.kind() != ErrorKind::Unavailable {
                        return Err(error.into());
                    }
                    self.rows_at_once.set(part.len() / 2);
                    if part.len() == 1 || self.clock.now() >= until {
                        return Err(error.into());
                    }
                }
            }
            if let Some(lost) = self.lost().filter(|_| found.len() < keys.len()) {
                return Err(lost.into());
            }
        }
        Ok(found)
    }
}
