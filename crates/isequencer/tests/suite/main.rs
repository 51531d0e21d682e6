//! The suite of the sequencer.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used)]

mod closing;
#[path = "../common/mod.rs"]
mod common;
mod events;
mod keeper;
mod logs;
mod lookups;
mod metrics;
mod model;
mod seed;
mod transactions;
