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
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use self::files::SegmentFile;
use crate::errors::FileFailure;

/// The log of an open file, for the one writer.
#[derive(Debug)]
pub(crate) struct WriteLog {
    files: LogFiles,
    segment: SegmentFile,
    position: LogPosition,
    /// Whether the place after the last frame may have a frame that was not acknowledged.
    is_unsettled: Arc<AtomicBool>,
}

impl WriteLog {
    /// Begins the segment after `last`.
    pub(crate) fn begin(files: LogFiles, last: &LogPosition) -> Result<WriteLog, FileFailure> {
        let (segment, position) = files.begin_segment(last)?;
        Ok(WriteLog { files, segment, position, is_unsettled: Arc::default() })
    }

    /// Begins the next segment. The storage file must name the present one.
    pub(crate) fn begin_next(&mut self) -> Result<(), FileFailure> {
        self.settle()?;
        let (segment, position) = self.files.begin_segment(&self.position)?;
        (self.segment, self.position) = (segment, position);
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
        self.files.allocate(&mut self.segment, &self.position, position.end)?;
        self.files.write(&self.segment, &self.position, &frame).or_else(|failure| {
            self.is_unsettled.store(true, Ordering::Release);
            // What cannot be settled now is unknown.
            self.settle().map_err(|_| failure.clone().with_unknown_outcome())?;
            Err(failure)
        })?;
        self.position = position;
        Ok(())
    }

    /// Removes the frame whose write failed, if there may be one.
    pub(crate) fn settle(&mut self) -> Result<(), FileFailure> {
        if self.is_unsettled() {
            self.files.erase(&self.segment, &self.position)?;
            self.is_unsettled.store(false, Ordering::Release);
        }
        Ok(())
    }

    fn is_unsettled(&self) -> bool {
        self.is_unsettled.load(Ordering::Acquire)
    }

    /// Becomes true while nobody knows which rows the log has.
    pub(crate) fn unsettled(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_unsettled)
    }

    /// Whether the present segment is still found under its name.
    pub(crate) fn is_in_place(&self) -> bool {
        self.files.is_in_place(&self.segment, &self.position)
    }
}
