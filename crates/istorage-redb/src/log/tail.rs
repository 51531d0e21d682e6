//! The tail of the log: the frames that the storage file lacks after a crash.

use std::path::Path;

use istorage::Result;

use super::{
    LogFiles, LogPosition, LogState, effects,
    frame::{self, Frame, SECTOR},
};
use crate::{errors, mem_table::MemTable, time::Moment};

/// The rows after the place that a file names, from frames that are all intact.
#[derive(Debug)]
pub(crate) struct LogTail {
    pub(crate) rows: MemTable,
    /// The time of the last frame that has one.
    pub(crate) time: Option<Moment>,
    /// The place after the last frame.
    pub(crate) last: LogPosition,
}

impl LogTail {
    /// The beginning of a new log. `log` is its number.
    pub(crate) fn new(log: u64) -> LogTail {
        LogTail { rows: MemTable::default(), time: None, last: LogPosition::new(log) }
    }

    /// Reads the log of a file with this state.
    ///
    /// # Errors
    /// `Corrupt` if the log does not have the frame that the state names, if a frame is damaged
    /// although a later one is intact, or if the log has been written beside a later state of the
    /// file. A crash may cut off the last frame of a log, which was not acknowledged then. A
    /// damaged last frame looks the same, so it ends the log.
    pub(crate) fn read(files: &LogFiles, state: &LogState) -> Result<LogTail> {
        let LogState { position: named, is_closed } = *state;
        let path = files.path(named.segment);
        let mut tail = LogTail { rows: MemTable::default(), time: None, last: named };
        let segment = match files.read(named.segment)? {
            Some(segment) => segment,
            None if is_closed => return Ok(tail),
            None => return Err(errors::missing_log(path)),
        };
        // The frames before the named one are in the file.
        let mut places = (0..segment.len().min(named.end as usize)).step_by(SECTOR);
        let is_named =
            |at| frame::parse(&segment, at, named.log).is_some_and(|frame| frame.position == named);
        if places.any(is_named) {
            tail.follow(files, &segment, named.end as usize, &named)?;
        } else if !is_closed {
            return Err(errors::other_log(path));
        }
        // The next segment begins with a header that follows the last frame of this one.
        let next = files.read(named.segment + 1)?.unwrap_or_default();
        if let Some(header) = frame::parse(&next, 0, named.log)
            && header.position.segment == named.segment + 1
            && tail.is_next(&header)
        {
            tail.last = header.position;
            tail.follow(files, &next, header.position.end as usize, &named)?;
        }
        for (segment, file) in [(named.segment, &segment), (named.segment + 1, &next)] {
            tail.refuse_later(files.path(segment), file, &named)?;
        }
        Ok(tail)
    }

    /// Takes the frames of the last segment from `at` on.
    fn follow(
        &mut self,
        files: &LogFiles,
        segment: &[u8],
        mut at: usize,
        named: &LogPosition,
    ) -> Result<()> {
        while let Some(frame) = frame::parse(segment, at, named.log)
            && frame.position.segment == self.last.segment
            && self.is_next(&frame)
        {
            let notes = effects::decode(&segment[frame.payload], &mut self.rows)?;
            if notes.filed.is_some_and(|filed| filed > named.segment) {
                return Err(errors::other_log(files.path(self.last.segment)));
            }
            self.time = notes.time.or(self.time);
            (self.last, at) = (frame.position, frame.position.end as usize);
        }
        Ok(())
    }

    /// Whether a frame was written just after the last one.
    fn is_next(&self, frame: &Frame) -> bool {
        frame.position.number == self.last.number + 1 && frame.before == self.last.checksum
    }

    /// Refuses a log with an intact frame after the last one. Such a frame was written after a
    /// frame that is no longer intact, or beside a later state of the file.
    ///
    /// The header of the next segment is no such frame. After a sync that failed, a driver may read
    /// a frame that only the memory of the system has, and begin a segment after it. If the power
    /// fails before the file has the rows of this frame, the header is left without it. Nothing in
    /// a segment without a second frame was acknowledged.
    fn refuse_later(&self, path: &Path, file: &[u8], named: &LogPosition) -> Result<()> {
        let found = |at: usize| Some((at, frame::parse(file, at, self.last.log)?.position));
        let mut frames = (0..file.len()).step_by(SECTOR).filter_map(found);
        let is_later = |at: usize, found: &LogPosition| {
            let is_header = at == 0 && found.segment == self.last.segment + 1;
            found.number > self.last.number && !is_header
        };
        match frames.find(|(at, found)| is_later(*at, found)) {
            Some((_, later)) if later.segment > named.segment + 1 => Err(errors::other_log(path)),
            Some((at, _)) => Err(errors::damaged_log(path, self.last.end, at)),
            None => Ok(()),
        }
    }
}

/// Refuses the files of a log if a storage file has named one of their segments. The storage file
/// here names none.
pub(crate) fn refuse_foreign(files: &LogFiles) -> Result<()> {
    for segment in [0, 1] {
        let is_named = |file: &Vec<u8>| {
            frame::log_of(file).is_some_and(|log| frame::has_two_frames(file, log))
        };
        // After a crash the first frame of a new log may be there.
        if files.read(segment)?.as_ref().is_some_and(is_named) {
            return Err(errors::other_log(files.path(segment)));
        }
    }
    Ok(())
}
