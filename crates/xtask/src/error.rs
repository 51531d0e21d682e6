//! The errors that end a command early.

use std::{fmt, io};

/// An error that ends a command. `main` prints each kind in its own way.
#[derive(Debug)]
pub(crate) enum Error {
    /// Something went wrong. The text is for the person at the terminal.
    Failed(String),
    /// The arguments make no sense together. Nothing was done.
    Usage(String),
    /// A child process ended with this exit code, and has printed the reason itself.
    Child { what: String, code: i32 },
    /// The person at the terminal asked to stop.
    Interrupted,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the exit code of the whole command.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Error::Failed(_) => 1,
            Error::Usage(_) => 2,
            Error::Child { code, .. } => *code,
            Error::Interrupted => 130,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Failed(text) | Error::Usage(text) => f.write_str(text),
            Error::Child { what, code } => write!(f, "{what} ended with exit code {code}"),
            Error::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Makes an error from a sentence.
pub(crate) fn failed<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Failed(text.into()))
}

/// Adds the action that was under way to an I/O error.
pub(crate) trait ErrorContext<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T> ErrorContext<T> for io::Result<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::Failed(format!("{doing}: {error}")))
    }
}
