//! What requests hold for a time, and give back by a drop: the [permits](Permit) of a [`Limit`].
//! And the rate of commands.
//!
//! Invariant: a request takes the limits of a node in one order, and waits only for one that comes
//! after all that it holds. A permit never waits to grow. So no two requests of a node wait for
//! each other. Those of two nodes may; the deadlines end that.

mod limit;
mod memory;
mod rate;
mod rules;
mod take;

pub(crate) use self::rate::PrincipalRate;
pub use self::{
    limit::{Asker, Full, Limit, Permit, held_bytes},
    memory::{AnswerMemory, READ_BYTES},
    rules::{LimitRules, Reason, ShareRules},
    take::{Need, take},
};
