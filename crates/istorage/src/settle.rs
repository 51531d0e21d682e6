//! Conditional writes whose outcome is unknown.
//!
//! When a conditional write is answered with [`ErrorKind::OutcomeUnknown`], it may be there, or may still land. A read that
//! finds nothing, or the old value of a swap, settles nothing. So the same bytes are sent again until there is a
//! definite answer, and what stands in the way of a resend tells whether it is an own, earlier attempt.
//!
//! Three things are up to the caller:
//! - **Values are unique to the attempt**: equality is the only proof of success.
//! - **Nobody else swaps or deletes the rows while they are settled.** If an own attempt was applied and the row was then
//!   changed by somebody else, the answer is "not applied". Where others may, let the value carry its history.
//! - **An attempt without an answer may land even after a later attempt was answered**, up to
//!   [`Capabilities::late_write`](crate::Capabilities::late_write) after it was sent. It can only land if its condition
//!   holds again: so never delete a row that may be inserted by a late attempt, unless it has a TTL, and never let a
//!   row return to an earlier value.

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant};

use crate::{AppStorage, Conditional, Conflict, Error, ErrorKind, Outcome, Result};

const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// How long a conditional write is settled.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long each attempt may take.
    pub call_timeout: Duration,
    /// The end: no attempt is sent that could outlive it. For a leader, the end of its lease.
    pub until: Instant,
}

/// A [`write_if`](AppStorage::write_if) that sends the same bytes again while the outcome is unknown, and tells whether
/// they were written.
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
    let mut unknown: Option<Error> = None;
    let mut pause = PAUSE_MIN;
    loop {
        let deadline = clock.now() + patience.call_timeout;
        if deadline > patience.until {
            return Err(match unknown {
                Some(error) => {
                    Error::outcome_unknown("a conditional write was not settled in time")
                        .because(error)
                }
                None => {
                    Error::unavailable("no time is left for a conditional write; nothing was sent")
                }
            });
        }
        match storage.write_if(pkey.clone(), ops.clone(), deadline).await {
            Ok(Outcome::NotApplied(conflicts))
                if unknown.is_some() && is_ours(&ops, &conflicts) =>
            {
                return Ok(Outcome::Applied);
            }
            Ok(outcome) => return Ok(outcome),
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => unknown = Some(error),
            Err(error) if unknown.is_none() => return Err(error),
            // It says nothing about the attempts before it.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => {
                return Err(
                    Error::outcome_unknown("a conditional write was left open").because(error)
                );
            }
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether what stands in the way is what these operations wrote. They are all or nothing, so one row with a value that
/// only they write proves it; operations that write no new value have nothing to show but that every row they delete is gone.
fn is_ours(ops: &[Conditional], conflicts: &[Conflict]) -> bool {
    let is_new = |op: &Conditional| op.written().is_some() && op.written() != op.expected();
    if ops.iter().any(is_new) {
        let shows = |conflict: &Conflict| {
            let op = &ops[conflict.op];
            is_new(op) && conflict.there.as_ref() == op.written()
        };
        return conflicts.iter().any(shows);
    }
    let deletes = ops.iter().filter(|op| op.written().is_none()).count();
    let is_gone =
        |conflict: &Conflict| conflict.there.is_none() && ops[conflict.op].written().is_none();
    deletes > 0 && conflicts.len() == deletes && conflicts.iter().all(is_gone)
}
