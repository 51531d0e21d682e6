//! An engine with a mistake.
//!
//! An engine is a function: it receives inputs at certain times, and returns steps. An engine with
//! a mistake is another such function. So this module puts a mistake back between the engine and
//! the world: it changes the inputs or the steps. The engine itself has no code for mistakes.

use std::time::Duration;

use clock::Instant;
use ielections::{
    Budget, ConditionalOutcome, EpochRow, Lease, LossReason, Seat,
    engine::{
        Action, Candidacy, Decision, ElectionEngine, EngineInput, Notice, RandomSource,
        StoreAnswer, StoreCall,
    },
};

use crate::defect::Defect;

const DONE: StoreAnswer = StoreAnswer::Written(ConditionalOutcome::Done);

/// An engine, perhaps with a mistake.
pub(crate) struct Mistaken {
    engine: ElectionEngine,
    defect: Option<Defect>,
    budget: Budget,
    /// The call under way, and when it was sent.
    sent: Option<(StoreCall, Instant)>,
    /// How far the engine's time is behind the world's time. The leases of the engine end later by
    /// this much.
    behind: Duration,
    /// The engine's next thing to do, which waits for a call that a mistake has inserted.
    put_off: Option<Action>,
    /// The lease that is claimed or held.
    claimed: Option<(Seat, Lease)>,
    /// The lease that the engine wanted to delete, and that the mistake keeps.
    kept: Option<Lease>,
    leads: bool,
    has_led: bool,
    valid_until: Option<Instant>,
    /// The epoch row in the store.
    row: Option<EpochRow>,
}

