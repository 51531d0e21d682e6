//! The decisions of a candidate: it looks for a seat that looks free, and tries to become its
//! leader.

use std::time::Duration;

use clock::Instant;

use super::{
    Candidacy, Decision, ElectionEngine, EngineInput, GiveUpReason, Notice, StoreAnswer, StoreCall,
    state::{Attempt, AttemptPhase, Claim, EngineState, LeaderState, LeadershipPhase},
};
use crate::{
    ConditionalOutcome, Epoch, EpochRow, Incarnation, Lease, ObservedLease, Seat, Timing,
    budget::{LOOK_EVERY_MAX, LOOK_EVERY_MIN},
};

impl ElectionEngine {
    pub(super) fn look(&mut self, now: Instant, input: EngineInput) -> Decision {
        let EngineInput::Answer(answer) = input else {
            if now >= self.candidacy.until
                && let Some(why) = self.why_not
            {
                return self.give_up(why);
            }
            return self.call(
                EngineState::Looking,
                StoreCall::Look,
                now + self.budget.timing().call_timeout,
            );
        };
        self.why_not = Some(match answer {
            StoreAnswer::Leases(_) => GiveUpReason::Waited,
            _ => GiveUpReason::Unavailable,
        });
        match answer {
            StoreAnswer::Leases(seen) => match self.choose(&seen) {
                Some((seat, over)) => self.begin(seat, over, now),
                None => {
                    let again = self.look_again(now, &seen);
                    self.wait_to_look(again)
                }
            },
            StoreAnswer::Broken => self.give_up(GiveUpReason::Broken),
            _ => self.rest(now),
        }
    }

    /// Returns a seat that can be taken: a seat with a lease of this node's former process, or else
    /// the first free seat.
    fn choose(&self, seen: &[ObservedLease]) -> Option<(Seat, Option<Lease>)> {
        let Candidacy { last_seat, former, .. } = &self.candidacy;
        let own = |seen: &ObservedLease| {
            Lease::from_bytes(&seen.value).filter(|own| former.contains(own))
        };
        let mut wanted = seen.iter().filter(|seen| seen.seat <= *last_seat);
        if let Some(own) = wanted.find_map(|seen| Some((seen.seat, Some(own(seen)?)))) {
            return Some(own);
        }
        let seats = last_seat.get();
        let place = |n: u32| (u64::from(self.first_seat) + u64::from(n)) % u64::from(seats) + 1;
        let order = (0..seats).filter_map(|n| Seat::new(place(n) as u32));
        let mut free = order.filter(|seat| seen.iter().all(|seen| seen.seat != *seat));
        Some((free.next()?, None))
    }

    /// Returns the time of the next look: after a pause, or when the next lease ends if the end is
    /// near.
    fn look_again(&mut self, now: Instant, seen: &[ObservedLease]) -> Instant {
        let pause = self.pause();
        let ends = seen
            .iter()
            .filter(|seen| seen.seat <= self.candidacy.last_seat)
            .map(|seen| seen.left)
            .min();
        match ends {
            Some(left) if left >= LOOK_EVERY_MIN && left < pause + LOOK_EVERY_MIN => {
                now + left + Duration::from_micros((self.random)() % 10_000)
            }
            _ => now + pause,
        }
    }

    /// Returns the pause of a candidate. A part of the pause is random, so that several candidates
    /// do not move in step.
    fn pause(&mut self) -> Duration {
        let chance = (LOOK_EVERY_MAX - LOOK_EVERY_MIN).as_micros() as u64;
        LOOK_EVERY_MIN + Duration::from_micros((self.random)() % chance)
    }

    /// Looks again after a pause.
    pub(super) fn rest(&mut self, now: Instant) -> Decision {
        let pause = self.pause();
        self.wait_to_look(now + pause)
    }

    /// Looks again at `then`, or gives up when the candidate's time is over.
    fn wait_to_look(&mut self, then: Instant) -> Decision {
        self.wait(EngineState::Looking, then.min(self.candidacy.until))
    }

    fn begin(&mut self, seat: Seat, over: Option<Lease>, now: Instant) -> Decision {
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
        match (attempt.phase, answer) {
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
                self.taken(attempt, claim, is_unsettled, now, answer)
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
        claim: Claim,
        is_unsettled: bool,
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
            // This write or an earlier try of it was done.
            StoreAnswer::Written(_) => {
                self.send(Attempt { phase: AttemptPhase::Raising(claim), ..attempt }, claim, now)
            }
            // A write that the store refuses as unavailable was not done. If an earlier try got no
            // answer, the refusal proves nothing about that try, so the lease is sent again.
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
        let (sent, phase) = (claim.sent, LeadershipPhase::Working);
        let lead = LeaderState { seat, lease, sent, valid_until, work_from, phase };
        let next = self.start_to_lead(lead);
        Decision { notice: Some(Notice::Leads { seat, lease, work_from, valid_until }), next }
    }

    fn send_again(&mut self, attempt: Attempt, phase: AttemptPhase, now: Instant) -> Decision {
        let again = now + self.budget.retry_pause();
        self.wait(EngineState::Attempting(Attempt { phase, ..attempt }), again)
    }

    /// Deletes the lease of a failed attempt, so that no node has to wait until the lease expires.
    ///
    /// A lease that replaced a lease of a former process is not deleted while writes of that
    /// process may land. The lease stays until it expires. That is later than the last of these
    /// writes, even if the clock of this node is wrong.
    ///
    /// The node may replace such a lease for `late_write` only: a node that cannot raise the epoch
    /// must not hold the seat forever.
    fn give_back(&mut self, attempt: &Attempt, claim: Claim, now: Instant) -> Decision {
        let Timing { late_write, call_timeout, .. } = *self.budget.timing();
        if attempt.over.is_none() || late_write.is_zero() {
            let op = StoreCall::Release { seat: attempt.seat, lease: claim.lease };
            return self.call(EngineState::Withdrawing, op, now + call_timeout);
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
