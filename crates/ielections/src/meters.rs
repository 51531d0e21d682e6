//! What an election reports through the `metrics` facade:
//!
//! - gauge `ielections_leads{slot}`: 1 while this node leads the slot, else 0, from when it first wants to lead;
//! - counters `ielections_acquired_total{slot}` and `ielections_lost_total{slot, reason}`;
//! - histogram `ielections_left_seconds{slot}`: how much of the lead was left when a renewal was confirmed; what comes
//!   near 0 is about to be lost;
//! - histogram `ielections_call_seconds{op, result}`: the calls to the store; `result` is `ok`, `refused`, `unavailable`, `unknown` or
//!   `broken`.

use std::time::Duration;

use crate::{
    Lost, Slot, Written,
    engine::{Answer, Op},
};

/// All slots are there from the beginning: where nobody leads the sum is 0, and not nothing.
pub(crate) fn begins(slots: Slot) {
    for slot in 1..=slots.get() {
        // Not set: this node may lead the slot already.
        metrics::gauge!("ielections_leads", "slot" => slot.to_string()).increment(0);
    }
}

pub(crate) fn acquired(slot: Slot) {
    let slot = slot.to_string();
    metrics::counter!("ielections_acquired_total", "slot" => slot.clone()).increment(1);
    metrics::gauge!("ielections_leads", "slot" => slot).set(1);
}

pub(crate) fn lost(slot: Slot, why: Lost) {
    let slot = slot.to_string();
    metrics::counter!("ielections_lost_total", "slot" => slot.clone(), "reason" => why.name())
        .increment(1);
    metrics::gauge!("ielections_leads", "slot" => slot).set(0);
}

pub(crate) fn renewed(slot: Slot, left: Duration) {
    metrics::histogram!("ielections_left_seconds", "slot" => slot.to_string()).record(left);
}

pub(crate) fn called(op: &Op, answer: &Answer, took: Duration) {
    let op = match op {
        Op::Look => "look",
        Op::ReadEpoch(_) => "read_epoch",
        Op::Take { .. } => "take",
        Op::RaiseEpoch { .. } => "raise_epoch",
        Op::Renew { .. } => "renew",
        Op::Release { .. } => "release",
    };
    let result = match answer {
        Answer::Leases(_) | Answer::Row(_) | Answer::Written(Written::Done) => "ok",
        Answer::Written(Written::Refused(_)) => "refused",
        Answer::Unavailable => "unavailable",
        Answer::Unknown => "unknown",
        Answer::Broken => "broken",
    };
    metrics::histogram!("ielections_call_seconds", "op" => op, "result" => result).record(took);
}
