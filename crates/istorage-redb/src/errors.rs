//! What redb and the file system say, as errors of the contract.

use std::{fmt, io, path::Path, sync::Arc};

use istorage::{Error, ErrorKind, KeyspaceName};
use redb::{DatabaseError, StorageError, TableError, TransactionError};

/// Why the file could not be opened.
pub(crate) fn opening(path: &Path, error: DatabaseError) -> Error {
    let shown = path.display();
    match error {
        DatabaseError::DatabaseAlreadyOpen => Error::unavailable(format!(
            "the storage file {shown} is open in another process, or elsewhere in this one: a redb file serves one \
             node at a time; several nodes share a storage with the driver cassandra or dynamodb"
        )),
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == io::ErrorKind::InvalidData =>
        {
            Error::corrupt(format!("{shown} is not a redb file; it was not touched")).because(error)
        }
        DatabaseError::Storage(StorageError::Io(error)) => file_system("open", path, error),
        DatabaseError::UpgradeRequired(version) => Error::corrupt(format!(
            "{shown} is a redb file of the format {version}, which this version does not read"
        )),
        error => {
            Error::corrupt(format!("the storage file {shown} cannot be opened")).because(error)
        }
    }
}

/// What the file system did not let us do with a path.
pub(crate) fn file_system(what: &str, path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::*;
    let message = format!("cannot {what} {}: {error}", path.display());
    let error_of = match error.kind() {
        AlreadyExists | PermissionDenied | ReadOnlyFilesystem | NotADirectory | IsADirectory
        | InvalidFilename => Error::invalid,
        _ => Error::unavailable,
    };
    error_of(message).because(error)
}

/// A redb file that this driver did not make.
pub(crate) fn foreign(path: &Path) -> Error {
    Error::corrupt(format!(
        "{} is a redb file, but not a storage of this driver; nothing in it was changed",
        path.display()
    ))
}

/// A failure of the file that several callers are told of.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<redb::Error>>,
}

impl Failure {
    /// A failure without a cause in redb.
    pub(crate) fn new(kind: ErrorKind, message: String) -> Failure {
        Failure { kind, message, source: None }
    }

    /// What the driver keeps for itself in the file cannot be understood.
    pub(crate) fn damaged(error: &Error) -> Failure {
        Failure::new(ErrorKind::Corrupt, format!("the storage file is damaged: {error}"))
    }

    /// Nothing was written, and the storage could not answer.
    pub(crate) fn unavailable(error: redb::Error) -> Failure {
        let kind = match error {
            redb::Error::Corrupted(_) => ErrorKind::Corrupt,
            _ => ErrorKind::Unavailable,
        };
        let message = format!("the storage file failed: {}", cause(&error));
        Failure { kind, message, source: Some(Arc::new(error)) }
    }

    /// A commit failed: it may be on the disk, or not.
    pub(crate) fn outcome_unknown(error: redb::Error) -> Failure {
        let message = format!("the commit failed: {}", cause(&error));
        Failure { kind: ErrorKind::OutcomeUnknown, message, source: Some(Arc::new(error)) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let error = Error::new(failure.kind, failure.message);
        match failure.source {
            Some(source) => error.because(source),
            None => error,
        }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        Failure::unavailable(error.into())
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Failure {
        Failure::unavailable(error.into())
    }
}

impl From<TransactionError> for Failure {
    fn from(error: TransactionError) -> Failure {
        Failure::unavailable(error.into())
    }
}

/// The operator's word for what went wrong.
fn cause(error: &redb::Error) -> String {
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
