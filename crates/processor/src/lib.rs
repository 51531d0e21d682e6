//! Runs the commands of an application.
//!
//! An [`Application`] is its tables, its kinds of workspaces and its commands. Each of its partitions is a [`Partition`] at work on the node that
//! leads: a task that runs commands one after another, writes their events in groups, and answers when they are applied; its sequencer's task reads
//! the log, and applies what is missing.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod application;
mod builtin;
mod command;
mod damage;
mod group;
mod handler;
mod meters;
mod partition;
mod partitions;
mod queue;
mod readers;
mod recent;
mod state;
mod worker;

pub use application::{Application, BadApplication};
pub use command::{
    Answer, Busy, Command, Done, Refused, Rejection, RejectionKind, Repeat, RowChange,
};
pub use group::READ_AHEAD_BYTES;
pub use handler::{Failure, Handler, Work};
pub use isequencer::in_full;
pub use partition::{Partition, Settings};
pub use partitions::{NotDeployable, Partitions};
pub use queue::{Commands, Status};
pub use worker::Ended;
