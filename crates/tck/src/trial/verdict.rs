//! The verdict of a trial, and why a trial ends early.

use std::{
    error::Error,
    fmt::{self, Debug},
    panic::Location,
};

use crate::trial::Shortened;

/// Why a trial ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// The subject broke its contract. The text has the finding, and the line that found it.
    Failed(String),
    /// The contract does not require this ability, and the subject lacks it, for this reason.
    Ignored(&'static str),
    /// The trial did not see something in time, and the subject is not to blame. The trial may
    /// begin again with more time. If it does not, it has failed for this reason.
    TooSlow(&'static str),
}

/// The result of a trial, or of a part of a trial.
pub type Verdict<T = ()> = Result<T, EarlyEnd>;

impl EarlyEnd {
    /// A finding that the contract does not allow, in the line of the caller.
    #[track_caller]
    pub fn failed(message: impl fmt::Display) -> EarlyEnd {
        let at = Location::caller();
        let file = at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        EarlyEnd::Failed(format!("{message} ({file}:{})", at.line()))
    }
}

impl fmt::Display for EarlyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EarlyEnd::Failed(why) => f.write_str(why),
            EarlyEnd::Ignored(why) | EarlyEnd::TooSlow(why) => f.write_str(why),
        }
    }
}

/// A call failed in a place where no error is allowed.
///
/// `EarlyEnd` is not an error itself, so this covers every type of error.
impl<E: Error> From<E> for EarlyEnd {
    #[track_caller]
    fn from(error: E) -> EarlyEnd {
        EarlyEnd::failed(format_args!("a call failed: {error:?}"))
    }
}

/// Ends the trial unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::trial::EarlyEnd::failed(format!($($what)+)));
        }
    };
}

/// Ends the trial unless the found value is equal to the expected one. The failure has both values,
/// [shortened](crate::trial::Shortened).
#[macro_export]
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {
        $crate::trial::equal(&$found, &$expected, || format!($($what)+))?
    };
}

/// The comparison of [`ensure_eq!`](crate::ensure_eq), as a function.
///
/// # Errors
/// Fails if the values differ.
#[track_caller]
pub fn equal<F, X>(found: &F, expected: &X, what: impl FnOnce() -> String) -> Verdict
where
    F: Debug + PartialEq<X> + ?Sized,
    X: Debug + ?Sized,
{
    if found == expected {
        return Ok(());
    }
    let (what, expected, found) = (what(), Shortened(expected), Shortened(found));
    Err(EarlyEnd::failed(format_args!("{what}: expected {expected}, found {found}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the disk is full")]
    struct Full;

    #[test]
    fn a_failure_says_what_was_expected_what_was_found_and_where() {
        let line = line!() + 1;
        let failed: Verdict = (|| Ok(ensure_eq!(2, 3, "rows of {}", "p")))();
        let expected = format!("rows of p: expected 3, found 2 (verdict.rs:{line})");
        assert_eq!(failed, Err(EarlyEnd::Failed(expected)));
    }

    #[test]
    fn a_condition_that_does_not_hold_names_its_line() {
        let line = line!() + 2;
        let holds = |condition: bool| -> Verdict {
            ensure!(condition, "{} rows are left", 3);
            Ok(())
        };
        assert_eq!(holds(true), Ok(()));
        let expected = format!("3 rows are left (verdict.rs:{line})");
        assert_eq!(holds(false), Err(EarlyEnd::Failed(expected)));
    }

    #[test]
    fn an_error_of_a_call_names_the_line_of_the_call() {
        let line = line!() + 2;
        let call = || -> Verdict {
            Err(Full)?;
            Ok(())
        };
        let expected = format!("a call failed: Full (verdict.rs:{line})");
        assert_eq!(call(), Err(EarlyEnd::Failed(expected)));
    }
}
