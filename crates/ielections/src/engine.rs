//! The decisions of a node that competes for a seat or leads one.
//!
//! The module does no I/O, and has no clock and no task. [`Elections`](crate::Elections) runs the
//! engine; a program that embeds elections does not need this module.
//!
//! The caller does what [`Action`] says, one thing at a time. Then the caller passes an
//! [`EngineInput`] and the time. So the same code runs on a machine and in a simulation.
//!
//! A node becomes the leader in three steps. Each step is sent only after the step before it was
//! answered:
//!
//! 1. Read the epoch row of the seat (*e*).
//! 2. Take the lease, with *e+1* in its value.
//! 3. Raise the epoch row from exactly the bytes that were read to *e+1*.
//!
//! The lease keeps other nodes away, but the raise decides. If several attempts read the same
//! epoch, at most one of them raises it, whatever the state of the leases.
//!
//! Invariants:
//!
//! - A lease counts from before the request that wrote it was sent. An answer that is late, or that
//!   leaves the outcome unknown, prolongs nothing.
//! - Work is told to stop ([`Notice::Lost`]) before any request to release the lease is sent. Only
//!   [`EngineInput::Stopped`] releases the lease of a leadership.
//! - A lease that replaced a lease of a former process is not deleted while writes of that process
//!   may land. Otherwise the next leader would work beside these writes.
//! - A node that comes back and cannot raise the epoch does not hold the seat forever.

mod candidate;
mod leader;
mod messages;
mod state;

use std::{fmt, net::SocketAddr};

use clock::Instant;

pub use self::messages::{
    Action, Decision, EngineInput, GiveUpReason, Notice, StoreAnswer, StoreCall,
};
use self::state::EngineState;
use crate::{Budget, Lease, Seat};

/// The settings of a candidate.
#[derive(Clone, Debug)]
pub struct Candidacy {
    /// The address of the node.
    pub owner: SocketAddr,
    /// The last seat that the node competes for. The first is 1.
    pub last_seat: Seat,
    /// When the node stops trying. An attempt that is under way then goes on to its end.
    pub until: Instant,
    /// Leases of former processes of this node. These processes are known to be gone, so no work
    /// runs under the leases.
    pub former: Vec<Lease>,
}

/// A source of random numbers.
pub type RandomSource = Box<dyn FnMut() -> u64 + Send + Sync>;

/// The decisions of one candidacy, and of the leadership that may follow.
pub struct ElectionEngine {
    candidacy: Candidacy,
    budget: Budget,
    random: RandomSource,
    /// The start of the candidacy. The processes of former leases had ended by then. `None` before
    /// the first input.
    began: Option<Instant>,
    /// The index of the seat that is tried first: index 0 is seat 1.
    first_seat: u32,
    /// Why the candidate gives up if its time is over; `None` before the answer to the first look.
    why_not: Option<GiveUpReason>,
    state: EngineState,
}

impl fmt::Debug for ElectionEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionEngine")
            .field("candidacy", &self.candidacy)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl ElectionEngine {
    /// Makes the engine of a candidacy. An incarnation is made of two numbers of `random`: no two
    /// attempts, on any node, may get the same pair.
    pub fn new(candidacy: Candidacy, budget: Budget, mut random: RandomSource) -> ElectionEngine {
        let first_seat = (random() % u64::from(candidacy.last_seat.get())) as u32;
        ElectionEngine {
            candidacy,
            budget,
            random,
            began: None,
            first_seat,
            why_not: None,
            state: EngineState::Looking,
        }
    }

    /// Returns the next thing to do after an input. The first input is [`EngineInput::Woke`].
    pub fn next(&mut self, now: Instant, input: EngineInput) -> Decision {
        self.began.get_or_insert(now);
        match self.state {
            EngineState::Looking => self.look(now, input),
            EngineState::Attempting(attempt) => self.attempt(attempt, now, input),
            EngineState::Withdrawing => self.withdrawn(now, input),
            EngineState::Leading(lead) => self.lead(lead, now, input),
            EngineState::Ended => self.end(None),
        }
    }

    /// Looks for a seat again after the call that deletes the lease of a failed attempt. A lease
    /// that is still in the store expires.
    fn withdrawn(&mut self, now: Instant, input: EngineInput) -> Decision {
        match input {
            EngineInput::Answer(StoreAnswer::Broken) => self.give_up(GiveUpReason::Broken),
            _ => self.rest(now),
        }
    }

    fn give_up(&mut self, why: GiveUpReason) -> Decision {
        self.end(Some(Notice::GaveUp(why)))
    }

    fn end(&mut self, notice: Option<Notice>) -> Decision {
        self.state = EngineState::Ended;
        Decision { notice, next: Action::End }
    }

    fn call(&mut self, state: EngineState, op: StoreCall, deadline: Instant) -> Decision {
        self.state = state;
        Decision { notice: None, next: Action::Call(op, deadline) }
    }

    fn wait(&mut self, state: EngineState, until: Instant) -> Decision {
        self.state = state;
        Decision { notice: None, next: Action::Wait(until) }
    }
}
