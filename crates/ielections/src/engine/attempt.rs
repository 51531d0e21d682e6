//! The decisions of an attempt, from a seat that looks free to the leadership.

use clock::Instant;

use super::{
    Decision, ElectionEngine, EngineInput, EngineState, GiveUpReason, Notice, StoreAnswer,
    StoreCall, leader::LeaderState,
};
use crate::{ConditionalOutcome, Epoch, EpochRow, Incarnation, Lease, Seat};

/// An attempt to lead.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    seat: Seat,
    /// The lease of a former process of this node, which the attempt replaces.
    over: Option<Lease>,
    phase: AttemptPhase,
}

#[derive(Clone, Debug)]
enum AttemptPhase {
    ReadingEpoch,
    Taking {
        claim: Claim,
        /// Whether a sending of the lease got no answer.
        is_unsettled: bool,
    },
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
}

impl Claim {
    /// The epoch row that the attempt writes.
    fn epoch_row(&self) -> EpochRow {
        EpochRow { epoch: self.lease.epoch, incarnation: self.lease.incarnation }
    }
}

impl ElectionEngine {
    pub(super) fn begin(&mut self, seat: Seat, over: Option<Lease>, now: Instant) -> Decision {
        self.attempt(
            Attempt { seat, over, phase: AttemptPhase::ReadingEpoch },
            now,
            EngineInput::Woke,
        )
    }

    pub(super) fn attempt(
        &mut self,
        attempt: Attempt,
        now: Instant,
        input: EngineInput,
    ) -> Decision {
        let answer = match input {
            EngineInput::Answer(answer) => Some(answer),
            _ => None,
        };
        match (attempt.phase.clone(), answer) {
            (_, Some(StoreAnswer::Broken)) => self.give_up(GiveUpReason::Broken),
            (AttemptPhase::ReadingEpoch, None) => {
                let deadline = now + self.budget.timing().call_timeout;
                let op = StoreCall::ReadEpoch(attempt.seat);
                self.call(EngineState::Attempting(attempt), op, deadline)
            }
            (AttemptPhase::ReadingEpoch, Some(StoreAnswer::EpochRow(row))) => {
                let row = row.map(|bytes| EpochRow::from_bytes(&bytes).ok_or(()));
                let corrupt = GiveUpReason::Corrupt(attempt.seat);
                let Ok(from) = row.transpose() else { return self.give_up(corrupt) };
                let Some(epoch) = next_epoch(from) else { return self.give_up(corrupt) };
                let random = u128::from((self.random)()) << 64 | u128::from((self.random)());
                let incarnation = Incarnation(random);
                let lease = Lease { owner: self.candidacy.owner, incarnation, epoch };
                let claim = Claim { sent: now, lease, from };
                let phase = AttemptPhase::Taking { claim, is_unsettled: false };
                self.send(Attempt { phase, ..attempt }, claim, now)
            }
            (AttemptPhase::ReadingEpoch, Some(_)) => self.rest(now),
            (AttemptPhase::Taking { claim, .. } | AttemptPhase::Raising(claim), None) => {
                self.send(attempt, claim, now)
            }
            (AttemptPhase::Taking { claim, is_unsettled }, Some(answer)) => {
                self.taken(attempt, (claim, is_unsettled), now, answer)
            }
            (AttemptPhase::Raising(claim), Some(answer)) => {
                self.raised(attempt, claim, now, answer)
            }
        }
    }

    /// Sends the lease or the epoch, for the first time or again, while there is time to lead.
    fn send(&mut self, attempt: Attempt, claim: Claim, now: Instant) -> Decision {
        let Attempt { seat, over, .. } = attempt;
        let until = self.budget.valid_until(claim.sent);
        if now >= until {
            return self.give_back(&attempt, claim, now);
        }
        let deadline = until.min(now + self.budget.timing().call_timeout);
        let op = match attempt.phase {
            AttemptPhase::Raising(_) => {
                StoreCall::RaiseEpoch { seat, from: claim.from, to: claim.epoch_row() }
            }
            _ => StoreCall::Take {
                seat,
                lease: claim.lease,
                over,
                ttl: self.budget.timing().duration,
            },
        };
        self.call(EngineState::Attempting(attempt), op, deadline)
    }

