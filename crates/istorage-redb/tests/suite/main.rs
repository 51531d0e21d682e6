//! The suite of the driver beside that of all storages.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used)]

mod backup;
mod damage;
mod expiry;
mod file;
