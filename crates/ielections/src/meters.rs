//! The metrics of an election, reported through the `metrics` facade.
//!
//! - Gauge `ielections_leads{seat}`: 1 while this node leads the seat, else 0. The gauge exists
//!   once the node first competes.
//! - Counters `ielections_acquired_total{seat}` and `ielections_lost_total{seat, reason}`.
//! - Histogram `ielections_left_seconds{seat}`: how much time the leadership had left when a
//!   renewal was confirmed. A value near 0 shows a leadership that is about to be lost.
//! - Histogram `ielections_call_seconds{op, result}`: the calls to the store. `result` is `ok`,
//!   `refused`, `unavailable`, `unknown` or `broken`.

use std::time::Duration;

use crate::{
    ConditionalOutcome, LossReason, Seat,
    engine::{StoreAnswer, StoreCall},
};

/// Creates the gauges of all seats at the beginning. So the sum of a seat without a leader is 0,
/// and not missing.
pub(crate) fn begins(last_seat: Seat) {
    for seat in 1..=last_seat.get() {
        // `increment(0)` instead of `set(0)`: this node may already lead the seat.
        metrics::gauge!("ielections_leads", "seat" => seat.to_string()).increment(0);
    }
}

pub(crate) fn acquired(seat: Seat) {
    let seat = seat.to_string();
    metrics::counter!("ielections_acquired_total", "seat" => seat.clone()).increment(1);
    metrics::gauge!("ielections_leads", "seat" => seat).set(1);
}

pub(crate) fn lost(seat: Seat, why: LossReason) {
    let seat = seat.to_string();
    metrics::counter!("ielections_lost_total", "seat" => seat.clone(), "reason" => why.name())
        .increment(1);
    metrics::gauge!("ielections_leads", "seat" => seat).set(0);
}

pub(crate) fn renewed(seat: Seat, left: Duration) {
    metrics::histogram!("ielections_left_seconds", "seat" => seat.to_string()).record(left);
}

pub(crate) fn called(op: &StoreCall, answer: &StoreAnswer, took: Duration) {
    let result = match answer {
        StoreAnswer::Leases(_)
        | StoreAnswer::EpochRow(_)
        | StoreAnswer::Written(ConditionalOutcome::Done) => "ok",
        StoreAnswer::Written(ConditionalOutcome::Refused(_)) => "refused",
        StoreAnswer::Unavailable => "unavailable",
        StoreAnswer::Unknown => "unknown",
        StoreAnswer::Broken => "broken",
    };
    metrics::histogram!("ielections_call_seconds", "op" => op.name(), "result" => result)
        .record(took);
}
