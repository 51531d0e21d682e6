//! The suite of the election engine.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used)]

mod comeback;
mod engine;
mod killer;
mod leadership;
mod metrics;
