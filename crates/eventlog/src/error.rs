//! What can be wrong, sorted by what is to be done.

use std::fmt;

use bytes::Bytes;
use istorage::ErrorKind;

use crate::{LeadLost, Offset, Row, Unreadable};

/// The result of what a log is asked for.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a log does not do what it is asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Try later, unless it [lasts](Error::is_lasting). An event that was to be written was not, and will not be; what an event in the log says may be applied in part.
    #[error("the storage does not do what it is asked to")]
    Storage(#[from] istorage::Error),
    /// Nothing more can be written here.
    #[error(transparent)]
    LeadLost(#[from] LeadLost),
    /// Leave it to the next leader: whether it is written, or still will be, was not known when the lead ended.
    #[error("whether it is written is not known: the lead ended before there was an answer")]
    Unknown(#[source] istorage::Error),
    /// Recover: an event of an earlier leader is where one was to be written. Nothing was.
    #[error("there is an event of an earlier leader at offset {}", .0.0)]
    Overtaken(Offset),
    /// Stop, and tell an operator: a row holds what it cannot.
    #[error(transparent)]
    Violation(Box<Violation>),
    /// Stop, and tell an operator: the log cannot be read on.
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl Error {
    /// Whether it stays so until an operator puts it right: trying again does not help.
    pub fn is_lasting(&self) -> bool {
        match self {
            Error::Violation(_) | Error::Broken(_) => true,
            Error::Storage(error) => {
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid)
            }
            Error::LeadLost(_) | Error::Unknown(_) | Error::Overtaken(_) => false,
        }
    }
}

/// A row holds what it cannot. It was left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The row.
    pub row: Row,
    /// What it holds; `None` if it is missing.
    pub there: Option<Bytes>,
    /// What was to be written.
    pub wanted: Bytes,
    /// Why it cannot be.
    pub why: &'static str,
    /// Nothing of the event is in the log, and what is there can be read: a new look may be right.
    pub may_pass: bool,
}

/// A log that cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Mark it as corrupted if it cannot be mended.
    #[error("{row} cannot be read")]
    Unreadable {
        /// Where it is.
        row: Row,
        /// What is wrong with it.
        #[source]
        why: Unreadable,
    },
    /// The row holds the bytes of another row.
    #[error("{row} holds the bytes of {says}")]
    Misplaced {
        /// The row.
        row: Row,
        /// The row that the bytes belong to, as they say.
        says: Row,
    },
    /// An event that the log is known to have.
    #[error("{0} is missing, although the log is known to go at least that far")]
    Missing(Row),
    /// The event that it says wrote it is not in the log.
    #[error("{row} says that event {} wrote it, and the log ends in front of that", .plog.0)]
    OfNoEvent {
        /// The row.
        row: Row,
        /// The event that it names.
        plog: Offset,
    },
    /// Its leader had lost the lead before.
    #[error(
        "{row} was written in epoch {epoch}, and the event before it in the later epoch {before}"
    )]
    EpochFell {
        /// The event.
        row: Row,
        /// Its epoch.
        epoch: u64,
        /// That of the event before it.
        before: u64,
    },
}

impl Broken {
    /// The row that is not as it must be.
    pub fn row(&self) -> Row {
        match self {
            Broken::Missing(row)
            | Broken::Unreadable { row, .. }
            | Broken::Misplaced { row, .. }
            | Broken::OfNoEvent { row, .. }
            | Broken::EpochFell { row, .. } => *row,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { row, there, wanted, why, .. } = self;
        write!(f, "{row} {why}: ")?;
        match there {
            Some(there) => write!(f, "it holds {}", Shown(there))?,
            None => write!(f, "it is missing")?,
        }
        write!(f, ", and was to hold {}", Shown(wanted))
    }
}

impl std::error::Error for Violation {}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Error {
        Error::Violation(Box::new(violation))
    }
}

impl From<Box<Violation>> for Error {
    fn from(violation: Box<Violation>) -> Error {
        Error::Violation(violation)
    }
}

/// How many bytes of a value are shown.
const SHOWN: usize = 32;

/// The beginning of a value.
struct Shown<'b>(&'b Bytes);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes (", self.0.len())?;
        for byte in self.0.iter().take(SHOWN) {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(if self.0.len() > SHOWN { "…)" } else { ")" })
    }
}
