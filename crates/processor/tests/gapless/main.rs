//! Gapless document numbers: the rules of drawing, and crashes between any two calls of the
//! storage.
//!
//! `cargo test -p vvm-processor --test gapless` runs a small sample of crashes, and
//! `VVM_TEST_LONG=1` more than 10,000. `-- --ignored --nocapture` compares the rate of commands with
//! and without a number field.

#![allow(clippy::unwrap_used)]

mod cost;
mod crashes;
mod faults;
mod limits;
mod numbers_of_log;
mod rules;
mod scene;
