//! The suite of the processor on a storage in memory.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used)]

mod group_time;
mod metrics;
mod outdated;
mod partitions;
mod results;
mod sequence_fields;
mod written_twice;
