//! The suite of the log on a storage in memory.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used)]

mod copy;
mod deployment;
mod format;
mod log;
mod mark;
mod rows;
mod rules;
mod schema;
mod slow_and_late;
mod steps;
mod strays;
#[path = "../support/mod.rs"]
mod support;
