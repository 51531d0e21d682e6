//! The two files of a log.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use istorage::ErrorKind;

use super::{frame, position::LogPosition};
use crate::{
    disk::{Disk, LogFile, OpenMode, PathKind, folder_of},
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

/// The open file of a segment.
#[derive(Debug)]
pub(super) struct SegmentFile {
    opened: LogFile,
    /// For how many bytes the disk has space.
    space: u64,
}

/// The files of the log of one storage file.
#[derive(Clone)]
pub(crate) struct LogFiles {
    disk: Arc<dyn Disk>,
    paths: [PathBuf; 2],
    sizes: LogSizes,
    has_failed_sync: Arc<AtomicBool>,
}

impl fmt::Debug for LogFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogFiles").field(&self.paths).finish()
    }
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
        LogFiles { disk, paths, sizes, has_failed_sync }
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
        let file = match self.disk.log(path, OpenMode::ReadOnly) {
            Ok(LogFile { file, .. }) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        let len = file.len().map_err(unread)?;
        let mut bytes = vec![0; len as usize];
        file.read(0, &mut bytes).map_err(unread)?;
        Ok(Some(bytes))
    }

    /// Begins the segment after `last` with its header. The header and the name of its file are on
    /// the disk afterwards.
    pub(super) fn begin_segment(
        &self,
        last: &LogPosition,
    ) -> Result<(SegmentFile, LogPosition), FileFailure> {
        let start = LogPosition { segment: last.segment + 1, end: 0, ..*last };
        let (position, header) = frame::empty(&start);
        let path = self.path(start.segment);
        let begin = || {
            let mode = match self.disk.path_kind(path)? {
                PathKind::Absent => OpenMode::New,
                _ => OpenMode::Existing,
            };
            let opened = self.disk.log(path, mode)?;
            let mut segment = SegmentFile { space: opened.file.len()?, opened };
            // A large batch has made the file longer than it need be.
            let most = (self.sizes.segment as u64 * 3).next_multiple_of(self.sizes.growth);
            if segment.space > most {
                segment.opened.file.set_len(most)?;
                segment.space = most;
            }
            self.grow(&mut segment, position.end)?;
            segment.opened.file.write(0, &header)?;
            self.sync(&segment)?;
            // An earlier attempt may have made the file and failed before its name was on the disk.
            // A folder that cannot be opened is no failed sync.
            let sync_folder = self.disk.open_folder(&folder_of(path))?;
            self.noted(sync_folder())?;
            Ok(segment)
        };
        let segment = begin().map_err(|error| self.failure("begin", path, error))?;
        Ok((segment, position))
    }

    /// Gives the file of the segment space up to `end`.
    pub(super) fn allocate(
        &self,
        segment: &mut SegmentFile,
        last: &LogPosition,
        end: u64,
    ) -> Result<(), FileFailure> {
        let grown = self.grow(segment, end).and_then(|has_grown| match has_grown {
            true => self.sync(segment),
            false => Ok(()),
        });
        grown.map_err(|error| self.failure("enlarge", self.path(last.segment), error))
    }

    /// Grows a file by zeros. Returns whether it has grown: then it must be synced.
    ///
    /// If the space were only reserved, each sync that fills it would mark it as used, which costs
    /// a second write to the disk.
    fn grow(&self, segment: &mut SegmentFile, end: u64) -> io::Result<bool> {
        let SegmentFile { opened: LogFile { file, .. }, space } = segment;
        if end <= *space {
            return Ok(false);
        }
        let end = end.next_multiple_of(self.sizes.growth);
        let zeros = vec![0; (end - *space) as usize];
        // The write alone makes the file longer. A length without its zeros would look like space.
        file.write(*space, &zeros).inspect_err(|_| drop(file.set_len(*space)))?;
        *space = end;
        Ok(true)
    }

    /// Writes and syncs a frame after `last`. After an error a part of the frame may be in the log.
    pub(super) fn write(
        &self,
        segment: &SegmentFile,
        last: &LogPosition,
        frame: &[u8],
    ) -> Result<(), FileFailure> {
        let written = segment.opened.file.write(last.end, frame).and_then(|()| self.sync(segment));
        written.map_err(|error| self.failure("write to", self.path(last.segment), error))
    }

    /// Makes sure that no frame is after `last`. The file has space there.
    pub(super) fn erase(
        &self,
        segment: &SegmentFile,
        last: &LogPosition,
    ) -> Result<(), FileFailure> {
        if self.has_failed_sync.load(Ordering::Acquire) {
            let error = io::Error::other("a sync has failed");
            return Err(self.failure("write to", self.path(last.segment), error));
        }
        self.write(segment, last, &[0; frame::SECTOR])
    }

    fn sync(&self, segment: &SegmentFile) -> io::Result<()> {
        self.noted(segment.opened.file.sync_data())
    }

    fn noted(&self, synced: io::Result<()>) -> io::Result<()> {
        synced.inspect_err(|_| self.has_failed_sync.store(true, Ordering::Release))
    }

    pub(super) fn is_in_place(&self, segment: &SegmentFile, last: &LogPosition) -> bool {
        match self.disk.path_kind(self.path(last.segment)) {
            Ok(PathKind::File { identity, .. }) => identity == segment.opened.identity,
            Ok(_) => false,
            // An error says nothing about the file.
            Err(_) => true,
        }
    }

    /// A failure of the log. Nothing of a group is in it.
    fn failure(&self, what: &str, path: &Path, error: io::Error) -> FileFailure {
        let message = format!("cannot {what} the log {}: {}", path.display(), describe(&error));
        FileFailure::new(ErrorKind::Unavailable, message)
    }
}

/// Describes an error of the file system for an operator.
fn describe(error: &io::Error) -> String {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => format!("the disk is full ({error})"),
        _ => error.to_string(),
    }
}