    fn taken(
        &mut self,
        attempt: Attempt,
        (claim, is_unsettled): (Claim, bool),
        now: Instant,
        answer: StoreAnswer,
    ) -> Decision {
        let own = Some(claim.lease.to_bytes());
        let is_unsettled = is_unsettled || answer == StoreAnswer::Unknown;
        match answer {
            // Another lease is in the seat, or the lease to replace is gone.
            StoreAnswer::Written(ConditionalOutcome::Refused(there)) if there != own => {
                self.rest(now)
            }
            // This sending or an earlier one was done.
            StoreAnswer::Written(_) => {
                self.send(Attempt { phase: AttemptPhase::Raising(claim), ..attempt }, claim, now)
            }
            // A sending that the store refuses as unavailable was not done. After a sending without
            // an answer this proves nothing, so the lease is sent again.
            StoreAnswer::Unknown | StoreAnswer::Unavailable if is_unsettled => {
                self.send_again(attempt, AttemptPhase::Taking { claim, is_unsettled }, now)
            }
            // Nothing was done.
            _ => self.rest(now),
        }
    }

    fn raised(
        &mut self,
        attempt: Attempt,
        claim: Claim,
        now: Instant,
        answer: StoreAnswer,
    ) -> Decision {
        let is_own = |there: &Option<bytes::Bytes>| *there == Some(claim.epoch_row().to_bytes());
        let is_raised = match &answer {
            StoreAnswer::Written(ConditionalOutcome::Done) => true,
            StoreAnswer::Written(ConditionalOutcome::Refused(there)) => is_own(there),
            _ => return self.send_again(attempt, AttemptPhase::Raising(claim), now),
        };
        let valid_until = self.budget.valid_until(claim.sent);
        if !is_raised || now >= valid_until {
            return self.give_back(&attempt, claim, now);
        }
        let (seat, lease) = (attempt.seat, claim.lease);
        let work_from = match attempt.over {
            None => now,
            Some(_) => now + self.budget.timing().late_write,
        };
        let lead = LeaderState::new(seat, lease, claim.sent, valid_until, work_from);
        let next = self.start_to_lead(lead);
        Decision { notice: Some(Notice::Leads { seat, lease, work_from, valid_until }), next }
    }

    fn send_again(&mut self, attempt: Attempt, phase: AttemptPhase, now: Instant) -> Decision {
        let again = now + self.budget.retry_pause();
        self.wait(EngineState::Attempting(Attempt { phase, ..attempt }), again)
    }

    /// Deletes the lease of an attempt that failed, so that no node waits until it expires.
    ///
    /// A lease that replaced a lease of a former process is not deleted while writes of that
    /// process may land. The lease stays until it expires. That is later than the last of these
    /// writes, even if the clock of this node is wrong.
    ///
    /// The node may replace such a lease for `late_write` only: a node that cannot raise the epoch
    /// must not hold the seat for ever.
    fn give_back(&mut self, attempt: &Attempt, claim: Claim, now: Instant) -> Decision {
        let late_write = self.budget.timing().late_write;
        if attempt.over.is_none() || late_write.is_zero() {
            return self.withdraw(attempt.seat, claim.lease, now, EngineInput::Woke);
        }
        if self.began.is_some_and(|began| now < began + late_write) {
            self.candidacy.former.push(claim.lease);
        }
        self.rest(now)
    }
}

fn next_epoch(row: Option<EpochRow>) -> Option<Epoch> {
    row.map_or(Some(Epoch(1)), |row| row.epoch.0.checked_add(1).map(Epoch))
}
