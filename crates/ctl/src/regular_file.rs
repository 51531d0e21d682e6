//! A file that a command reads from its beginning to its end.

use std::{
    fmt::Display,
    fs::{self, File},
    io,
    path::Path,
};

use crate::CommandError;

/// Opens a regular file. `what` names the file for people. A pipe would wait for a writer, and a
/// folder or a device is not a copy.
pub(crate) fn open_regular_file(path: &Path, what: &str) -> Result<File, CommandError> {
    let why = |why: &dyn Display| format!("cannot read {what} {}: {why}", path.display());
    let unread = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => CommandError::usage(why(&error)),
        _ => CommandError::unreachable(why(&error)),
    };
    if !fs::metadata(path).map_err(unread)?.is_file() {
        let advice = "it is no file: a pipe, a folder and a device cannot be read; give a file";
        return Err(CommandError::usage(why(&advice)));
    }
    File::open(path).map_err(unread)
}
