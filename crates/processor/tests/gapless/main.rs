//! Gapless document numbers: the rules of drawing, and crashes between any two calls of the
//! storage.
//!
//! `cargo test -p processor --test gapless` runs a small sample of crashes, and
//! `VVM_TEST_LONG=1` more than 10,000. `cargo xtask bench numbers --policies gapless` measures the
//! cost of a number.

#![allow(clippy::unwrap_used)]

mod crashes;
mod dropped_writes;
mod faults;
mod limits;
mod lost;
mod numbers_of_log;
mod peeks;
mod rules;
mod scene;
