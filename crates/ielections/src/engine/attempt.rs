//! The decisions of an attempt, from a slot that looks free to the leadership.

use clock::Instant;

use super::{Answer, Engine, GaveUp, Input, Notice, Op, State, Step, lead::Lead, next_epoch};
use crate::{EpochRow, Incarnation, Lease, Slot, Written};

/// An attempt to lead.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    slot: Slot,
    /// The lease of a former process of this node, which the attempt replaces.
    over: Option<Lease>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    ReadingEpoch,
    Taking(Claim),
    Raising(Claim),
}

/// The rows that an attempt writes.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// The time at which the lease was sent for the first time. The lease counts from this time,
    /// whichever of several sendings wrote it.
    sent: Instant,
    lease: Lease,
    /// The epoch row as it was read.
    from: Option<EpochRow>,
    /// Whether a sending in this phase got no answer.
    open: bool,
}

impl Claim {
    fn raised(&self) -> EpochRow {
        EpochRow { epoch: self.lease.epoch, incarnation: self.lease.incarnation }
    }
}

impl Engine {
    pub(super) fn begin(&mut self, slot: Slot, over: Option<Lease>, now: Instant) -> Step {
        self.attempt(Attempt { slot, over, phase: Phase::ReadingEpoch }, now, Input::Woke)
    }

    pub(super) fn attempt(&mut self, attempt: Attempt, now: Instant, input: Input) -> Step {
        let answer = match input {
            Input::Answer(answer) => Some(answer),
            _ => None,
        };
        match (attempt.phase.clone(), answer) {
            (_, Some(Answer::Broken)) => self.give_up(GaveUp::Broken),
            (Phase::ReadingEpoch, None) => {
                let deadline = now + self.budget.timing().call_timeout;
                let op = Op::ReadEpoch(attempt.slot);
                self.call(State::Attempting(attempt), op, deadline)
            }
            (Phase::ReadingEpoch, Some(Answer::Row(row))) => {
                let row = row.map(|bytes| EpochRow::from_bytes(&bytes).ok_or(()));
                let corrupt = GaveUp::Corrupt(attempt.slot);
                let Ok(from) = row.transpose() else { return self.give_up(corrupt) };
                let Some(epoch) = next_epoch(from) else { return self.give_up(corrupt) };
                let random = u128::from((self.random)()) << 64 | u128::from((self.random)());
                let incarnation = Incarnation(random);
                let lease = Lease { owner: self.candidacy.owner, incarnation, epoch };
                let claim = Claim { sent: now, lease, from, open: false };
                self.send(Attempt { phase: Phase::Taking(claim), ..attempt }, claim, now)
            }
            (Phase::ReadingEpoch, Some(_)) => self.rest(now),
            (Phase::Taking(claim) | Phase::Raising(claim), None) => self.send(attempt, claim, now),
            (Phase::Taking(claim), Some(answer)) => self.taken(attempt, claim, now, answer),
            (Phase::Raising(claim), Some(answer)) => self.raised(attempt, claim, now, answer),
        }
    }

    /// Sends the lease or the epoch, for the first time or again, while there is time to lead.
    fn send(&mut self, attempt: Attempt, claim: Claim, now: Instant) -> Step {
        let Attempt { slot, over, .. } = attempt;
        let until = self.budget.valid_until(claim.sent);
        if now >= until {
            return self.give_back(&attempt, claim, now);
        }
        let deadline = until.min(now + self.budget.timing().call_timeout);
        let op = match attempt.phase {
            Phase::Raising(_) => Op::RaiseEpoch { slot, from: claim.from, to: claim.raised() },
            _ => Op::Take { slot, lease: claim.lease, over, ttl: self.budget.timing().duration },
        };
        self.call(State::Attempting(attempt), op, deadline)
    }

    fn taken(&mut self, attempt: Attempt, claim: Claim, now: Instant, answer: Answer) -> Step {
        let is_own = |there: &Option<bytes::Bytes>| *there == Some(claim.lease.to_bytes());
        match answer {
            Answer::Written(Written::Done) => self.go_on_to_raise(attempt, claim, now),
            // An earlier sending was done.
            Answer::Written(Written::Refused(there)) if is_own(&there) => {
                self.go_on_to_raise(attempt, claim, now)
            }
            Answer::Unknown => {
                self.send_again(attempt, Phase::Taking(Claim { open: true, ..claim }), now)
            }
            Answer::Unavailable if claim.open => {
                self.send_again(attempt, Phase::Taking(claim), now)
            }
            // Another node was quicker, or nothing was done.
            _ => self.rest(now),
        }
    }

    fn go_on_to_raise(&mut self, attempt: Attempt, claim: Claim, now: Instant) -> Step {
        let claim = Claim { open: false, ..claim };
        self.send(Attempt { phase: Phase::Raising(claim), ..attempt }, claim, now)
    }

    fn raised(&mut self, attempt: Attempt, claim: Claim, now: Instant, answer: Answer) -> Step {
        let is_own = |there: &Option<bytes::Bytes>| *there == Some(claim.raised().to_bytes());
        let is_raised = match &answer {
            Answer::Written(Written::Done) => true,
            Answer::Written(Written::Refused(there)) => is_own(there),
            _ => return self.send_again(attempt, Phase::Raising(claim), now),
        };
        let valid_until = self.budget.valid_until(claim.sent);
        if !is_raised || now >= valid_until {
            return self.give_back(&attempt, claim, now);
        }
        let (slot, lease) = (attempt.slot, claim.lease);
        let work_from = match attempt.over {
            None => now,
            Some(_) => now + self.budget.timing().late_writes,
        };
        let lead = Lead::new(slot, lease, claim.sent, valid_until, work_from);
        let next = self.start_to_lead(lead);
        Step { notice: Some(Notice::Leads { slot, lease, work_from, valid_until }), next }
    }

    fn send_again(&mut self, attempt: Attempt, phase: Phase, now: Instant) -> Step {
        let again = now + self.budget.retry_pause();
        self.wait(State::Attempting(Attempt { phase, ..attempt }), again)
    }

    /// Deletes the lease of an attempt that failed, so that no node waits until it expires.
    ///
    /// A lease that replaced a lease of a former process is not deleted while writes of that
    /// process may land. The lease stays until it expires. That is later than the last of these
    /// writes, even if the clock of this node is wrong.
    ///
    /// The node may replace such a lease for `late_writes` only: a node that cannot raise the epoch
    /// must not hold the slot for ever.
    fn give_back(&mut self, attempt: &Attempt, claim: Claim, now: Instant) -> Step {
        let late_writes = self.budget.timing().late_writes;
        if attempt.over.is_none() || late_writes.is_zero() {
            return self.withdraw(attempt.slot, claim.lease, now, Input::Woke);
        }
        if self.began.is_some_and(|began| now < began + late_writes) {
            self.candidacy.former.push(claim.lease);
        }
        self.rest(now)
    }
}
