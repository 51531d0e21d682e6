//! Mistakes of a driver with its log. Each of them must be found.
//!
//! The code that reads the log is private to the driver. So a defect changes the files before the
//! driver opens them, to make the right code do what the wrong code would do: a reader that stops
//! early finds no later frames, and a reader that checks nothing finds nothing wrong.

use std::{cell::Cell, fs, path::Path};

use clock::Clock;
use futures::FutureExt;
use istorage::Error;
use istorage_redb::{RedbConfig, RedbDriver};
use tck::trial::finding_of;

use super::{
    META,
    frames::{NAMES, lose_frames_from, places},
};

/// The number of bytes of a frame before its payload.
const HEAD: usize = 36;

/// A mistake of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogDefect {
    /// A write is answered before its frame is on the disk. A crash loses the last one.
    LastFrameLost,
    /// An opening does the effects of the first frame only. A segment begins with an empty frame,
    /// and one more after a keyspace was made.
    OnlyFirstFrame,
    /// The checksums of frames are not compared.
    ChecksumIgnored,
    /// A log that does not fit is left out, and the file is opened without it.
    NothingRefused,
    /// An opening that is refused leaves an empty log.
    RefusedLogChanged,
}

thread_local! {
    /// The defect of the driver. The runtime of a test runs on the thread of the test.
    static DEFECT: Cell<Option<LogDefect>> = const { Cell::new(None) };
}

/// What a crash leaves.
pub(crate) fn crashed(folder: &Path) {
    match DEFECT.get() {
        Some(LogDefect::LastFrameLost) => lose_frames_from(folder, |count| count - 1),
        Some(LogDefect::OnlyFirstFrame) => lose_frames_from(folder, |_| 3),
        _ => {}
    }
}

/// Opens the storage file of a folder.
pub(crate) async fn open(folder: &Path) -> Result<RedbDriver, Error> {
    let config = RedbConfig::new(folder.join(NAMES[0]));
    if DEFECT.get() == Some(LogDefect::ChecksumIgnored) {
        NAMES[1..].iter().for_each(|name| correct_checksums(&folder.join(name)));
    }
    let opened = RedbDriver::open(config.clone(), Clock::system()).await;
    match (DEFECT.get(), &opened) {
        (Some(LogDefect::NothingRefused), Err(_)) => {
            leave_out_log(folder);
            RedbDriver::open(config, Clock::system()).await
        }
        (Some(LogDefect::RefusedLogChanged), Err(_)) => {
            fs::write(folder.join(NAMES[1]), "").unwrap();
            opened
        }
        _ => opened,
    }
}

fn correct_checksums(log: &Path) {
    let Ok(mut bytes) = fs::read(log) else { return };
    for at in places(&bytes) {
        let len = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
        let end = at + HEAD + len as usize;
        let checksum = crc32fast::hash(&bytes[at..end]);
        bytes[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
    }
    fs::write(log, bytes).unwrap();
}

/// Gives a storage file the format that had no log.
fn leave_out_log(folder: &Path) {
    for name in &NAMES[1..] {
        let _ = fs::remove_file(folder.join(name));
    }
    if folder.join(NAMES[0]).exists() {
        let database = redb::Database::create(folder.join(NAMES[0])).unwrap();
        let txn = database.begin_write().unwrap();
        let mut meta = txn.open_table(META).unwrap();
        meta.insert("format", &2_u32.to_be_bytes()[..]).unwrap();
        meta.remove("log").unwrap();
        drop(meta);
        txn.commit().unwrap();
    }
}

/// A defect, a test that must find it, and a part of the finding.
type Found = (LogDefect, fn(), &'static str);

const ALL: [Found; 12] = [
    (
        LogDefect::LastFrameLost,
        super::after_a_crash_the_effects_of_the_log_are_there_and_stay,
        "a check reads the log too",
    ),
    (
        LogDefect::OnlyFirstFrame,
        super::after_a_crash_the_effects_of_the_log_are_there_and_stay,
        "a check reads the log too",
    ),
    (
        LogDefect::OnlyFirstFrame,
        super::large_writes_and_full_segments_are_there_after_a_crash,
        "left: [0, 1, 2",
    ),
    (
        LogDefect::ChecksumIgnored,
        super::a_last_frame_that_is_not_intact_ends_the_log,
        "the row 0x70/0x00000003 of the keyspace `tests` is damaged",
    ),
    (
        LogDefect::ChecksumIgnored,
        super::a_damaged_frame_in_front_of_an_intact_one_is_refused_with_its_place,
        "is not in: the log",
    ),
    (
        LogDefect::NothingRefused,
        super::a_log_that_is_missing_is_refused_until_it_is_back,
        "it is refused",
    ),
    (LogDefect::NothingRefused, super::a_log_of_another_file_is_refused, "it is refused"),
    (
        LogDefect::NothingRefused,
        super::a_file_that_is_older_than_a_log_without_rows_is_refused,
        "it is refused",
    ),
    (
        LogDefect::NothingRefused,
        super::a_log_that_is_older_or_newer_than_its_file_is_refused,
        "it is refused",
    ),
    (
        LogDefect::NothingRefused,
        super::a_damaged_frame_in_front_of_an_intact_one_is_refused_with_its_place,
        "it is refused",
    ),
    (LogDefect::NothingRefused, super::a_log_without_its_file_is_refused, "it is refused"),
    (
        LogDefect::RefusedLogChanged,
        super::a_log_that_is_older_or_newer_than_its_file_is_refused,
        "the files were changed",
    ),
];

#[test]
fn every_mistake_is_found() {
    let mut wrong = Vec::new();
    for (defect, test, expected) in ALL {
        DEFECT.set(Some(defect));
        let found = finding_of(async { test() }).now_or_never().expect("a test has a runtime");
        DEFECT.set(None);
        if !found.as_ref().is_some_and(|found| found.contains(expected)) {
            wrong.push(format!("{defect:?}: expected `{expected}`, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
