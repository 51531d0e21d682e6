//! The wrappers over a storage in memory. `tck::storage` proves the rules that hold for every
//! storage.

#![allow(clippy::unwrap_used)]

mod faults;
mod fixture;
mod metered;
mod passing;
mod read_only;
