//! The trust level of an application: the rows that are checked when they are written.

use std::{fmt, str::FromStr};

/// How events and records are written. The first deployment of an application chooses the level. It
/// may change later, while no node works: each level works on the rows of the others.
///
/// A *checked* row is written under a condition, or put and read back. Foreign bytes in its place
/// are reported. All other writes are trusted. `docs/trust-levels.md` says how each level writes
/// each kind of row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustLevel {
    /// Nothing is trusted: logs and records are checked, and a node that stalled can overwrite
    /// nothing.
    #[default]
    Zero,
    /// The writes of records are trusted: only logs are checked.
    One,
    /// The lease is trusted: most rows are not checked. `docs/trust-levels.md` has the exceptions.
    Two,
}

/// The error for a text that is not a trust level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a trust level: use 0, 1 or 2")]
pub struct InvalidTrustLevel(String);

impl FromStr for TrustLevel {
    type Err = InvalidTrustLevel;

    fn from_str(text: &str) -> Result<TrustLevel, InvalidTrustLevel> {
        match text {
            "0" => Ok(TrustLevel::Zero),
            "1" => Ok(TrustLevel::One),
            "2" => Ok(TrustLevel::Two),
            _ => Err(InvalidTrustLevel(text.to_owned())),
        }
    }
}

impl fmt::Display for TrustLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (*self as u8).fmt(f)
    }
}
