//! The tail of the log: the frames that the storage file lacks after a crash.

use std::ops::Range;

use istorage::Result;
use redb::Database;

use super::{
    LogFiles, LogPosition, LogState, commit_in_memory, effects,
    frame::{self, SECTOR},
    note,
};
use crate::errors::{self, FileFailure};

/// The least size of the effects that one transaction of a replay does.
const REPLAY_BYTES: usize = 1 << 20;

/// The frames after the state of a file, all intact.
#[derive(Debug)]
pub(crate) struct LogTail {
    segment: Vec<u8>,
    /// The place after each frame, and the place of its effects in the segment.
    frames: Vec<(LogPosition, Range<usize>)>,
    last: LogPosition,
}

impl LogTail {
    /// Reads the log of a file with this state.
    ///
    /// # Errors
    /// `Corrupt` if the log does not have the frame that the state names, or if a frame is damaged
    /// although a later one is intact. A crash may cut off the last frame of a log, which was not
    /// acknowledged then. A damaged last frame looks the same, so it ends the log.
    pub(crate) fn read(files: &LogFiles, state: &LogState) -> Result<LogTail> {
        let LogState { position: named, is_closed } = *state;
        let path = files.path(named.segment);
        let segment = match files.read(named.segment)? {
            Some(segment) => segment,
            None if is_closed => return Ok(LogTail::empty(named)),
            None => return Err(errors::missing_log(path)),
        };
        // The frames before the named one are in the file.
        let mut places = (0..segment.len().min(named.end as usize)).step_by(SECTOR);
        let is_named =
            |at| frame::parse(&segment, at, named.log).is_some_and(|frame| frame.position == named);
        if !places.any(is_named) || is_newer(files, &named)? {
            return Err(errors::other_log(path));
        }
        let (mut frames, mut last) = (Vec::new(), named);
        while let Some(frame) = frame::parse(&segment, last.end as usize, named.log) {
            let found = frame.position;
            let follows = found.segment == last.segment
                && found.number == last.number + 1
                && frame.before == last.checksum;
            if !follows {
                break;
            }
            frames.push((found, frame.payload));
            last = found;
        }
        if let Some(later) = later_frame(&segment, &last) {
            return Err(errors::damaged_log(path, last.end, later));
        }
        Ok(LogTail { segment, frames, last })
    }

    fn empty(last: LogPosition) -> LogTail {
        LogTail { segment: Vec::new(), frames: Vec::new(), last }
    }

    /// The place after the last frame.
    pub(crate) fn last(&self) -> LogPosition {
        self.last
    }

    /// Does the effects of all frames, in memory only.
    pub(crate) fn replay(&self, database: &Database) -> Result<()> {
        let mut frames = self.frames.iter().peekable();
        while frames.peek().is_some() {
            let txn = database.begin_write().map_err(FileFailure::from)?;
            let (mut bytes, mut last) = (0, None);
            while bytes < REPLAY_BYTES
                && let Some((position, effects)) = frames.next()
            {
                effects::apply(&txn, &self.segment[effects.clone()])?;
                (bytes, last) = (bytes + effects.len(), Some(*position));
            }
            if let Some(last) = last {
                note(&txn, last, false)?;
            }
            commit_in_memory(txn)?;
        }
        Ok(())
    }
}

/// The place of an intact frame of the segment after its last frame. Such a frame was written after
/// a frame that is no longer intact.
fn later_frame(segment: &[u8], last: &LogPosition) -> Option<usize> {
    let behind = (last.end as usize..segment.len()).step_by(SECTOR);
    behind.into_iter().find(|at| {
        frame::parse(segment, *at, last.log).is_some_and(|frame| {
            let found = frame.position;
            found.segment == last.segment && found.number > last.number
        })
    })
}

/// Whether a later storage file has named a segment after this one. A crash leaves at most the
/// first frame of such a segment.
fn is_newer(files: &LogFiles, named: &LogPosition) -> Result<bool> {
    let next = files.read(named.segment + 1)?;
    let later = next.and_then(|next| frame::named_segment(&next, named.log));
    Ok(later.is_some_and(|later| later > named.segment))
}

/// Refuses the files of a log if a storage file has named one of their segments. The storage file
/// here names none.
pub(crate) fn refuse_foreign(files: &LogFiles) -> Result<()> {
    for segment in [0, 1] {
        let is_named = |file: &Vec<u8>| {
            frame::log_of(file).and_then(|log| frame::named_segment(file, log)).is_some()
        };
        // After a crash the first frame of a new log may be there.
        if files.read(segment)?.as_ref().is_some_and(is_named) {
            return Err(errors::other_log(files.path(segment)));
        }
    }
    Ok(())
}
