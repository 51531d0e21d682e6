//! A file below redb that reads from the disk, fails only one call when a page cannot be read, and
//! remembers that a sync failed.

use std::{
    fmt, io,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use redb::{BackendError, StorageBackend};

use crate::errors::PageError;

/// How many bytes the system forgets before the beginning of the file is read. Linux keeps pages in
/// groups of up to 2 MiB, and forgets either all pages of a group or none.
const BEGINNING: u64 = 2 << 20;

/// The pages of one file that the system keeps in memory.
pub(crate) trait PageCache: fmt::Debug + Send + Sync + 'static {
    /// Forgets the pages that no longer need a write, so that the next read asks the disk. The
    /// pages are those of the first `len` bytes, or all pages.
    ///
    /// Linux tries once to write a page. After the sync that reports the failure, Linux shows the
    /// page in reads and never writes it again. At a power failure the page is lost.
    fn forget(&self, len: Option<u64>) -> io::Result<()>;
}

/// A file below redb.
///
/// After one failed read, redb answers nothing any more. So if a page cannot be read, or is beyond
/// the end of the file, its read unwinds to [`catch_page_error`](crate::errors::catch_page_error),
/// and redb goes on. A page that redb does not understand unwinds in the same way.
///
/// If not even the beginning of the file can be read, the disk has failed, and redb gets the error.
/// The system must forget the beginning before that read. Otherwise the system would answer from
/// memory, and a disk that is gone would look as if it worked.
///
/// Before the first read, the system forgets the pages of the file that it has in memory. redb has
/// locked the file by then, so afterwards no other process writes to the file or fails to sync it.
/// Pages that still wait to be written then are synced before redb has opened the file: redb writes
/// its header when it opens a file, and syncs it.
#[derive(Debug)]
pub(super) struct MonitoredFile {
    file: Box<dyn StorageBackend>,
    cache: Box<dyn PageCache>,
    /// Whether the system has forgotten the cache since the file was opened.
    is_fresh: AtomicBool,
    has_failed_sync: Arc<AtomicBool>,
}

impl MonitoredFile {
    /// Wraps `file`. `has_failed_sync` becomes true when a sync fails.
    pub(super) fn new(
        file: Box<dyn StorageBackend>,
        cache: Box<dyn PageCache>,
        has_failed_sync: Arc<AtomicBool>,
    ) -> MonitoredFile {
        MonitoredFile { file, cache, is_fresh: AtomicBool::new(false), has_failed_sync }
    }
}

impl StorageBackend for MonitoredFile {
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
        // A second panic during an unwinding would end the process.
        if beginning.is_err() || thread::panicking() {
            return Err(error);
        }
        PageError::unreadable(offset, out.len(), &error).unwind()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().inspect_err(|_| self.has_failed_sync.store(true, Ordering::Release))
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
