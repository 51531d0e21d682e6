//! The decisions of a leader, from the first moment of a leadership to its end.

use clock::Instant;

use super::{
    Action, Decision, ElectionEngine, EngineInput, Notice, StoreAnswer, StoreCall,
    state::{EngineState, LeaderState, LeadershipPhase},
};
use crate::{ConditionalOutcome, Lease, LossReason};

impl ElectionEngine {
    /// Waits for the first renewal.
    pub(super) fn start_to_lead(&mut self, lead: LeaderState) -> Action {
        let renewal = lead.sent + self.budget.timing().renew_every;
        self.state = EngineState::Leading(lead);
        Action::Wait(renewal)
    }

    pub(super) fn lead(&mut self, lead: LeaderState, now: Instant, input: EngineInput) -> Decision {
        match (lead.phase, input) {
            // Before the clock: all work has ended, so it does not matter whether the lease has.
            (LeadershipPhase::Working, EngineInput::Stopped) => {
                let released = self.release(lead, now);
                Decision { notice: Some(Notice::Lost(LossReason::Released)), ..released }
            }
            // The clock decides before every other input: an answer that arrives after
            // `valid_until` is too late.
            (LeadershipPhase::Working, _) if now >= lead.valid_until => {
                self.lose(lead, LossReason::Expired)
            }
            (LeadershipPhase::Working, EngineInput::Ends(why)) => self.lose(lead, why),
            (LeadershipPhase::Working, EngineInput::Woke) => self.renew(lead, now),
            (LeadershipPhase::Working, EngineInput::Answer(answer)) => {
                self.renewed(lead, now, answer)
            }
            (LeadershipPhase::Lost { is_ours: true }, EngineInput::Stopped) => {
                self.release(lead, now)
            }
            (LeadershipPhase::Releasing, EngineInput::Woke | EngineInput::Ends(_)) => {
                self.release(lead, now)
            }
            (
                LeadershipPhase::Releasing,
                EngineInput::Answer(StoreAnswer::Unknown | StoreAnswer::Unavailable),
            ) => {
                let again = now + self.budget.retry_pause();
                self.wait(EngineState::Leading(lead), again)
            }
            // A refused release found no lease of this leadership: an earlier try deleted it, or it
            // had expired.
            (LeadershipPhase::Releasing, EngineInput::Answer(StoreAnswer::Written(_)))
            | (LeadershipPhase::Lost { is_ours: false }, EngineInput::Stopped) => {
                self.end(Some(Notice::LeaseGone))
            }
            // The store is broken, or the time to stop is over: the lease expires.
            (
                LeadershipPhase::Lost { .. },
                EngineInput::Woke | EngineInput::Ends(_) | EngineInput::Answer(_),
            )
            | (
                LeadershipPhase::Releasing,
                EngineInput::Stopped
                | EngineInput::Answer(
                    StoreAnswer::Broken | StoreAnswer::Leases(_) | StoreAnswer::EpochRow(_),
                ),
            ) => self.end(None),
        }
    }

    fn renew(&mut self, lead: LeaderState, now: Instant) -> Decision {
        let timing = self.budget.timing();
        let op = StoreCall::Renew { seat: lead.seat, lease: lead.lease, ttl: timing.duration };
        let deadline = lead.valid_until.min(now + timing.call_timeout);
        self.call(EngineState::Leading(LeaderState { sent: now, ..lead }), op, deadline)
    }

    fn renewed(&mut self, lead: LeaderState, now: Instant, answer: StoreAnswer) -> Decision {
        match answer {
            StoreAnswer::Written(ConditionalOutcome::Done) => {
                let valid_until = self.budget.valid_until(lead.sent);
                let next = self.start_to_lead(LeaderState { valid_until, ..lead });
                Decision { notice: Some(Notice::Extended { valid_until }), next }
            }
            StoreAnswer::Written(ConditionalOutcome::Refused(None)) => {
                self.lose(lead, LossReason::Gone)
            }
            StoreAnswer::Written(ConditionalOutcome::Refused(Some(there))) => {
                self.lose(lead, LossReason::Taken(Lease::from_bytes(&there)))
            }
            StoreAnswer::Broken => self.lose(lead, LossReason::Broken),
            _ => {
                let again = lead.valid_until.min(now + self.budget.retry_pause());
                self.wait(EngineState::Leading(lead), again)
            }
        }
    }

    /// Waits for the work to stop; the lease stays in the store meanwhile. Work that has not
    /// stopped at `kill_at` is killed, and the lease expires.
    fn lose(&mut self, lead: LeaderState, why: LossReason) -> Decision {
        let is_ours = !matches!(why, LossReason::Gone | LossReason::Taken(_));
        let end = self.budget.kill_at(lead.valid_until);
        let waiting = self.wait(
            EngineState::Leading(LeaderState { phase: LeadershipPhase::Lost { is_ours }, ..lead }),
            end,
        );
        Decision { notice: Some(Notice::Lost(why)), ..waiting }
    }

    /// Releases the lease. Tries again until the work would have been killed.
    fn release(&mut self, lead: LeaderState, now: Instant) -> Decision {
        let end = self.budget.kill_at(lead.valid_until);
        if now >= end {
            return self.end(None);
        }
        let state = EngineState::Leading(LeaderState { phase: LeadershipPhase::Releasing, ..lead });
        if now < lead.work_from {
            return self.wait(state, lead.work_from);
        }
        let op = StoreCall::Release { seat: lead.seat, lease: lead.lease };
        let deadline = end.min(now + self.budget.timing().call_timeout);
        self.call(state, op, deadline)
    }
}
