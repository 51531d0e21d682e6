//! The two files of a log.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use istorage::ErrorKind;

use crate::{
    disk::{Disk, OpenFile, OpenMode, PathKind},
    errors::{self, FileFailure},
    queue::SEGMENT,
};

/// The sizes of a log and of its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSizes {
    /// When a segment has this many bytes, or its table this weight, the next one begins.
    pub(crate) segment: usize,
    /// How many bytes a file grows by. The disk allocates all of them, so it cannot be full when a
    /// frame is written, and a sync writes nothing but the frame.
    pub(crate) growth: u64,
}

impl Default for LogSizes {
    fn default() -> LogSizes {
        LogSizes { segment: SEGMENT, growth: 256 << 10 }
    }
}

/// The files of the log of one storage file.
#[derive(Clone)]
pub(crate) struct LogFiles {
    pub(super) disk: Arc<dyn Disk>,
    paths: [PathBuf; 2],
    sizes: LogSizes,
    pub(super) has_failed_sync: Arc<AtomicBool>,
    /// Whether the place after the last frame may have a frame that was not acknowledged: then
    /// nobody knows which rows there are.
    pub(crate) is_unsettled: Arc<AtomicBool>,
}

impl LogFiles {
    /// The log of the storage file at `storage`. `has_failed_sync` becomes true when a sync fails.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        storage: &Path,
        sizes: LogSizes,
        has_failed_sync: Arc<AtomicBool>,
    ) -> LogFiles {
        let paths = [".log-0", ".log-1"].map(|ending| {
            let mut path = storage.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        });
        LogFiles { disk, paths, sizes, has_failed_sync, is_unsettled: Arc::default() }
    }

    pub(crate) fn sizes(&self) -> LogSizes {
        self.sizes
    }

    pub(crate) fn path(&self, segment: u64) -> &Path {
        &self.paths[(segment % 2) as usize]
    }

    /// The files of the log that exist.
    pub(crate) fn existing(&self) -> io::Result<Vec<&Path>> {
        let mut existing = Vec::new();
        for path in &self.paths {
            if self.disk.path_kind(path)? != PathKind::Absent {
                existing.push(&**path);
            }
        }
        Ok(existing)
    }

    /// All bytes of the file of a segment; `None` if there is no file.
    pub(super) fn read(&self, segment: u64) -> istorage::Result<Option<Vec<u8>>> {
        let path = self.path(segment);
        let unread = |error| errors::file_system("read the log", path, error);
        let file = match self.disk.file(path, OpenMode::ReadOnly) {
            Ok(OpenFile { file, .. }) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        let len = file.len().map_err(unread)?;
        let mut bytes = vec![0; len as usize];
        file.read(0, &mut bytes).map_err(unread)?;
        Ok(Some(bytes))
    }

    /// Notes if a sync has failed.
    pub(super) fn noted(&self, synced: io::Result<()>) -> io::Result<()> {
        synced.inspect_err(|_| self.has_failed_sync.store(true, Ordering::Release))
    }

    /// A failure of the log. Nothing of a group is in it.
    pub(super) fn failure(&self, what: &str, segment: u64, error: io::Error) -> FileFailure {
        let message = format!(
            "cannot {what} the log {}: {}",
            self.path(segment).display(),
            errors::describe_io(&error)
        );
        FileFailure::new(ErrorKind::Unavailable, message)
    }
}
