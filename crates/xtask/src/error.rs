//! Why a command ended early.

use std::{fmt, io};

/// A failure, told by what `main` does with it.
#[derive(Debug)]
pub(crate) enum Error {
    /// Something went wrong; the text is for the person at the terminal.
    Failed(String),
    /// A child process ended with this exit code and has said why itself.
    Child { what: String, code: i32 },
    /// The person at the terminal asked to stop.
    Interrupted,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The exit code of the whole command.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Error::Failed(_) => 1,
            Error::Child { code, .. } => *code,
            Error::Interrupted => 130,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Failed(text) => f.write_str(text),
            Error::Child { what, code } => write!(f, "{what} ended with exit code {code}"),
            Error::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Makes an error of one sentence.
pub(crate) fn failed<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Failed(text.into()))
}

/// Says what was being done when an I/O error came.
pub(crate) trait Context<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::Failed(format!("{doing}: {error}")))
    }
}
