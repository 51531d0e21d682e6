//! The reason for which a trial failed.

use std::{fmt, panic::Location};

use crate::{DoesNotFit, Lost, NotAcquired, StoreError, Unproved};

/// A promise that does not hold, and the line that found it.
#[derive(Clone, Debug)]
pub struct Failure {
    message: String,
    at: &'static Location<'static>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        write!(f, "{} ({file}:{})", self.message, self.at.line())
    }
}

impl std::error::Error for Failure {}

pub(super) type Verdict<T = ()> = Result<T, Failure>;

impl Failure {
    #[track_caller]
    pub(super) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), at: Location::caller() }
    }
}

/// Makes failures from the errors of calls that must not fail.
macro_rules! failures {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            #[track_caller]
            fn from(error: $error) -> Failure {
                Failure::new(format!("unexpected: {error}: {error:?}"))
            }
        }
    )*};
}

failures!(StoreError, NotAcquired, Unproved, DoesNotFit, Lost);

/// Ends the trial unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::suite::failure::Failure::new(format!($($what)+)));
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
