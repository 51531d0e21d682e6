//! The trust level of an application: the writes that its storage must guard.

use std::{fmt, str::FromStr};

/// The way in which events and records are written. The first deployment of an application chooses
/// it. It may change later, while no node works: each level works on the rows of the others.
///
/// | | log of the partition | logs of workspaces | new records | updated records |
/// |---|---|---|---|---|
/// | `Zero` | inserted if no row exists | the first event wins, checked | the first event wins, checked | the later event wins, checked |
/// | `One` | inserted if no row exists | the first event wins, checked | the first event wins | the later event wins |
/// | `Two` | the later event wins | the later event wins | the later event wins | the later event wins |
///
/// A checked row is read back, or written under a condition where the storage writes all rows of a
/// group atomically. Foreign bytes in its place are reported. A record that was last written under a
/// condition is updated under a condition at every level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustLevel {
    /// Nothing is trusted: a node that stalled can overwrite nothing.
    #[default]
    Zero,
    /// The writes of records are trusted.
    One,
    /// The lease is trusted.
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
