//! The decisions of a leader, from the first moment of a leadership to its end.

use clock::Instant;

use super::{Answer, Engine, Input, Next, Notice, Op, State, Step};
use crate::{Lease, Lost, Slot, Written};

/// A leadership, or its lease that remains to be released.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    slot: Slot,
    lease: Lease,
    /// The time at which the last successful write of the lease was sent.
    written: Instant,
    valid_until: Instant,
    /// The time before which writes of a former process of this node may land.
    work_from: Instant,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Working {
        renewal: Option<Instant>,
    },
    /// The leadership is lost, and its work was told to stop. The lease may still be this node's
    /// own.
    Lost {
        is_ours: bool,
    },
    Releasing,
}

impl Lead {
    pub(super) fn new(
        slot: Slot,
        lease: Lease,
        written: Instant,
        valid_until: Instant,
        work_from: Instant,
    ) -> Lead {
        let phase = Phase::Working { renewal: None };
        Lead { slot, lease, written, valid_until, work_from, phase }
    }
}

impl Engine {
    /// Waits for the first renewal.
    pub(super) fn start_to_lead(&mut self, lead: Lead) -> Next {
        let renewal = lead.written + self.budget.timing().renew_every;
        self.state = State::Leading(lead);
        Next::Wait(renewal)
    }

    pub(super) fn lead(&mut self, lead: Lead, now: Instant, input: Input) -> Step {
        match (&lead.phase, input) {
            (Phase::Working { .. }, Input::Stopped) => {
                let released = self.release(lead, now);
                Step { notice: Some(Notice::Lost(Lost::Released)), ..released }
            }
            // The clock decides before any input: an answer that arrives after `valid_until` is too
            // late.
            (Phase::Working { .. }, _) if now >= lead.valid_until => self.lose(lead, Lost::Expired),
            (Phase::Working { .. }, Input::Ends(why)) => self.lose(lead, why),
            (Phase::Working { .. }, Input::Woke) => self.renew(lead, now),
            (Phase::Working { renewal: Some(sent) }, Input::Answer(answer)) => {
                let sent = *sent;
                self.renewed(lead, sent, now, answer)
            }
            (Phase::Lost { is_ours: true }, Input::Stopped) => self.release(lead, now),
            (Phase::Releasing, Input::Woke | Input::Ends(_)) => self.release(lead, now),
            (Phase::Releasing, Input::Answer(Answer::Unknown | Answer::Unavailable)) => {
                let again = now + self.budget.retry_pause();
                self.wait(State::Leading(lead), again)
            }
            // The lease is released; or no lease is left to release; or the time to stop is over,
            // and the lease expires.
            _ => Step { notice: None, next: Next::End },
        }
    }

    fn renew(&mut self, lead: Lead, now: Instant) -> Step {
        let timing = self.budget.timing();
        let op = Op::Renew { slot: lead.slot, lease: lead.lease, ttl: timing.duration };
        let deadline = lead.valid_until.min(now + timing.call_timeout);
        let phase = Phase::Working { renewal: Some(now) };
        self.call(State::Leading(Lead { phase, ..lead }), op, deadline)
    }

    fn renewed(&mut self, lead: Lead, sent: Instant, now: Instant, answer: Answer) -> Step {
        match answer {
            Answer::Written(Written::Done) => {
                let valid_until = self.budget.valid_until(sent);
                let phase = Phase::Working { renewal: None };
                let next = self.start_to_lead(Lead { written: sent, valid_until, phase, ..lead });
                Step { notice: Some(Notice::Extended { valid_until }), next }
            }
            Answer::Written(Written::Refused(None)) => self.lose(lead, Lost::Gone),
            Answer::Written(Written::Refused(Some(there))) => {
                self.lose(lead, Lost::Taken(Lease::from_bytes(&there)))
            }
            Answer::Broken => self.lose(lead, Lost::Broken),
            _ => {
                let again = lead.valid_until.min(now + self.budget.retry_pause());
                self.wait(State::Leading(lead), again)
            }
        }
    }

    /// Waits for the work to stop; the lease stays in the store meanwhile. Work that has not
    /// stopped at `kill_at` is killed, and the lease expires.
    fn lose(&mut self, lead: Lead, why: Lost) -> Step {
        let is_ours = !matches!(why, Lost::Gone | Lost::Taken(_));
        let end = self.budget.kill_at(lead.valid_until);
        let waiting =
            self.wait(State::Leading(Lead { phase: Phase::Lost { is_ours }, ..lead }), end);
        Step { notice: Some(Notice::Lost(why)), ..waiting }
    }

    /// Releases the lease, and tries until the time at which the work would have been killed.
    fn release(&mut self, lead: Lead, now: Instant) -> Step {
        let end = self.budget.kill_at(lead.valid_until);
        if now >= end {
            return Step { notice: None, next: Next::End };
        }
        if now < lead.work_from {
            let work_from = lead.work_from;
            return self.wait(State::Leading(Lead { phase: Phase::Releasing, ..lead }), work_from);
        }
        let op = Op::Release { slot: lead.slot, lease: lead.lease };
        let deadline = end.min(now + self.budget.timing().call_timeout);
        self.call(State::Leading(Lead { phase: Phase::Releasing, ..lead }), op, deadline)
    }
}
