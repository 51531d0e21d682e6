//! The starts of the node, which its folder remembers. A node that starts again and again gets no
//! partitions from other nodes.

use std::{fs, io, path::Path, time::Duration};

use clock::WallTime;
use tracing::warn;

/// The name of the file. Each line is the time of a start, in seconds since 1970.
const FILE: &str = "starts";

/// How long a start is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The most starts that are remembered.
const STARTS_MAX: usize = 10;

/// Notes a start of the node. Returns the time from each earlier start to this one.
///
/// If the file cannot be read or written, the node still starts.
pub(super) fn note_start(folder: &Path, now: WallTime) -> Vec<Duration> {
    let noted = read(folder, now).and_then(|earlier| {
        write(folder, now, &earlier)?;
        Ok(earlier)
    });
    noted.unwrap_or_else(|error| {
        warn!(folder = %folder.display(), %error, "start not noted");
        Vec::new()
    })
}

fn read(folder: &Path, now: WallTime) -> io::Result<Vec<Duration>> {
    let text = match fs::read_to_string(folder.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let now = now.as_millis() / 1_000;
    // A line that makes no sense, or that a wrong clock wrote, is skipped.
    let before = |line: &str| Some(Duration::from_secs(now.checked_sub(line.parse().ok()?)?));
    let mut earlier: Vec<_> = text.lines().filter_map(before).collect();
    earlier.retain(|before| *before < REMEMBERED);
    earlier.sort_unstable();
    earlier.truncate(STARTS_MAX);
    Ok(earlier)
}

fn write(folder: &Path, now: WallTime, earlier: &[Duration]) -> io::Result<()> {
    let now = now.as_millis() / 1_000;
    let starts = [Duration::ZERO].iter().chain(earlier).map(|before| now - before.as_secs());
    let lines: String = starts.map(|at| format!("{at}\n")).collect();
    fs::create_dir_all(folder)?;
    fs::write(folder.join(FILE), lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> WallTime {
        WallTime::from_millis(seconds * 1_000)
    }

    #[test]
    fn the_starts_of_the_last_ten_minutes_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("data");
        let note =
            |now| note_start(&folder, at(now)).iter().map(Duration::as_secs).collect::<Vec<_>>();
        assert_eq!(note(10_000), [0_u64; 0]);
        assert_eq!(note(10_005), [5]);
        assert_eq!(note(10_601), [596]);
        assert_eq!(note(10_602), [1, 597]);
        assert_eq!(note(9_000), [0_u64; 0], "a clock that was set back");
    }

    #[test]
    fn a_file_that_makes_no_sense_does_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "x\n-1\n99\n\n").unwrap();
        assert_eq!(note_start(folder.path(), at(100)), [Duration::from_secs(1)]);
        fs::write(folder.path().join(FILE), [0xff, 0xfe]).unwrap();
        assert!(note_start(folder.path(), at(100)).is_empty());
    }
}
