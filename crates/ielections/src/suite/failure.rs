//! The reason for which a trial failed.

use std::{fmt, panic::Location};

use crate::{AcquireError, InvalidTiming, LossReason, StoreError, UnprovedStop};

/// A promise that does not hold, and the line that found it.
#[derive(Clone, Debug)]
pub struct TrialFailure {
    message: String,
    at: &'static Location<'static>,
}

impl fmt::Display for TrialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        write!(f, "{} ({file}:{})", self.message, self.at.line())
    }
}

impl std::error::Error for TrialFailure {}

pub(super) type TrialResult<T = ()> = Result<T, TrialFailure>;

impl TrialFailure {
    #[track_caller]
    pub(super) fn new(message: impl Into<String>) -> TrialFailure {
        TrialFailure { message: message.into(), at: Location::caller() }
    }
}

/// Makes failures from the errors of calls that must not fail.
macro_rules! failures {
    ($($error:ty),*) => {$(
        impl From<$error> for TrialFailure {
            #[track_caller]
            fn from(error: $error) -> TrialFailure {
                TrialFailure::new(format!("unexpected: {error}: {error:?}"))
            }
        }
    )*};
}

failures!(StoreError, AcquireError, UnprovedStop, InvalidTiming, LossReason);

/// Ends the trial unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::suite::failure::TrialFailure::new(format!($($what)+)));
        }
    };
}

/// Ends the trial unless the found value is equal to the expected one.
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $what:literal) => {{
        let (found, expected) = (&$found, &$expected);
        let what = format!($what);
        $crate::suite::failure::ensure!(
            found == expected,
            "{what}: expected {expected:?}, found {found:?}"
        );
    }};
}

pub(super) use {ensure, ensure_eq};
