//! The answers of a storage that a trial expects.

use std::fmt::Debug;

use istorage::{Conflict, ErrorKind, Outcome};

use crate::trial::{EarlyEnd, Shortened, Verdict, equal};

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
