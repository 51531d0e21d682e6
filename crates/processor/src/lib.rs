//! Runs the commands of an application.
//!
//! An [`Application`] has [`Declarations`] (tables, kinds of workspaces, sequences and series of
//! document numbers) and the handlers of its commands. Each partition of an application is a
//! [`Partition`] on the node that owns it. The task of the partition runs commands one after
//! another, writes their events in groups, and answers each command when its event is applied. The
//! task of the partition's sequencer reads the log and applies the events that are not applied yet.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod application;
mod builtin;
mod command;
mod command_context;
mod commands;
mod damage;
mod declarations;
mod event_time;
mod gapless;
mod group;
mod handler;
mod known_rows;
mod lost_counters;
mod meters;
mod outdated;
mod partition;
mod partition_context;
mod partitions;
mod queue;
mod readers;
mod refusal;
mod remembered;
mod shared;
mod spans;
mod state;
mod status;
mod system_tables;
mod watchers;
mod worker;
mod write_allowance;

pub use application::Application;
pub use command::{
    Answer, Command, Done, FieldChange, IdempotencyKey, MOST_RESULT_BYTES, RowChange,
};
pub use command_context::{CommandContext, MOST_ROWS};
pub use commands::Commands;
pub use declarations::{
    Declarations, DeclaredSequence, DeclaredSeries, InvalidApplication, SeriesPolicy,
};
pub use handler::Handler;
pub use known_rows::KNOWN_ROWS_BYTES;
pub use partition::{Partition, PartitionSettings};
pub use partitions::{NotDeployable, Partitions};
pub use refusal::{Busy, FullQueue, HandlerError, Refused, Rejection, RejectionKind};
pub use status::Status;
pub use watchers::{LogName, LogWatch, PartitionEnded};
pub use worker::PartitionEnd;
pub use write_allowance::WriteAllowance;

// The types of these crates occur in the API.
pub use async_trait::async_trait;
pub use bytes;
pub use clock;
pub use docnumbers;
pub use eventlog;
pub use futures;
pub use isequencer;
pub use opentelemetry;
