//! A file that is read from the disk, fails one call when a page cannot be read, and remembers a sync that failed.

use std::{
    io,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use redb::{BackendError, StorageBackend};

use super::Cache;
use crate::errors::Unreadable;

/// So much of the file is forgotten before its beginning is read. Linux keeps pages together, in up to 2 MiB, and forgets
/// either all pages of such a group or none.
const BEGINNING: u64 = 2 << 20;

/// A file below redb.
///
/// redb answers nothing any more after one read that failed. So a page that cannot be read, or that is behind the end
/// of the file, unwinds to [`caught`](crate::errors::caught), as a page that redb does not understand does, and redb
/// goes on. If not even the beginning of the file can be read, the disk has failed, and redb is told. The system must
/// forget the beginning before, or it shows what it keeps of a disk that is gone.
///
/// The first read has the system forget what it keeps of the file. redb has locked the file by then, so no other process
/// writes to the file or fails to sync it afterwards. What is still to be written then is synced before redb has opened the
/// file: redb writes its header when it opens a file, and syncs it.
#[derive(Debug)]
pub(super) struct Watched<F, C> {
    file: F,
    cache: C,
    /// Whether the cache was forgotten.
    is_fresh: AtomicBool,
    has_lost: Arc<AtomicBool>,
}

impl<F: StorageBackend, C: Cache> Watched<F, C> {
    /// `has_lost` becomes true when a sync fails.
    pub(super) fn new(file: F, cache: C, has_lost: Arc<AtomicBool>) -> Watched<F, C> {
        Watched { file, cache, is_fresh: AtomicBool::new(false), has_lost }
    }
}

impl<F: StorageBackend, C: Cache> StorageBackend for Watched<F, C> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !self.is_fresh.load(Ordering::Acquire) {
            self.cache.forget(None)?;
            self.is_fresh.store(true, Ordering::Release);
        }
        let mut read = || self.file.read(offset, out);
        let Err(error) = read().or_else(|_| read()) else { return Ok(()) };
        let beginning = self.cache.forget(Some(BEGINNING));
        let beginning = beginning.and_then(|()| self.file.read(0, &mut [0]));
        // A second panic while one unwinds would end the process.
        if beginning.is_err() || thread::panicking() {
            return Err(error);
        }
        Unreadable::new(offset, out.len(), &error).unwind()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.has_lost.store(true, Ordering::Release))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}
