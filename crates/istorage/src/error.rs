//! Errors, sorted by what the caller must do.

use std::{error::Error as StdError, fmt};

/// The result of a storage call.
pub type Result<T> = std::result::Result<T, Error>;

/// What the caller must do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Try later: the storage is out of reach or overloaded. A conditional or atomic write was not applied and will
    /// not be. Of a plain or ordered batch any subset may be written.
    Unavailable,
    /// Settle it: the write was sent and no definite answer came. It may be applied, or may still land later. See
    /// [`settle`](crate::settle).
    OutcomeUnknown,
    /// Fix the call: it breaks the contract or a limit in [`Capabilities`](crate::Capabilities). Nothing was written.
    Invalid,
    /// Stop: what is stored cannot be understood, or belongs to somebody else.
    Corrupt,
    /// The storage was closed; nothing was done.
    Closed,
}

/// An error of a storage call, with its cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error without a cause below it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    /// [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// [`ErrorKind::OutcomeUnknown`].
    pub fn outcome_unknown(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::OutcomeUnknown, message)
    }

    /// [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// [`ErrorKind::Invalid`], of a setting.
    pub fn of_setting(bad: BadSetting) -> Error {
        Error::invalid(bad.to_string())
    }

    /// [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// [`ErrorKind::Closed`].
    pub fn closed() -> Error {
        Error::new(ErrorKind::Closed, "the storage is closed")
    }

    /// The same error with the cause below it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

/// A setting of a driver that cannot be, which is known before any server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSetting {
    /// The key, with dots, from the settings of the driver on.
    pub key: &'static str,
    /// Why it cannot be, and what can.
    pub why: String,
}

impl BadSetting {
    /// What is wrong, and with which key.
    pub fn new(key: &'static str, why: impl Into<String>) -> BadSetting {
        BadSetting { key, why: why.into() }
    }
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.why)
    }
}

impl StdError for BadSetting {}
