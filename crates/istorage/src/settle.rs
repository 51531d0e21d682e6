//! Conditional writes whose outcome is unknown.
//!
//! When a conditional write is answered with [`ErrorKind::OutcomeUnknown`], a linearizable read settles it only if it
//! finds something: equal to what was written means applied, different means lost. **Absent settles nothing**, and nor
//! does the old value of a swap: the write may still land. So the same bytes are sent again until there is a definite
//! answer. Equality proves success only if the value is unique to the attempt, so give it an identity.

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant};

use crate::{AppStorage, AppStorageExt, Conditional, Error, ErrorKind, Key, Outcome, Result};

const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// How long a conditional write is settled.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long each attempt may take.
    pub call_timeout: Duration,
    /// The end: nothing is sent after it, and no attempt outlives it. For a leader, the end of its lease.
    pub until: Instant,
}

/// A [`write_if`](AppStorage::write_if) that sends the same bytes again while the outcome is unknown, and tells whether
/// they are there.
///
/// An attempt that is refused as `Unavailable` before any was left open is not repeated: nothing was written.
///
/// # Errors
/// `OutcomeUnknown` when the patience ends first: the write may be applied or may still land, so what it claimed must not
/// be used again. Any other kind means that nothing was written.
///
/// # Cancel safety
/// Dropping the future leaves the outcome unknown.
pub async fn write_if_settled<S: AppStorage + ?Sized>(
    storage: &S,
    clock: &Clock,
    pkey: Bytes,
    ops: Vec<Conditional>,
    patience: Patience,
) -> Result<Outcome> {
    let mut may_be_written = false;
    let mut pause = PAUSE_MIN;
    loop {
        let deadline = || (clock.now() + patience.call_timeout).min(patience.until);
        let error = match storage
            .write_if(pkey.clone(), ops.clone(), deadline())
            .await
        {
            // It may be an own, earlier attempt that stands in the way.
            Ok(Outcome::NotApplied(conflicts)) if may_be_written => {
                match is_written(storage, &pkey, &ops, deadline()).await {
                    Ok(true) => return Ok(Outcome::Applied),
                    Ok(false) => return Ok(Outcome::NotApplied(conflicts)),
                    Err(error) => error,
                }
            }
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        may_be_written |= error.kind() == ErrorKind::OutcomeUnknown;
        if !may_be_written {
            return Err(error);
        }
        let may_heal = matches!(
            error.kind(),
            ErrorKind::OutcomeUnknown | ErrorKind::Unavailable
        );
        let next = clock.now() + pause;
        if !may_heal || next >= patience.until {
            return Err(
                Error::outcome_unknown("a conditional write could not be settled in time")
                    .because(error),
            );
        }
        clock.sleep_until(next).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether every row is as the operations leave it.
async fn is_written<S: AppStorage + ?Sized>(
    storage: &S,
    pkey: &Bytes,
    ops: &[Conditional],
    deadline: Instant,
) -> Result<bool> {
    for op in ops {
        let key = Key::new(pkey.clone(), op.ccols().clone());
        let there = storage.get_linearizable(&key, deadline).await?;
        if there.as_ref() != op.written() {
            return Ok(false);
        }
    }
    Ok(true)
}
