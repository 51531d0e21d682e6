//! Settling: conditional writes with an unknown outcome.
//!
//! A conditional write that is answered with [`ErrorKind::OutcomeUnknown`] may be applied, or may
//! still land. A read that finds no row, or the old value of a swap, settles nothing. For example,
//! a client sends an insert and gets no answer. The client then reads, finds no row, and takes the
//! insert for lost. Then the insert lands. So the caller sends the same bytes again until there is
//! a definite answer. If a resend is not applied, the conflicting rows show whether an earlier
//! attempt of the same caller was applied.
//!
//! The caller has three duties:
//! - **The values are unique to the attempt**: equality is the only proof of success.
//! - **No other client swaps or deletes the rows while they are settled.** Suppose that an attempt
//!   of the caller was applied, and that another client then changed the row. The answer is then
//!   "not applied". Where other clients may change the row, let the value carry its history.
//! - **An attempt without an answer may land even after a later attempt was answered**, up to
//!   [`Capabilities::late_write`](crate::Capabilities::late_write) after it was sent. A late
//!   attempt lands only if its condition holds again. So never delete a row that a late attempt may
//!   insert, unless the row has a TTL, and never let a row return to an earlier value.

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant};

use crate::{AppStorage, Conditional, Conflict, Error, ErrorKind, Outcome, Result};

const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The limits of settling a conditional write.
#[derive(Clone, Copy, Debug)]
pub struct SettleLimits {
    /// The longest time of each attempt.
    pub call_timeout: Duration,
    /// The end of settling: no attempt is sent that could outlive this moment. For a leader, the
    /// end of its lease.
    pub until: Instant,
}

/// Sends a [`write_if`](AppStorage::write_if) with the same bytes again while the outcome is
/// unknown, and answers whether the bytes were written.
///
/// If the first attempt is refused, it is not repeated: nothing was written.
///
/// # Errors
/// `OutcomeUnknown` if the time is up, or if an attempt is refused for another reason than
/// `Unavailable`, while the outcome of an earlier attempt is unknown. The write may be applied or
/// may still land, so the caller must not use the claimed values again. Any other kind means that
/// nothing was written.
///
/// # Cancel safety
/// Dropping the future leaves the outcome unknown.
pub async fn write_if_settled<S: AppStorage + ?Sized>(
    storage: &S,
    clock: &Clock,
    pkey: Bytes,
    ops: Vec<Conditional>,
    limits: SettleLimits,
) -> Result<Outcome> {
    let mut unknown: Option<Error> = None;
    let mut pause = PAUSE_MIN;
    loop {
        let deadline = clock.now() + limits.call_timeout;
        if deadline > limits.until {
            return Err(match unknown {
                Some(error) => Error::outcome_unknown(
                    "the outcome of a conditional write is unknown: it was not settled in time",
                )
                .with_source(error),
                None => {
                    Error::unavailable("no time is left for a conditional write; nothing was sent")
                }
            });
        }
        match storage.write_if(pkey.clone(), ops.clone(), deadline).await {
            Ok(Outcome::NotApplied(conflicts))
                if unknown.is_some() && was_applied(&ops, &conflicts) =>
            {
                return Ok(Outcome::Applied);
            }
            Ok(outcome) => return Ok(outcome),
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => unknown = Some(error),
            Err(error) if unknown.is_none() => return Err(error),
            // This refusal says nothing about the attempts before it, which may still land.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => {
                return Err(
                    Error::outcome_unknown("the outcome of a conditional write is unknown: the storage refused to settle it").with_source(error)
                );
            }
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether the conflicting rows hold the values that these operations wrote.
///
/// The operations are all or nothing. So one row with a value that only these operations write
/// proves that all are applied. Operations that write no new value leave one trace only: every row
/// that they delete is gone. A swap to the same bytes leaves no conflict, and so proves nothing.
fn was_applied(ops: &[Conditional], conflicts: &[Conflict]) -> bool {
    let is_new = |op: &Conditional| op.written().is_some() && op.written() != op.expected();
    if ops.iter().any(is_new) {
        let shows = |conflict: &Conflict| {
            let op = &ops[conflict.op];
            is_new(op) && conflict.actual.as_ref() == op.written()
        };
        return conflicts.iter().any(shows);
    }
    let deletes = ops.iter().filter(|op| op.written().is_none()).count();
    let is_gone =
        |conflict: &Conflict| conflict.actual.is_none() && ops[conflict.op].written().is_none();
    deletes > 0 && conflicts.len() == deletes && conflicts.iter().all(is_gone)
}
