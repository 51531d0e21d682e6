//! The errors of storages, one kind for each reaction of the caller.

use std::{error::Error as StdError, fmt};

use bytes::Bytes;

use crate::Key;

/// The result of a storage call.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an [`Error`], which decides the reaction of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Try later: the storage is out of reach or overloaded. A conditional or atomic write was not
    /// applied and will not be. After a plain or ordered batch, any subset of the batch may be
    /// written, even later.
    Unavailable,
    /// Settle the write: it was sent and got no definite answer. The write may be applied, or may
    /// still land later. See [`settle`](crate::settle).
    OutcomeUnknown,
    /// Fix the call: it breaks the contract or a limit in [`Capabilities`](crate::Capabilities).
    /// Nothing was written.
    Invalid,
    /// Stop: the stored data cannot be understood, or belongs to another program.
    Corrupt,
    /// The storage was closed. Nothing was done.
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
    /// An error without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    /// An error of the kind [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// An error of the kind [`ErrorKind::OutcomeUnknown`].
    pub fn outcome_unknown(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::OutcomeUnknown, message)
    }

    /// An error of the kind [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// An error of the kind [`ErrorKind::Invalid`] about a setting.
    pub fn invalid_setting(setting: InvalidSetting) -> Error {
        Error::invalid(setting.to_string())
    }

    /// An error of the kind [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupt, message)
    }

    /// An error of the kind [`ErrorKind::Corrupt`] about a row whose bytes make no sense.
    pub fn corrupt_row(row: CorruptRow) -> Error {
        Error::corrupt("a row is damaged").with_source(row)
    }

    /// The row whose bytes make no sense, if the error names one.
    pub fn row(&self) -> Option<&CorruptRow> {
        self.0.source.as_ref()?.downcast_ref()
    }

    /// An error of the kind [`ErrorKind::Closed`].
    pub fn closed() -> Error {
        Error::new(ErrorKind::Closed, "the storage is closed")
    }

    /// The same error with `source` as its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// The kind of the error, which decides the reaction of the caller.
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
        write!(f, "{:?}: {}", self.0.kind, base::with_causes(self))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

/// A row whose bytes make no sense to its reader: another program wrote the row, or it is damaged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CorruptRow {
    /// The meaning of the row.
    pub what: String,
    /// The key of the row.
    pub key: Key,
    /// The bytes in the row.
    pub found: Bytes,
    /// What is wrong with the bytes.
    pub why: String,
}

/// The text contains the key, so that an operator can find the row.
impl fmt::Display for CorruptRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (key ", self.what)?;
        for byte in &self.key.pkey {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("/")?;
        for byte in &self.key.ccols {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ") {}: the row was not written by this program, or is damaged", self.why)
    }
}

impl StdError for CorruptRow {}

/// A setting of a driver with an impossible value. The driver finds it before it asks any server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The key of the setting, with dots, beginning below the settings of the driver.
    pub key: &'static str,
    /// The reason why the value is impossible, and the values that are possible.
    pub reason: String,
}

impl InvalidSetting {
    /// An invalid setting with this key, and the reason.
    pub fn new(key: &'static str, reason: impl Into<String>) -> InvalidSetting {
        InvalidSetting { key, reason: reason.into() }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.key, self.reason)
    }
}

impl StdError for InvalidSetting {}
