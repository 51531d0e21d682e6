//! A failure of the whole storage file.

use std::{fmt, io, path::Path};

use istorage::{Error, ErrorKind};

/// The advice to an operator who has a damaged file.
pub(crate) const RESTORE: &str =
    "stop the node, check the file with `vvm storage check`, and restore it from a backup";

/// A failure of the file, to be reported to several callers.
#[derive(Clone, Debug)]
pub(crate) struct FileFailure {
    kind: ErrorKind,
    message: String,
}

impl FileFailure {
    pub(crate) fn new(kind: ErrorKind, message: String) -> FileFailure {
        FileFailure { kind, message }
    }

    /// A failure because a page that every write needs is damaged.
    pub(crate) fn damaged(why: impl fmt::Display) -> FileFailure {
        let message = format!("the storage file is damaged: {why}; {RESTORE}");
        FileFailure::new(ErrorKind::Corrupt, message)
    }

    /// The same failure of a write that may have been done.
    pub(crate) fn with_unknown_outcome(self) -> FileFailure {
        FileFailure { kind: ErrorKind::OutcomeUnknown, ..self }
    }

    /// The same failure of a write that was certainly not done.
    pub(crate) fn with_known_outcome(self) -> FileFailure {
        match self.is_unknown() {
            true => FileFailure { kind: ErrorKind::Unavailable, ..self },
            false => self,
        }
    }

    /// Whether nobody knows if a write was done.
    pub(crate) fn is_unknown(&self) -> bool {
        self.kind == ErrorKind::OutcomeUnknown
    }

    /// Whether a page is damaged, as opposed to a disk that failed.
    pub(crate) fn is_damage(&self) -> bool {
        self.kind == ErrorKind::Corrupt
    }

    /// Nothing was written, and the storage could not answer. The kind is `Corrupt` if redb found
    /// damage.
    pub(crate) fn unavailable(error: redb::Error) -> FileFailure {
        let kind = match error {
            redb::Error::Corrupted(_) => ErrorKind::Corrupt,
            _ => ErrorKind::Unavailable,
        };
        let message = format!("the storage file failed: {}", describe(&error));
        FileFailure { kind, message }
    }

    /// A sync failed, so the data written since the last sync may be lost. The system still shows
    /// the data in reads, until the file is opened again.
    pub(crate) fn failed_sync(path: &Path) -> FileFailure {
        let path = path.display();
        let message = format!(
            "a sync of the storage file {path} or of its log failed, and nothing more is written: restart the node, which \
             then reads what the disk has"
        );
        FileFailure::new(ErrorKind::Unavailable, message)
    }
}

impl fmt::Display for FileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<FileFailure> for Error {
    fn from(failure: FileFailure) -> Error {
        Error::new(failure.kind, failure.message)
    }
}

/// Any error of redb. The caller of a commit adds that its outcome is unknown.
impl<E> From<E> for FileFailure
where
    redb::Error: From<E>,
{
    fn from(error: E) -> FileFailure {
        FileFailure::unavailable(error.into())
    }
}

/// Describes an error of redb for an operator.
fn describe(error: &redb::Error) -> String {
    match error {
        redb::Error::Io(io) => describe_io(io),
        error => error.to_string(),
    }
}

/// Describes an error of the file system for an operator.
pub(crate) fn describe_io(error: &io::Error) -> String {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => format!("the disk is full ({error})"),
        _ => error.to_string(),
    }
}
