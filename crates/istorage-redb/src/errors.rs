//! Translates errors of redb and of the file system to errors of the contract.

use std::{
    fmt, io,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::Arc,
};

use istorage::{Error, ErrorKind, KeyspaceName};
use redb::{DatabaseError, StorageError, TableError, TransactionError};

use crate::layout::FORMAT;

/// The advice to an operator who has a damaged file.
const RESTORE: &str =
    "stop the node, check the file with `vvm storage check`, and restore it from a backup";

/// The reason why a call of redb unwound.
#[derive(Debug)]
pub(crate) enum PageError {
    /// The disk could not read a page.
    Unreadable(String),
    /// A page does not hold the bytes that were written.
    Damaged(String),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (PageError::Unreadable(why) | PageError::Damaged(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for PageError {}

/// A page that cannot be read: the payload that unwinds through redb to [`catch_page_error`].
#[derive(Debug)]
pub(crate) struct UnreadablePage {
    why: String,
    /// The page would be behind the end of the file. Some other page must be damaged, because it
    /// points there.
    is_behind_end: bool,
}

impl UnreadablePage {
    pub(crate) fn new(offset: u64, len: usize, why: &io::Error) -> UnreadablePage {
        let is_behind_end = why.kind() == io::ErrorKind::UnexpectedEof;
        let why = format!("{len} bytes at {offset} of the storage file cannot be read: {why}");
        UnreadablePage { why, is_behind_end }
    }

    /// Ends the call of redb. The panic hook is not called, because the caller gets the error.
    pub(crate) fn unwind(self) -> ! {
        panic::resume_unwind(Box::new(self))
    }
}

/// Runs a closure that calls redb. redb panics when it meets a page that it cannot understand.
///
/// After a panic the closure's work is given up: a read changes nothing, and after a write the file
/// is opened again.
pub(crate) fn catch_page_error<T>(run: impl FnOnce() -> T) -> Result<T, PageError> {
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = match payload.downcast::<UnreadablePage>() {
            Ok(page) if page.is_behind_end => return PageError::Damaged(page.why),
            Ok(page) => return PageError::Unreadable(page.why),
            Err(payload) => payload.downcast::<String>().map(|text| *text),
        };
        let text =
            text.or_else(|payload| payload.downcast::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|_| "without a message".to_owned());
        PageError::Damaged(format!("redb panicked: {text}"))
    })
}

/// The error for a file that could not be opened.
pub(crate) fn open_error(path: &Path, error: DatabaseError) -> Error {
    let shown = path.display();
    match error {
        DatabaseError::DatabaseAlreadyOpen => Error::unavailable(format!(
            "the storage file {shown} is open in another process, or elsewhere in this one: a redb file serves one \
             node at a time; for several nodes, use the driver cassandra or dynamodb"
        )),
        DatabaseError::Storage(StorageError::Io(error)) => match error.kind() {
            io::ErrorKind::InvalidData => not_redb(path).with_source(error),
            io::ErrorKind::UnexpectedEof => damaged_file(path, "it is cut off").with_source(error),
            _ => file_system("open the storage file", path, error),
        },
        DatabaseError::UpgradeRequired(version) => Error::corrupt(format!(
            "{shown} is a redb file of the format {version}, which this version does not read"
        )),
        error => damaged_file(path, error),
    }
}

/// The error for a file in which redb finds nothing of its own.
pub(crate) fn not_redb(path: &Path) -> Error {
    Error::corrupt(format!(
        "{} is not a redb file, and was not changed: correct the path, or restore the file from a backup",
        path.display()
    ))
}

/// The error for a file that is too damaged to be used.
pub(crate) fn damaged_file(path: &Path, why: impl fmt::Display) -> Error {
    Error::corrupt(format!(
        "the storage file {} is damaged: {why}; restore it from a backup",
        path.display()
    ))
}

/// The error for a file that redb has opened and that cannot be used all the same.
pub(crate) fn unusable_file(path: &Path, page_error: &PageError) -> Error {
    match page_error {
        PageError::Damaged(why) => damaged_file(path, why),
        // The disk may be able to read the page later.
        PageError::Unreadable(why) => Error::unavailable(format!(
            "the storage file {} cannot be opened: {why}; if the error stays, restore the file from a backup",
            path.display()
        )),
    }
}

/// The error for a row that cannot be understood, or for another part (`what`) of the file on a
/// damaged page. All other parts work.
pub(crate) fn damaged_row(what: impl fmt::Display, why: impl fmt::Display) -> Error {
    Error::corrupt(format!("{what} is damaged: {why}; {RESTORE}"))
}

/// The error for a read of redb that failed.
pub(crate) fn read_error(what: impl fmt::Display, error: StorageError) -> Error {
    match error {
        StorageError::Corrupted(why) => damaged_row(what, why),
        error => FileFailure::from(error).into(),
    }
}

/// The error for an operation (`what`) on a path that the file system refused.
pub(crate) fn file_system(what: &str, path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::*;
    let message = format!("cannot {what} {}: {error}", path.display());
    let error_of = match error.kind() {
        AlreadyExists | PermissionDenied | ReadOnlyFilesystem | NotADirectory | IsADirectory
        | InvalidFilename => Error::invalid,
        _ => Error::unavailable,
    };
    error_of(message).with_source(error)
}

/// The error for a redb file that this driver did not make.
pub(crate) fn foreign_file(path: &Path) -> Error {
    Error::corrupt(format!(
        "{} is a redb file, but not a storage of this driver; nothing in it was changed",
        path.display()
    ))
}

/// The error for a file that has another format.
pub(crate) fn other_format(path: &Path, format: Option<u32>) -> Error {
    let made_by = match format {
        Some(format) if format < FORMAT => {
            "an older version: keep that version, or start with a new file"
        }
        Some(_) => "a newer version: use that one",
        None => "an unknown version",
    };
    let format = format.map_or("?".to_owned(), |format| format.to_string());
    Error::corrupt(format!(
        "the storage file {} has the format {format}, but this version reads the format {FORMAT} only; it was made by \
         {made_by}",
        path.display()
    ))
}

/// A failure of the file that several callers are told about.
#[derive(Clone, Debug)]
pub(crate) struct FileFailure {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<redb::Error>>,
}

impl FileFailure {
    /// A failure without a cause in redb.
    pub(crate) fn new(kind: ErrorKind, message: String) -> FileFailure {
        FileFailure { kind, message, source: None }
    }

