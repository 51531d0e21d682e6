//! Every decision of a node that wants to lead, or leads: no I/O, no clock, no task. [`Elections`](crate::Elections) runs it; who embeds elections need not
//! look here.
//!
//! Whoever runs it does what [`Next`] says, one thing at a time, and comes back with an [`Input`] and the time. So the same code
//! runs on a machine and in a simulation.
//!
//! A leadership comes about in three steps, each of which is sent only after the one before was answered: read the epoch row of the
//! slot (*e*), take the lease with *e+1* in its value, raise the epoch row from exactly what was read to *e+1*. The lease keeps
//! others away; the raise decides, whatever became of leases: of all attempts that read the same epoch one raises it.
//!
//! Invariants:
//! - A lease counts from before the request that wrote it was sent. An answer that is late, or says that the outcome is not known,
//!   prolongs nothing.
//! - Work is told to stop ([`Notice::Lost`]) before anything is sent to give the lease away, and the lease is given away only by
//!   [`Input::Stopped`].
//! - A lease that replaced one of a former life is not given away while writes of that life may
//!   land: the next leader would work beside them.
//! - A node that comes back and cannot raise the epoch does not hold the slot for ever.

mod attempt;
mod lead;

use std::{fmt, net::SocketAddr, time::Duration};

use bytes::Bytes;
use clock::Instant;

use self::{attempt::Attempt, lead::Lead};
use crate::{
    Budget, Epoch, EpochRow, Lease, Lost, Seen, Slot, Written,
    budget::{LOOK_EVERY_MAX, LOOK_EVERY_MIN},
};

