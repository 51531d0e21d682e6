//! Translates errors of redb and of the file system to errors of the contract.

mod file_failure;
mod page_error;

use std::{fmt, io, path::Path};

use istorage::{Error, KeyspaceName};
use redb::{DatabaseError, StorageError};

pub(crate) use self::{
    file_failure::{FileFailure, RESTORE, describe_io},
    page_error::{PageError, catch_page_error},
};
use crate::layout::{FORMAT, WITHOUT_LOG};

/// Runs a part of a transaction. If redb panics, the transaction is unfinished, and the file is to
/// be opened again.
pub(crate) fn catch<T>(run: impl FnOnce() -> Result<T, FileFailure>) -> Result<T, FileFailure> {
    catch_page_error(run).unwrap_or_else(|page_error| Err(FileFailure::damaged(page_error)))
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

/// The error for a file that is not a redb file.
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

/// The error for a file that redb has opened, but that cannot be used.
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

/// The advice to an operator who has another log than that of the storage file.
const BOTH: &str = "a storage file and its log belong together: put back those of one moment, or \
                    restore a backup; a file that was copied after its node had stopped needs no log";

/// The error for a file of the log that does not exist.
pub(crate) fn missing_log(log: &Path) -> Error {
    let log = log.display();
    Error::corrupt(format!(
        "the log {log} of the storage file is missing, and acknowledged writes may be missing with it: put the log back \
         beside the storage file; if the log is lost, restore a backup"
    ))
}

/// The error for a log that belongs to another storage file, or to another moment of this one.
pub(crate) fn other_log(log: &Path) -> Error {
    let log = log.display();
    Error::corrupt(format!(
        "the log {log} does not belong to the present state of the storage file: {BOTH}"
    ))
}

/// The error for another file, or another state of the file, in the place of an open one.
pub(crate) fn other_file(path: &Path) -> Error {
    let path = path.display();
    Error::corrupt(format!(
        "the storage file {path} is not as this node left it: put that file back, or restart the node with the file and \
         its log of one moment"
    ))
}

/// The error for a log with a damaged frame that was acknowledged.
pub(crate) fn damaged_log(log: &Path, at: u64, later: usize) -> Error {
    let log = log.display();
    Error::corrupt(format!(
        "the log {log} is damaged at byte {at}: later writes, at byte {later}, are intact; restore the storage file \
         and its log from a backup"
    ))
}

/// The names of the files of a log, and that they exist.
fn existing(logs: &[&Path]) -> String {
    let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
    format!("{} {}", names.join(" and "), if logs.len() == 1 { "exists" } else { "exist" })
}

/// The error for a log without its storage file.
pub(crate) fn log_without_file(path: &Path, logs: &[&Path]) -> Error {
    let (path, logs) = (path.display(), existing(logs));
    Error::corrupt(format!(
        "the storage file {path} is missing, but its log {logs}: put the file back; or, if the file \
         was moved to FILE, move the log, too, to FILE.log-0 and FILE.log-1, because without its log the file cannot be \
         opened"
    ))
}

/// The error for a row that the driver cannot understand, or for another part (`what`) of the file
/// on a damaged page. All other parts work.
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

/// The advice to an operator if the user of the process lacks a right.
const NO_RIGHTS: &str = ": run the program as the owner of the storage file, or give its user the \
                         rights to the file, its log and their folder (`ls -l`, `chown`)";

/// The advice to an operator if nothing can be written. systemd can make folders read-only for a
/// service.
const READ_ONLY: &str = ": choose a path on a file system that can be written, or mount this one \
                         for writing; a service of systemd also needs the folder in `ReadWritePaths`";

/// The error for an operation (`what`) that the file system refused on a path.
pub(crate) fn file_system(what: &str, path: &Path, error: io::Error) -> Error {
    refused(what, path, error, NO_RIGHTS)
}

/// The error for the folder of a storage file that cannot be made. There is no file yet.
pub(crate) fn folder_not_made(folder: &Path, error: io::Error) -> Error {
    let no_rights = ": give the user of the program the right to write in the folder above it, or \
                     make the folder for this user (`ls -ld`, `chown`)";
    refused("make the folder", folder, error, no_rights)
}

/// The error for the folder of a storage file whose names cannot be made durable.
pub(crate) fn folder_not_synced(folder: &Path, error: io::Error) -> Error {
    let no_rights = ": give the user of the program the rights to read and to write in this folder \
                     (`ls -ld`, `chown`)";
    refused("sync the folder", folder, error, no_rights)
}

/// The error of the file system. `no_rights` is the advice if the user lacks a right.
fn refused(what: &str, path: &Path, error: io::Error, no_rights: &str) -> Error {
    use io::ErrorKind::*;
    let advice = match error.kind() {
        PermissionDenied => no_rights,
        ReadOnlyFilesystem => READ_ONLY,
        _ => "",
    };
    let message = format!("cannot {what} {}: {error}{advice}", path.display());
    let error_of = match error.kind() {
        AlreadyExists | PermissionDenied | ReadOnlyFilesystem | NotADirectory | IsADirectory
        | InvalidFilename => Error::invalid,
        _ => Error::unavailable,
    };
    error_of(message).with_source(error)
}

/// The error for a new file that does not get its name.
pub(crate) fn not_named(path: &Path, error: io::Error) -> Error {
    let path = path.display();
    Error::unavailable(format!(
        "cannot give the new file the name {path}: {error}; if the file system has neither hard links nor \
         renames that replace nothing, make the file on another one, and move it here"
    ))
    .with_source(error)
}

/// The error for a redb file that this driver did not make.
pub(crate) fn foreign_file(path: &Path) -> Error {
    Error::corrupt(format!(
        "{} is a redb file, but not a storage of this driver; nothing in it was changed",
        path.display()
    ))
}

/// The error for a path that is taken, if nothing must be replaced.
pub(crate) fn taken(path: &Path) -> Error {
    let path = path.display();
    Error::invalid(format!(
        "{path} exists, and is not replaced: move the file away, or give another path"
    ))
}

/// The error for a path that has the log of a former file beside it.
pub(crate) fn log_of_former_file(logs: &[&Path]) -> Error {
    let logs = existing(logs);
    Error::invalid(format!(
        "{logs}: the log of a former storage file is not replaced; if that file was moved to FILE, move its log, too, \
         to FILE.log-0 and FILE.log-1; or give another path"
    ))
}

/// The error for a file that has another format.
pub(crate) fn other_format(path: &Path, format: Option<u32>) -> Error {
    let made_by = match format {
        Some(format) if format < WITHOUT_LOG => {
            "an older version: keep that version, or start with a new file"
        }
        Some(_) => "a newer version: use that one",
        None => "an unknown version",
    };
    let format = format.map_or("?".to_owned(), |format| format.to_string());
    Error::corrupt(format!(
        "the storage file {} has the format {format}, but this version reads the formats {WITHOUT_LOG} to {FORMAT} only; \
         it was made by {made_by}",
        path.display()
    ))
}

pub(crate) fn no_keyspace(name: &KeyspaceName) -> Error {
    Error::invalid(format!("the keyspace `{name}` does not exist any more"))
}

#[cfg(test)]
mod tests {
    use istorage::ErrorKind;

    use super::*;

    /// The error had only the words of the system, such as "Permission denied".
    #[test]
    fn an_error_of_the_file_system_says_what_to_do() {
        let path = Path::new("data/vvm.redb");
        for (kind, expected, advice) in [
            (
                io::ErrorKind::PermissionDenied,
                ErrorKind::Invalid,
                "as the owner of the storage file",
            ),
            (io::ErrorKind::ReadOnlyFilesystem, ErrorKind::Invalid, "mount this one for writing"),
            (io::ErrorKind::StorageFull, ErrorKind::Unavailable, "cannot open data/vvm.redb"),
        ] {
            let open = DatabaseError::Storage(StorageError::Io(kind.into()));
            for error in [file_system("open", path, kind.into()), open_error(path, open)] {
                let text = error.to_string().replace("open the storage file", "open");
                assert_eq!(error.kind(), expected, "{text}");
                assert!(text.starts_with("cannot open data/vvm.redb: "), "{text}");
                assert!(text.contains(advice), "{text}");
            }
        }
    }

    /// At a first start there is no storage file, and the advice was to run the program as its
    /// owner.
    #[test]
    fn the_error_of_a_folder_gives_advice_for_the_folder() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let folder = Path::new("data");
        for (error, what, advice) in [
            (folder_not_made(folder, denied()), "make", "the right to write in the folder above"),
            (folder_not_synced(folder, denied()), "sync", "the rights to read and to write in"),
        ] {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(text.starts_with(&format!("cannot {what} the folder data: ")), "{text}");
            assert!(text.contains(advice) && !text.contains("the owner"), "{text}");
        }
    }
}