    /// A failure because a page that every write needs is damaged.
    pub(crate) fn damaged(why: impl fmt::Display) -> FileFailure {
        let message = format!("the storage file is damaged: {why}; {RESTORE}");
        FileFailure::new(ErrorKind::Corrupt, message)
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
        FileFailure { kind, message, source: Some(Arc::new(error)) }
    }

    /// A sync failed, so the data written since the last sync may be lost. The system still shows
    /// the data in reads, until the file is opened again.
    pub(crate) fn failed_sync(path: &Path) -> FileFailure {
        let path = path.display();
        let message = format!(
            "a sync of the storage file {path} failed, and nothing more is written: restart the node, which then reads \
             what the disk has"
        );
        FileFailure::new(ErrorKind::Unavailable, message)
    }

    /// A commit failed. The commit may be on the disk, or not.
    pub(crate) fn outcome_unknown(error: redb::Error) -> FileFailure {
        let message = format!("the commit failed: {}", describe(&error));
        FileFailure { kind: ErrorKind::OutcomeUnknown, message, source: Some(Arc::new(error)) }
    }
}

impl fmt::Display for FileFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<FileFailure> for Error {
    fn from(failure: FileFailure) -> Error {
        let error = Error::new(failure.kind, failure.message);
        match failure.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

impl From<StorageError> for FileFailure {
    fn from(error: StorageError) -> FileFailure {
        FileFailure::unavailable(error.into())
    }
}

impl From<TableError> for FileFailure {
    fn from(error: TableError) -> FileFailure {
        FileFailure::unavailable(error.into())
    }
}

impl From<TransactionError> for FileFailure {
    fn from(error: TransactionError) -> FileFailure {
        FileFailure::unavailable(error.into())
    }
}

/// Describes an error of redb for an operator.
fn describe(error: &redb::Error) -> String {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    match error {
        redb::Error::Io(io) if matches!(io.kind(), StorageFull | QuotaExceeded) => {
            format!("the disk is full ({io})")
        }
        error => error.to_string(),
    }
}

pub(crate) fn no_keyspace(name: &KeyspaceName) -> Error {
    Error::invalid(format!("the keyspace `{name}` does not exist any more"))
}