impl Mistaken {
    pub(crate) fn new(
        candidacy: Candidacy,
        budget: Budget,
        random: RandomSource,
        defect: Option<Defect>,
    ) -> Mistaken {
        let owner = candidacy.owner.to_string();
        let of_node = owner.bytes().fold(0, |sum: u64, byte| (sum << 8) + u64::from(byte));
        let random = match defect {
            Some(Defect::OneIncarnation) => Box::new(move || of_node),
            _ => random,
        };
        Mistaken {
            engine: ElectionEngine::new(candidacy, budget, random),
            defect,
            budget,
            sent: None,
            behind: Duration::ZERO,
            put_off: None,
            claimed: None,
            kept: None,
            leads: false,
            has_led: false,
            valid_until: None,
            row: None,
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Returns the next thing to do after an input.
    pub(crate) fn next(&mut self, now: Instant, input: EngineInput) -> Decision {
        let sent = self.sent.take();
        let step = match (self.put_off.take(), &input) {
            (Some(next), EngineInput::Answer(_)) => Decision { notice: None, next },
            _ => self.asked(now, input, sent),
        };
        if let Action::Call(op, _) = &step.next {
            self.sent = Some((op.clone(), now));
        }
        step
    }

    fn asked(
        &mut self,
        now: Instant,
        input: EngineInput,
        sent: Option<(StoreCall, Instant)>,
    ) -> Decision {
        let was_leading = self.leads;
        let renews = matches!(sent, Some((StoreCall::Renew { .. }, _)));
        let mut input = match (input, sent) {
            (EngineInput::Answer(answer), Some((op, at))) => {
                EngineInput::Answer(self.heard(&op, answer, now - at))
            }
            (input, _) => input,
        };
        let heard_at = match self.valid_until {
            Some(end) if renews && self.has(Defect::ExtendsAfterEnd) => {
                now.min(end - Duration::from_nanos(1))
            }
            _ => now,
        };
        loop {
            let mut step = self.decide(heard_at, input);
            self.note(&step);
            self.replace_kept(&mut step);
            self.change_times(now, was_leading, &mut step);
            self.change_epoch(now, was_leading, &mut step);
            self.change_end(now, &mut step);
            let is_skipped = match step.next {
                Action::Call(StoreCall::RaiseEpoch { .. }, _) => self.has(Defect::NoRaise),
                Action::Call(StoreCall::Release { .. }, _) => {
                    self.keeps_seat();
                    (self.has(Defect::NeverGivesBack) || self.kept.is_some()) && !self.has_led
                }
                _ => false,
            };
            if !is_skipped {
                return step;
            }
            input = EngineInput::Answer(DONE);
        }
    }

    /// Returns the step of the engine, in the time of the world.
    fn decide(&mut self, now: Instant, input: EngineInput) -> Decision {
        let behind = self.behind;
        let Decision { mut notice, mut next } = self.engine.next(now - behind, input);
        if let Some(Notice::Leads { work_from, .. }) = &mut notice {
            *work_from = *work_from + behind;
        }
        if let Some(Notice::Leads { valid_until, .. } | Notice::Extended { valid_until }) =
            &mut notice
        {
            *valid_until = *valid_until + behind;
        }
        if let Action::Call(_, at) | Action::Wait(at) = &mut next {
            *at = *at + behind;
        }
        Decision { notice, next }
    }

    fn note(&mut self, step: &Decision) {
        match step.notice {
            Some(Notice::Leads { valid_until, .. }) => {
                (self.leads, self.has_led) = (true, true);
                self.valid_until = Some(valid_until);
            }
            Some(Notice::Extended { valid_until }) => self.valid_until = Some(valid_until),
            Some(Notice::Lost(_)) => self.leads = false,
            _ => {}
        }
        if let Action::Call(StoreCall::Take { seat, lease, .. }, _) = &step.next {
            self.claimed = Some((*seat, *lease));
        }
    }

    /// Replaces the kept lease, if the step takes a lease.
    fn replace_kept(&self, step: &mut Decision) {
        if let Action::Call(StoreCall::Take { over, .. }, _) = &mut step.next {
            *over = over.or(self.kept);
        }
    }

    /// Returns the answer that the engine receives instead of the true one.
    fn heard(&mut self, op: &StoreCall, answer: StoreAnswer, took: Duration) -> StoreAnswer {
        let Some(defect) = self.defect else { return answer };
        let is_refused = matches!(answer, StoreAnswer::Written(ConditionalOutcome::Refused(_)));
        let is_unknown = answer == StoreAnswer::Unknown;
        match (defect, op) {
            (Defect::RenewalCountsFromAnswer, StoreCall::Renew { .. })
            | (Defect::TakeCountsFromAnswer, StoreCall::Take { .. })
                if answer == DONE =>
            {
                self.behind += took;
                answer
            }
            (Defect::TakesWhatIsHeld, StoreCall::Take { .. })
            | (Defect::LeadsAfterLostRaise, StoreCall::RaiseEpoch { .. })
            | (Defect::RenewsWhatIsGone, StoreCall::Renew { .. })
                if is_refused =>
            {
                DONE
            }
            (Defect::TakesUnanswered, StoreCall::Take { .. })
            | (Defect::RaisesUnanswered, StoreCall::RaiseEpoch { .. })
            | (Defect::RenewsUnanswered, StoreCall::Renew { .. })
                if is_unknown =>
            {
                DONE
            }
            (Defect::UnansweredTakeIsRefused, StoreCall::Take { .. }) if is_unknown => {
                StoreAnswer::Written(ConditionalOutcome::Refused(None))
            }
            (Defect::KeepsSeatForEver, StoreCall::Look) => self.without_kept(answer),
            (Defect::GivesUpAtOnce, StoreCall::Look) if answer == StoreAnswer::Unavailable => {
                StoreAnswer::Broken
            }
            (Defect::StaleEpoch | Defect::SameEpoch, StoreCall::ReadEpoch(_)) => {
                self.row_heard(answer)
            }
            _ => answer,
        }
    }

    /// Returns the epoch row that the engine receives instead of the true one.
    fn row_heard(&mut self, answer: StoreAnswer) -> StoreAnswer {
        let StoreAnswer::EpochRow(row) = answer else { return answer };
        if self.row.is_none() || self.has(Defect::SameEpoch) {
            self.row = row.as_deref().and_then(EpochRow::from_bytes);
        }
        let mut heard = self.row;
        if let (Some(row), true) = (&mut heard, self.has(Defect::SameEpoch)) {
            row.epoch.0 -= 1;
        }
        StoreAnswer::EpochRow(heard.map(|row| row.to_bytes()))
    }

    fn keeps_seat(&mut self) {
        if self.has(Defect::KeepsSeatForEver) && !self.has_led {
            self.kept = self.claimed.map(|(_, lease)| lease);
        }
    }

    /// Removes the kept lease from the answer, so that the engine considers its seat free.
    fn without_kept(&self, answer: StoreAnswer) -> StoreAnswer {
        let StoreAnswer::Leases(mut seen) = answer else { return answer };
        seen.retain(|seen| self.kept.is_none_or(|kept| seen.value != kept.to_bytes()));
        StoreAnswer::Leases(seen)
    }

    /// Applies mistakes about times.
    fn change_times(&self, now: Instant, was_leading: bool, step: &mut Decision) {
        let Some(defect) = self.defect else { return };
        let late_write = self.budget.timing().late_write;
        match (defect, step) {
            (
                Defect::TakesTooShort,
                Decision { next: Action::Call(StoreCall::Take { ttl, .. }, _), .. },
            )
            | (
                Defect::RenewsTooShort,
                Decision { next: Action::Call(StoreCall::Renew { ttl, .. }, _), .. },
            ) => {
                *ttl -= late_write;
            }
            (Defect::WakesTooLate, Decision { next: Action::Wait(until), .. }) if was_leading => {
                *until = *until + Duration::from_millis(500);
            }
            (
                Defect::RenewsAtTheEnd,
                Decision {
                    notice:
                        Some(Notice::Leads { valid_until, .. } | Notice::Extended { valid_until }),
                    next: Action::Wait(until),
                },
            ) => *until = *valid_until,
            (Defect::LooksTooRarely, Decision { next: Action::Wait(until), .. })
                if !self.leads && !was_leading =>
            {
                *until = *until + Duration::from_secs(10);
            }
            (
                Defect::WorksAtOnceAfterComeback,
                Decision { notice: Some(Notice::Leads { work_from, .. }), .. },
            ) => *work_from = now,
            _ => {}
        }
    }

    /// Applies mistakes about the epoch.
    fn change_epoch(&mut self, now: Instant, was_leading: bool, step: &mut Decision) {
        let raises = matches!(step.next, Action::Call(StoreCall::RaiseEpoch { .. }, _));
        if self.has(Defect::SameEpoch)
            && let Action::Call(StoreCall::RaiseEpoch { from, .. }, _) = &mut step.next
        {
            *from = self.row;
        }
        if self.has(Defect::EpochAfterLead)
            && let Some((seat, lease)) = self.claimed
        {
            if raises && !was_leading {
                let valid_until = self.budget.valid_until(now);
                step.notice = Some(Notice::Leads { seat, lease, work_from: now, valid_until });
                self.leads = true;
            } else if was_leading && matches!(step.notice, Some(Notice::Leads { .. })) {
                step.notice = None;
            }
        }
    }

    /// Applies mistakes about the end of a leadership.
    fn change_end(&mut self, now: Instant, step: &mut Decision) {
        let is_lost = matches!(step.notice, Some(Notice::Lost(why)) if why != LossReason::Released);
        if self.has(Defect::LostIsNotTold) && is_lost {
            step.notice = None;
        }
        if self.has(Defect::ReleaseBeforeStop)
            && is_lost
            && let Some((seat, lease)) = self.claimed
        {
            let deadline = now + self.budget.timing().call_timeout;
            let release = Action::Call(StoreCall::Release { seat, lease }, deadline);
            self.put_off = Some(std::mem::replace(&mut step.next, release));
        }
    }
}