/// A call to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// All leases, plainly.
    Look,
    /// The epoch row of a slot.
    ReadEpoch(Slot),
    /// Writes a lease: where there is none, or over one's own of a former life.
    Take {
        /// The slot.
        slot: Slot,
        /// What is written.
        lease: Lease,
        /// What it replaces; `None` if nothing may be there.
        over: Option<Lease>,
        /// How long it lives.
        ttl: Duration,
    },
    /// Raises the epoch row of a slot from exactly what was read.
    RaiseEpoch {
        /// The slot.
        slot: Slot,
        /// What was read.
        from: Option<EpochRow>,
        /// What is written.
        to: EpochRow,
    },
    /// Prolongs the lease.
    Renew {
        /// The slot.
        slot: Slot,
        /// The lease, as it is and stays.
        lease: Lease,
        /// How long it lives from now on.
        ttl: Duration,
    },
    /// Gives the lease away.
    Release {
        /// The slot.
        slot: Slot,
        /// The lease.
        lease: Lease,
    },
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Op::Look`].
    Leases(Vec<Seen>),
    /// To [`Op::ReadEpoch`].
    Row(Option<Bytes>),
    /// To every other call.
    Written(Written),
    /// To any call: nothing was done.
    Unavailable,
    /// To any call that writes: it may be done, or may still be.
    Unknown,
    /// To any call: nothing was done, and nothing will work any more.
    Broken,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The time that was waited for has come. Also the very first input.
    Woke,
    /// The call was answered, or its deadline has passed.
    Answer(Answer),
    /// The time that was waited for has come, and the leadership is not to go on: its work is not well, or somebody has seen
    /// its end.
    Ends(Lost),
    /// All work that was led has stopped, and all it wrote is answered. It ends the leadership.
    Stopped,
}

/// What to do, and what to tell before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// To be told before anything else is done.
    pub notice: Option<Notice>,
    /// What to do then.
    pub next: Next,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Make this call; give it up at the deadline.
    Call(Op, Instant),
    /// Wait.
    Wait(Instant),
    /// Nothing, ever.
    End,
}

/// What a leader, or one who wants to be, must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The lead is taken.
    Leads {
        /// The slot.
        slot: Slot,
        /// What is in the store.
        lease: Lease,
        /// When work may begin: later than now if writes of one's own former life may still land.
        work_from: Instant,
        /// Until when work may go on.
        valid_until: Instant,
    },
    /// The lead goes on.
    Extended {
        /// Until when work may go on.
        valid_until: Instant,
    },
    /// The lead is lost, or given away.
    Lost(Lost),
    /// It will never be taken.
    GaveUp(GaveUp),
}

/// Why a node does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// Others held all slots for as long as it waited.
    #[error("all slots were held by others for as long as was waited")]
    Waited,
    /// The store did not answer when the time was over.
    #[error("the store does not answer")]
    Unavailable,
    /// The store does not work.
    #[error("the store does not work, and trying again would not help")]
    Broken,
    /// The epoch row of a slot is none, or holds the highest epoch that there is.
    #[error("the epoch row of slot {0} does not hold an epoch that can be raised: who wrote it?")]
    Corrupt(Slot),
}

/// What a node goes by when it wants to lead.
#[derive(Clone, Debug)]
pub struct Candidacy {
    /// Where the node is found.
    pub owner: SocketAddr,
    /// It competes for the slots from 1 to this.
    pub slots: Slot,
    /// Until when it tries; an attempt that is under way then is finished.
    pub until: Instant,
    /// Leases of this node under which nobody works: their processes are known to be gone.
    pub former: Vec<Lease>,
}

/// Draws random numbers.
pub type Random = Box<dyn FnMut() -> u64 + Send + Sync>;

/// The decisions of one candidacy, and of the leadership that may come of it.
pub struct Engine {
    candidacy: Candidacy,
    budget: Budget,
    random: Random,
    /// When the candidacy began: the processes of former leases had ended by then. `None` before
    /// the first input.
    began: Option<Instant>,
    /// The slot that is tried first.
    first_slot: u32,
    /// Whether the last look was answered; `None` before the first.
    store_answers: Option<bool>,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Looking,
    Attempting(Attempt),
    Withdrawing { slot: Slot, lease: Lease },
    Leading(Lead),
    Ended,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("candidacy", &self.candidacy)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The first input is [`Input::Woke`].
impl Engine {
    /// A candidacy. `random` must never repeat itself, on no node.
    pub fn new(candidacy: Candidacy, budget: Budget, mut random: Random) -> Engine {
        let first_slot = (random() % u64::from(candidacy.slots.get())) as u32;
        Engine {
            candidacy,
            budget,
            random,
            began: None,
            first_slot,
            store_answers: None,
            state: State::Looking,
        }
    }

    /// What to do now that this has happened.
    pub fn next(&mut self, now: Instant, input: Input) -> Step {
        self.began.get_or_insert(now);
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Looking => self.look(now, input),
            State::Attempting(attempt) => self.attempt(attempt, now, input),
            State::Withdrawing { slot, lease } => self.withdraw(slot, lease, now, input),
            State::Leading(lead) => self.lead(lead, now, input),
            State::Ended => Step { notice: None, next: Next::End },
        }
    }

    fn look(&mut self, now: Instant, input: Input) -> Step {
        let Input::Answer(answer) = input else {
            if now >= self.candidacy.until
                && let Some(is_there) = self.store_answers
            {
                return self.give_up(if is_there { GaveUp::Waited } else { GaveUp::Unavailable });
            }
            return self.call(State::Looking, Op::Look, now + self.budget.timing().call_timeout);
        };
        self.store_answers = Some(matches!(answer, Answer::Leases(_)));
        match answer {
            Answer::Leases(seen) => match self.choose(&seen) {
                Some((slot, over)) => self.begin(slot, over, now),
                None => {
                    let again = self.look_again(now, &seen);
                    self.wait_to_look(again)
                }
            },
            Answer::Broken => self.give_up(GaveUp::Broken),
            _ => self.rest(now),
        }
    }

    /// A slot that can be taken: one's own of a former life, or the first that is free.
    fn choose(&self, seen: &[Seen]) -> Option<(Slot, Option<Lease>)> {
        let Candidacy { slots, former, .. } = &self.candidacy;
        let own = |seen: &Seen| Lease::from_bytes(&seen.value).filter(|own| former.contains(own));
        let mut wanted = seen.iter().filter(|seen| seen.slot <= *slots);
        if let Some(own) = wanted.find_map(|seen| Some((seen.slot, Some(own(seen)?)))) {
            return Some(own);
        }
        let slots = slots.get();
        let place = |n: u32| (u64::from(self.first_slot) + u64::from(n)) % u64::from(slots) + 1;
        let order = (0..slots).filter_map(|n| Slot::new(place(n) as u32));
        let mut free = order.filter(|slot| seen.iter().all(|seen| seen.slot != *slot));
        Some((free.next()?, None))
    }

    /// When to look again: in a while, or when the next lease ends if that is soon.
    fn look_again(&mut self, now: Instant, seen: &[Seen]) -> Instant {
        let pause = self.pause();
        let ends = seen
            .iter()
            .filter(|seen| seen.slot <= self.candidacy.slots)
            .map(|seen| seen.left)
            .min();
        match ends {
            Some(left) if left >= LOOK_EVERY_MIN && left < pause + LOOK_EVERY_MIN => {
                now + left + Duration::from_micros((self.random)() % 10_000)
            }
            _ => now + pause,
        }
    }

    /// A pause of a candidate; part of it is chance, so that several do not move in step.
    fn pause(&mut self) -> Duration {
        let chance = (LOOK_EVERY_MAX - LOOK_EVERY_MIN).as_micros() as u64;
        LOOK_EVERY_MIN + Duration::from_micros((self.random)() % chance)
    }

    /// Looks again after a while.
    fn rest(&mut self, now: Instant) -> Step {
        let pause = self.pause();
        self.wait_to_look(now + pause)
    }

    /// Looks again then, or gives up when its time is over.
    fn wait_to_look(&mut self, then: Instant) -> Step {
        self.wait(State::Looking, then.min(self.candidacy.until))
    }

    /// Takes a lease back under which nobody ever worked.
    fn withdraw(&mut self, slot: Slot, lease: Lease, now: Instant, input: Input) -> Step {
        match input {
            Input::Answer(Answer::Broken) => self.give_up(GaveUp::Broken),
            // It will expire, if it is there.
            Input::Answer(_) => self.rest(now),
            _ => {
                let deadline = now + self.budget.timing().call_timeout;
                self.call(State::Withdrawing { slot, lease }, Op::Release { slot, lease }, deadline)
            }
        }
    }

    fn give_up(&mut self, why: GaveUp) -> Step {
        self.state = State::Ended;
        Step { notice: Some(Notice::GaveUp(why)), next: Next::End }
    }

    fn call(&mut self, state: State, op: Op, deadline: Instant) -> Step {
        self.state = state;
        Step { notice: None, next: Next::Call(op, deadline) }
    }

    fn wait(&mut self, state: State, until: Instant) -> Step {
        self.state = state;
        Step { notice: None, next: Next::Wait(until) }
    }
}

fn next_epoch(row: Option<EpochRow>) -> Option<Epoch> {
    row.map_or(Some(Epoch(1)), |row| row.epoch.0.checked_add(1).map(Epoch))
}
