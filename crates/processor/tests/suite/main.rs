//! The suite of the processor on a storage in memory.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used)]

mod evolution;
mod group_time;
mod metrics;
mod operators;
mod outdated;
mod partitions;
mod references;
mod results;
mod rules;
mod sequence_fields;
mod stamps;
mod written_twice;
