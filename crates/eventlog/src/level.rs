//! How much a storage is asked to guard.

use std::{fmt, str::FromStr};

/// How events and records are written. Fixed when an application is deployed for the first time.
///
/// | | logs | new records | updated records |
/// |---|---|---|---|
/// | `Zero` | inserted if nothing is there | inserted if nothing is there | replaced if what was read is there |
/// | `One` | inserted if nothing is there | the later event wins | the later event wins |
/// | `Two` | the later event wins | the later event wins | the later event wins |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustLevel {
    /// Nothing is trusted: a node that stood still can overwrite nothing.
    #[default]
    Zero,
    /// Records are trusted.
    One,
    /// The lease is trusted.
    Two,
}

/// A trust level that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no trust level: it is 0, 1 or 2")]
pub struct BadLevel(String);

impl FromStr for TrustLevel {
    type Err = BadLevel;

    fn from_str(text: &str) -> Result<TrustLevel, BadLevel> {
        match text {
            "0" => Ok(TrustLevel::Zero),
            "1" => Ok(TrustLevel::One),
            "2" => Ok(TrustLevel::Two),
            _ => Err(BadLevel(text.to_owned())),
        }
    }
}

impl fmt::Display for TrustLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (*self as u8).fmt(f)
    }
}
