//! The decisions of a candidate that looks for a seat.

use std::time::Duration;

use clock::Instant;

use super::{
    Candidacy, Decision, ElectionEngine, EngineInput, EngineState, GiveUpReason, StoreAnswer,
    StoreCall,
};
use crate::{
    Lease, ObservedLease, Seat,
    budget::{LOOK_EVERY_MAX, LOOK_EVERY_MIN},
};

impl ElectionEngine {
    pub(super) fn look(&mut self, now: Instant, input: EngineInput) -> Decision {
        let EngineInput::Answer(answer) = input else {
            if now >= self.candidacy.until
                && let Some(is_there) = self.store_answers
            {
                return self.give_up(if is_there {
                    GiveUpReason::Waited
                } else {
                    GiveUpReason::Unavailable
                });
            }
            return self.call(
                EngineState::Looking,
                StoreCall::Look,
                now + self.budget.timing().call_timeout,
            );
        };
        self.store_answers = Some(matches!(answer, StoreAnswer::Leases(_)));
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
}
