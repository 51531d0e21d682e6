//! The write-ahead log of a storage file.
//!
//! A group of writes is durable when its frame is in the log and synced: this costs one sync, while
//! a commit of redb costs two syncs and the map of free pages. The rows of the group are in
//! [tables](crate::tables) in memory until the [filer](crate::filer) has written them into the
//! storage file, many groups at once.
//!
//! Two files hold the log, beside the storage file. They take turns: segment `n` is in the first
//! file if `n` is even. A segment begins with an empty frame, its *header*, which follows the last
//! frame of the segment before. The storage file names a place in the log, and has all rows up to
//! it: mostly the header of a segment. So it lacks the frames after this place in its segment, and
//! those of the segment after it, while the filer is at work.
//!
//! # Invariants
//! - The place that the storage file names is in the log, and was synced before it was named.
//! - A segment is begun only when the storage file names the segment before it. So two segments are
//!   in use at most, and a file is used again only after a durable commit that needs it no more.
//! - One frame is under way at a time. It is synced before the next one is written. So after a
//!   frame that is not intact there is no intact one, unless the disk lost synced bytes.
//! - Each frame says which segment the storage file named when the frame was written. So an older
//!   copy of the storage file beside this log is refused.
//! - No call is served after an opening before a durable commit has the rows of all frames: then a
//!   frame that only the memory of the system held is in the file, or nowhere.
//! - A frame whose write failed is overwritten and synced before anything else is written or read.
//! - After a failed sync, nothing more is written.

mod effects;
mod files;
mod frame;
mod position;
mod tail;

pub(crate) use self::{
    effects::encode,
    files::{LogFiles, LogSizes},
    frame::FrameBytes,
    position::{LogNeed, LogPosition, LogState},
    tail::{LogTail, refuse_foreign},
};
use std::{io, sync::atomic::Ordering};

use self::frame::SECTOR;
use crate::{
    disk::{OpenFile, OpenMode, PathKind, folder_of},
    errors::FileFailure,
};

/// The log of an open file, for the one writer.
pub(crate) struct WriteLog {
    files: LogFiles,
    segment: OpenFile,
    /// For how many bytes of the segment the disk has space. It is remembered, because the length
    /// comes with the times of the file, which nobody must ask for (`kind_of` in `disk/real.rs`).
    space: u64,
    position: LogPosition,
}

impl WriteLog {
    /// Begins the segment after `last` with its header. The header and the name of its file are on
    /// the disk afterwards.
    pub(crate) fn begin(files: &LogFiles, last: &LogPosition) -> Result<WriteLog, FileFailure> {
        let start = LogPosition { segment: last.segment + 1, end: 0, ..*last };
        let begin = || {
            let path = files.path(start.segment);
            let mode = match files.disk.path_kind(path)? {
                PathKind::Absent => OpenMode::New,
                _ => OpenMode::Existing,
            };
            let segment = files.disk.file(path, mode)?;
            // A large batch has made the file longer than it need be.
            let LogSizes { segment: size, growth } = files.sizes();
            let (len, most) = (segment.file.len()?, (size as u64 * 3).next_multiple_of(growth));
            if len > most {
                segment.file.set_len(most)?;
            }
            let (space, files) = (len.min(most), files.clone());
            let mut log = WriteLog { files, segment, space, position: start };
            let (position, header) = frame::empty(&start);
            log.grow(position.end)?;
            log.write(&header)?;
            // An earlier attempt may have made the file and failed before its name was on the disk.
            // A folder that cannot be opened is no failed sync.
            let sync_folder = log.files.disk.open_folder(&folder_of(path))?;
            log.files.noted(sync_folder())?;
            log.position = position;
            Ok(log)
        };
        begin().map_err(|error| files.failure("begin", start.segment, error))
    }

    /// Begins the next segment. The storage file must name the present one.
    pub(crate) fn begin_next(&mut self) -> Result<(), FileFailure> {
        self.settle()?;
        *self = WriteLog::begin(&self.files, &self.position)?;
        Ok(())
    }

    /// The place after the last frame.
    pub(crate) fn position(&self) -> LogPosition {
        self.position
    }

    /// Brings [effects](encode) to the disk.
    ///
    /// # Errors
    /// `Unavailable` if nothing of them is in the log, and `OutcomeUnknown` if nobody knows: then
    /// the log must be [settled](Self::settle) first.
    pub(crate) fn append(&mut self, effects: FrameBytes) -> Result<(), FileFailure> {
        self.settle()?;
        let (position, frame) = effects.finish(&self.position);
        // A full disk is found here, before anything is written.
        self.grow(position.end).map_err(|error| self.failure("enlarge", error))?;
        self.write(&frame).map_err(|error| self.failure("write to", error)).or_else(|failure| {
            self.files.is_unsettled.store(true, Ordering::Release);
            // What cannot be settled now is unknown.
            self.settle().map_err(|_| failure.clone().with_unknown_outcome())?;
            Err(failure)
        })?;
        self.position = position;
        Ok(())
    }

    /// Grows the segment by zeros, and syncs it then.
    ///
    /// If the space were only reserved, each sync that fills it would mark it as used, which costs
    /// a second write to the disk.
    fn grow(&mut self, end: u64) -> io::Result<()> {
        if end <= self.space {
            return Ok(());
        }
        let (file, end) = (&self.segment.file, end.next_multiple_of(self.files.sizes().growth));
        let zeros = vec![0; (end - self.space) as usize];
        // The write alone makes the file longer. A length without its zeros would look like space.
        file.write(self.space, &zeros).inspect_err(|_| drop(file.set_len(self.space)))?;
        self.space = end;
        self.files.noted(file.sync_data())
    }

    /// Writes and syncs bytes after the last frame. After an error a part of them may be there.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.segment.file.write(self.position.end, bytes)?;
        self.files.noted(self.segment.file.sync_data())
    }

    fn failure(&self, what: &str, error: io::Error) -> FileFailure {
        self.files.failure(what, self.position.segment, error)
    }

    /// Removes the frame whose write failed, if there may be one.
    pub(crate) fn settle(&self) -> Result<(), FileFailure> {
        if self.files.is_unsettled.load(Ordering::Acquire) {
            let erased = match self.files.has_failed_sync.load(Ordering::Acquire) {
                true => Err(io::Error::other("a sync has failed")),
                false => self.write(&[0; SECTOR]),
            };
            erased.map_err(|error| self.failure("write to", error))?;
            self.files.is_unsettled.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Whether the present segment is still found under its name.
    pub(crate) fn is_in_place(&self) -> bool {
        let path = self.files.path(self.position.segment);
        self.files.disk.is_in_place(path, self.segment.identity)
    }
}
