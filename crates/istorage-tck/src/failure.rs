//! The reasons for which a trial does not pass.

use std::{
    fmt::{self, Debug, Write},
    panic::Location,
};

use istorage::{Conflict, Error, ErrorKind, Outcome};

/// A finding of a trial that the contract does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrialFailure {
    message: String,
    at: &'static Location<'static>,
}

impl fmt::Display for TrialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.at.file().rsplit(['/', '\\']).next().unwrap_or_default();
        write!(f, "{} ({file}:{})", self.message, self.at.line())
    }
}

/// The reason for which a trial ends early.
#[derive(Clone, Debug)]
pub(crate) enum EarlyEnd {
    /// The storage broke the contract.
    Failed(TrialFailure),
    /// The contract does not require this ability of a storage, and this storage lacks it.
    NotOffered(&'static str),
    /// The trial did not see something in time, and the storage is not to blame.
    TooSlow,
}

pub(crate) type Verdict<T = ()> = Result<T, EarlyEnd>;

impl EarlyEnd {
    #[track_caller]
    pub(crate) fn failed(message: impl Into<String>) -> EarlyEnd {
        EarlyEnd::Failed(TrialFailure { message: message.into(), at: Location::caller() })
    }
}

/// A call failed in a place where no error is allowed.
impl From<Error> for EarlyEnd {
    #[track_caller]
    fn from(error: Error) -> EarlyEnd {
        EarlyEnd::failed(format!("a call failed: {error:?}"))
    }
}

/// Ends the trial unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::failure::EarlyEnd::failed(format!($($what)+)));
        }
    };
}

/// Ends the trial unless the found value is equal to the expected one.
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {
        $crate::failure::equal(&$found, &$expected, || format!($($what)+))?
    };
}

pub(crate) use {ensure, ensure_eq};

#[track_caller]
pub(crate) fn equal<F, X>(found: &F, expected: &X, what: impl FnOnce() -> String) -> Verdict
where
    F: Debug + PartialEq<X> + ?Sized,
    X: Debug + ?Sized,
{
    if found == expected {
        return Ok(());
    }
    let message =
        format!("{}: expected {}, found {}", what(), Shortened(expected), Shortened(found));
    Err(EarlyEnd::failed(message))
}

/// The call must fail with this kind of error.
#[track_caller]
pub(crate) fn refused<T: Debug>(
    answer: istorage::Result<T>,
    kind: ErrorKind,
    what: &str,
) -> Verdict {
    match answer {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => {
            Err(EarlyEnd::failed(format!("{what}: expected the error {kind:?}, found {error:?}")))
        }
        Ok(answer) => Err(EarlyEnd::failed(format!(
            "{what}: expected the error {kind:?}, found the answer {}",
            Shortened(&answer)
        ))),
    }
}

#[track_caller]
pub(crate) fn applied(outcome: &Outcome, what: &str) -> Verdict {
    equal(outcome, &Outcome::Applied, || what.to_owned())
}

/// The write must not be applied, because of exactly these conflicts.
#[track_caller]
pub(crate) fn conflicts<B>(
    outcome: &Outcome,
    expected: &[(usize, Option<B>)],
    what: &str,
) -> Verdict
where
    B: AsRef<[u8]>,
{
    let conflict = |(op, actual): &(usize, Option<B>)| {
        let actual = actual.as_ref().map(|value| bytes::Bytes::copy_from_slice(value.as_ref()));
        Conflict { op: *op, actual }
    };
    let expected = Outcome::NotApplied(expected.iter().map(conflict).collect());
    equal(outcome, &expected, || what.to_owned())
}

/// A value that is printed in readable length. Rows may have megabytes.
struct Shortened<'a, T: ?Sized>(&'a T);

const SHOWN_MAX: usize = 400;

impl<T: Debug + ?Sized> fmt::Display for Shortened<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = LimitedText(String::new());
        let whole = write!(text, "{:?}", self.0).is_ok();
        f.write_str(&text.0)?;
        if whole { Ok(()) } else { f.write_str("…") }
    }
}

/// Takes text up to a limit.
struct LimitedText(String);

impl Write for LimitedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > SHOWN_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(verdict: Verdict) -> String {
        match verdict.unwrap_err() {
            EarlyEnd::Failed(failure) => failure.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_failure_says_what_was_expected_what_was_found_and_where() {
        let line = line!() + 1;
        let failed = (|| Ok(ensure_eq!(2, 3, "rows of {}", "p")))();
        let expected = format!("rows of p: expected 3, found 2 (failure.rs:{line})");
        assert_eq!(message(failed), expected);
    }

    #[test]
    fn an_error_of_a_call_names_the_line_of_the_call() {
        let line = line!() + 2;
        let call = || -> Verdict {
            Err(Error::unavailable("gone"))?;
            Ok(())
        };
        assert_eq!(
            message(call()),
            format!("a call failed: Unavailable: gone (failure.rs:{line})")
        );
    }

    #[test]
    fn large_values_are_cut_off() {
        let failed = equal(&vec![7_u8; 1 << 20], &Vec::<u8>::new(), || "value".to_owned());
        assert!(message(failed).len() < SHOWN_MAX + 100);
    }
}
