//! The tail of the log: the frames that the storage file lacks after a crash.

use std::path::Path;

use istorage::Result;

use super::{
    LogFiles, LogNeed, LogPosition, LogState, effects,
    frame::{self, Frame, SECTOR},
};
use crate::{errors, mem_table::MemTable, time::Moment};

/// The rows after the place that a file names, from frames that are all intact.
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
        let (named, needs_log) = (state.position, state.need == LogNeed::Needed);
        let path = files.path(named.segment);
        let mut tail = LogTail { rows: MemTable::default(), time: None, last: named };
        let segment = match files.read(named.segment)? {
            Some(segment) => segment,
            None if !needs_log => Vec::new(),
            None => return Err(errors::missing_log(path)),
        };
        // The frames before the named one are in the file.
        let mut places = (0..segment.len().min(named.end as usize)).step_by(SECTOR);
        let is_named =
            |at| frame::parse(&segment, at, named.log).is_some_and(|frame| frame.position == named);
        if places.any(is_named) {
            tail.follow(files, &segment, named.end as usize, &named)?;
        } else if needs_log {
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
            // A frame says which segment the file named when it was written. The frames of a former
            // version do not: there the file named their segment.
            if notes.filed.unwrap_or(frame.position.segment) > named.segment {
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
    /// The header of a segment is no such frame. After a sync that failed, a driver may read
    /// a frame that only the memory of the system has, and begin a segment after it. If the power
    /// fails before the file has the rows of this frame, the header is left without it. Nothing in
    /// a segment without a second frame was acknowledged.
    fn refuse_later(&self, path: &Path, file: &[u8], named: &LogPosition) -> Result<()> {
        let found = |at: usize| Some((at, frame::parse(file, at, self.last.log)?.position));
        let mut frames = (0..file.len()).step_by(SECTOR).filter_map(found);
        let is_later = |at: usize, found: &LogPosition| {
            let segments = self.last.segment..=self.last.segment + 1;
            let is_header = at == 0 && segments.contains(&found.segment);
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
        // After a crash the first frame of a new log may be there.
        if files.read(segment)?.is_some_and(|file| frame::has_two_frames(&file)) {
            return Err(errors::other_log(files.path(segment)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, sync::Arc};

    use bytes::Bytes;
    use istorage::KeyspaceName;

    use super::*;
    use crate::{
        disk::real::RealDisk,
        log::{LogNeed, LogSizes, frame::FrameBytes},
    };

    /// The two files of a log, as a writer would leave them.
    struct Log {
        folder: tempfile::TempDir,
        files: [Vec<u8>; 2],
        last: LogPosition,
    }

    impl Log {
        fn new() -> Log {
            let (folder, files) = (tempfile::tempdir().unwrap(), Default::default());
            Log { folder, files, last: LogPosition::new(7) }
        }

        fn write(&mut self, frame: (LogPosition, Vec<u8>)) -> LogPosition {
            let file = &mut self.files[(frame.0.segment % 2) as usize];
            let at = frame.0.end as usize - frame.1.len();
            file.resize(file.len().max(at + frame.1.len()), 0);
            file[at..at + frame.1.len()].copy_from_slice(&frame.1);
            self.last = frame.0;
            self.last
        }

        /// Begins the next segment.
        fn begin(&mut self) -> LogPosition {
            let start = LogPosition { segment: self.last.segment + 1, end: 0, ..self.last };
            self.write(frame::empty(&start))
        }

        /// Writes a frame with one row, when the storage file names a segment.
        fn row(&mut self, key: &'static str, named: u64) -> LogPosition {
            let mut rows = MemTable::default();
            let keyspace = KeyspaceName::new("tests").unwrap();
            rows.set(&keyspace, Bytes::from(key), Some(Bytes::from("row")));
            let frame = effects::encode(&rows, Moment(5), named).finish(&self.last);
            self.write(frame)
        }

        /// Removes the frame that ends at a place.
        fn lose(&mut self, place: LogPosition) {
            let file = &mut self.files[(place.segment % 2) as usize];
            file[place.end as usize - SECTOR..place.end as usize].fill(0);
        }

        /// The keys of the rows that a storage file lacks.
        fn lacks(&self, position: LogPosition, need: LogNeed) -> Result<Vec<String>> {
            let path: PathBuf = self.folder.path().join("node.redb");
            let sizes = LogSizes::default();
            let files = LogFiles::new(Arc::new(RealDisk), &path, sizes, Arc::default());
            for (segment, bytes) in [0, 1].iter().zip(&self.files) {
                fs::write(files.path(*segment), bytes).unwrap();
            }
            let tail = LogTail::read(&files, &LogState { position, need })?;
            let rows = tail.rows.keyspaces().flat_map(|(_, rows)| rows.keys());
            Ok(rows.map(|key| String::from_utf8(key.to_vec()).unwrap()).collect())
        }
    }

    fn refused(lacks: Result<Vec<String>>, word: &str) {
        let error = lacks.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }

    /// The filer was at work when the node crashed.
    #[test]
    fn the_frames_of_two_segments_are_read() {
        let mut log = Log::new();
        let named = log.begin();
        log.row("a", 1);
        log.begin();
        log.row("b", 1);
        assert_eq!(log.lacks(named, LogNeed::Needed).unwrap(), ["a", "b"]);
    }

    /// A segment could not be begun after its header was written, so the one before went on.
    #[test]
    fn a_header_that_was_not_used_is_left_out() {
        let mut log = Log::new();
        let named = log.begin();
        let last = log.row("a", 1);
        log.begin();
        log.last = last;
        log.row("b", 1);
        assert_eq!(log.lacks(named, LogNeed::Needed).unwrap(), ["a", "b"]);
    }

    /// After a sync that failed, a driver read a header that only the memory of the system had, and
    /// the file got its place. Then the power failed, and the disk had the header of an earlier
    /// driver in its place. The log was refused as damaged.
    #[test]
    fn another_header_in_the_place_of_the_named_one_is_left_out() {
        let mut log = Log::new();
        log.begin();
        let last = log.row("a", 1);
        let lost = log.row("b", 1);
        log.begin();
        log.lose(lost);
        let (named, _) = frame::empty(&LogPosition { segment: last.segment + 1, end: 0, ..last });
        assert_eq!(log.lacks(named, LogNeed::Repeated).unwrap(), [""; 0]);
        log.row("c", 1);
        refused(log.lacks(named, LogNeed::Repeated), "is damaged at byte");
    }

    #[test]
    fn a_lost_frame_before_another_one_is_damage_in_both_segments() {
        let mut log = Log::new();
        let named = log.begin();
        let lost = log.row("a", 1);
        log.begin();
        log.lose(lost);
        assert_eq!(log.lacks(named, LogNeed::Needed).unwrap(), [""; 0], "it was the last one");
        log.row("b", 1);
        refused(log.lacks(named, LogNeed::Needed), "is damaged at byte");
    }

    /// The storage file is older than its log: it named the second segment before.
    #[test]
    fn a_frame_that_names_a_later_segment_refuses_the_file() {
        let mut log = Log::new();
        let named = log.begin();
        log.row("a", 1);
        log.begin();
        log.row("b", 2);
        refused(log.lacks(named, LogNeed::Needed), "does not belong");
        refused(log.lacks(named, LogNeed::Closed), "does not belong");
    }

    /// The former version wrote no frame in a segment before the file named it, and its frames do
    /// not say so. Rows that it committed without a frame would be missing.
    #[test]
    fn a_frame_of_the_former_version_in_the_next_segment_refuses_the_file() {
        let mut log = Log::new();
        let named = log.begin();
        log.write(frame::empty(&log.last));
        log.row("a", 1);
        let header = log.begin();
        assert_eq!(log.lacks(named, LogNeed::Needed).unwrap(), ["a"]);
        log.write(FrameBytes::with_capacity(0).finish(&header));
        refused(log.lacks(named, LogNeed::Needed), "does not belong");
    }

    #[test]
    fn a_file_that_needs_no_log_is_refused_beside_a_later_one() {
        let mut log = Log::new();
        log.begin();
        let closed = log.row("a", 1);
        log.begin();
        assert_eq!(log.lacks(closed, LogNeed::Closed).unwrap(), [""; 0]);
        log.row("b", 2);
        refused(log.lacks(closed, LogNeed::Closed), "does not belong");
    }
}
