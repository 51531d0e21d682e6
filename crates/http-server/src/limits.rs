//! What requests hold for a while: the [permits](Permit) of a [`Limit`], which a drop gives back.
//! Also the rate of commands.
//!
//! Invariant: a request takes the limits of a node in one order, and waits only for a limit after
//! all those that it holds. A permit never waits to grow. So no two requests of a node wait for
//! each other. Requests of two nodes may, until their deadlines.

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
