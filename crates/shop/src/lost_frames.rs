//! A crash of redb that loses writes.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The unit of the log of redb, and the first bytes of a frame.
const SECTOR: usize = 512;
const MAGIC: &[u8] = b"VVML";

/// Removes the last frames of the log beside a redb file that nobody has open. Afterwards the files
/// look as if a driver had answered writes before their frames were on the disk.
///
/// # Panics
/// If the log cannot be read or written, or has no frame with a write.
pub fn lose_last_frames(file: &Path, frames: usize) {
    let logs = [".log-0", ".log-1"].map(|ending| {
        let path = PathBuf::from(format!("{}{ending}", file.display()));
        let bytes = fs::read(&path).unwrap_or_default();
        let places = (0..bytes.len()).step_by(SECTOR).filter(|at| bytes[*at..].starts_with(MAGIC));
        (places.collect::<Vec<_>>(), path, bytes)
    });
    // The file that is in use has more frames. The first two of them are empty.
    let [one, two] = logs;
    let (places, path, mut bytes) = if one.0.len() > two.0.len() { one } else { two };
    let written = places.get(2..).expect("the log has a frame");
    let first = written[written.len().saturating_sub(frames)];
    bytes[first..].fill(0);
    fs::write(path, bytes).expect("the log can be written");
}
