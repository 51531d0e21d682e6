//! The frames in the files of a log, as a test sees them from outside.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A storage file and its log.
pub(crate) const NAMES: [&str; 3] = ["node.redb", "node.redb.log-0", "node.redb.log-1"];

/// The file of the log that was written last.
pub(crate) fn log_in_use(folder: &Path) -> PathBuf {
    let frames = |name: &str| fs::read(folder.join(name)).map_or(0, |bytes| places(&bytes).len());
    let used = NAMES[1..].iter().max_by_key(|name| frames(name)).unwrap();
    folder.join(used)
}

/// The places of frames in a file of the log.
pub(crate) fn places(log: &[u8]) -> Vec<usize> {
    (0..log.len()).step_by(512).filter(|at| log[*at..].starts_with(b"VVML")).collect()
}

/// Removes the frames of the log from this one on. A segment begins with an empty frame.
pub(crate) fn lose_frames_from(folder: &Path, first: impl FnOnce(usize) -> usize) {
    let log = log_in_use(folder);
    let mut bytes = fs::read(&log).unwrap();
    let places = places(&bytes);
    if let Some(lost) = places.get(first(places.len())) {
        bytes[*lost..].fill(0);
        fs::write(log, bytes).unwrap();
    }
}
