//! The errors of this crate, sorted by the action that they require.

use std::fmt;

use bytes::Bytes;
use istorage::ErrorKind;

use crate::{AppRow, DamagedRow, LeadershipLost, Offset};

/// The result of an operation on a log.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a log failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Try again later, unless the error [lasts](Error::is_lasting). The event was not written, and
    /// will not be. In [`WriteOutcome::applied`](crate::WriteOutcome::applied) the event is in the
    /// log, and its rows may be applied in part, even later.
    #[error("storage error")]
    Storage(#[from] istorage::Error),
    /// Write nothing more: the leadership is lost.
    #[error(transparent)]
    LeadershipLost(#[from] LeadershipLost),
    /// Leave the events to the next leader. An attempt to write them got no answer, and may have
    /// landed or may still land.
    #[error("the outcome of the write is unknown: an attempt got no answer and was not settled")]
    Unknown(#[source] istorage::Error),
    /// Recover: the log has an event at this offset, or a row names one, and this node has not
    /// replayed that event. Nothing was written.
    #[error("the event at offset {} was not replayed yet", .0.0)]
    UnexpectedEvent(Offset),
    /// Take no commands and tell an operator: a row holds other bytes than it must. Go on when the
    /// row has changed.
    #[error(transparent)]
    Violation(#[from] Box<Violation>),
    /// Tell an operator: the log or another row cannot be read. Take no commands until the log can
    /// be read.
    #[error(transparent)]
    DamagedRow(#[from] DamagedRow),
}

impl Error {
    /// The error of a write after an attempt without an answer. `what` failed afterwards.
    pub(crate) fn unknown(what: impl fmt::Display) -> Error {
        Error::Unknown(istorage::Error::outcome_unknown(what.to_string()))
    }

    /// Returns whether the error stays until an operator corrects the cause. Trying again does not
    /// help then.
    pub fn is_lasting(&self) -> bool {
        match self {
            Error::Violation(_) | Error::DamagedRow(_) => true,
            Error::Storage(error) => {
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid)
            }
            Error::LeadershipLost(_) | Error::Unknown(_) | Error::UnexpectedEvent(_) => false,
        }
    }
}

/// A row that holds other bytes than it must. The row was left unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The row.
    pub row: AppRow,
    /// The bytes in the row; `None` if the row is missing.
    pub found: Option<Bytes>,
    /// The bytes that were to be written.
    pub expected: Bytes,
    /// Why the row was not written.
    pub why: &'static str,
    /// Whether another try may succeed: nothing of the event is in the log, and the row can be
    /// read.
    pub is_retryable: bool,
    /// Whether the row must hold an earlier version of a record.
    pub replaces_record: bool,
}

impl Violation {
    /// Makes a violation that lasts until the row changes, of a row that replaces no record.
    pub(crate) fn new(
        row: AppRow,
        found: Option<&Bytes>,
        expected: &Bytes,
        why: &'static str,
    ) -> Box<Violation> {
        let (found, expected) = (found.cloned(), expected.clone());
        let (is_retryable, replaces_record) = (false, false);
        Box::new(Violation { row, found, expected, why, is_retryable, replaces_record })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { row, found, expected, why, .. } = self;
        write!(f, "{row} {why}: ")?;
        match found {
            Some(found) => write!(f, "the row holds {}", BytesPreview(found))?,
            None => write!(f, "the row is missing")?,
        }
        write!(f, ", but must hold {}", BytesPreview(expected))
    }
}

impl std::error::Error for Violation {}

/// The number of bytes of a value that are shown.
const SHOWN: usize = 32;

/// The beginning of a value.
struct BytesPreview<'b>(&'b Bytes);

impl fmt::Display for BytesPreview<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.slice(..self.0.len().min(SHOWN));
        write!(f, "{} bytes ({shown:x}", self.0.len())?;
        f.write_str(if self.0.len() > SHOWN { "…)" } else { ")" })
    }
}
