//! The wrappers over a storage in memory. What holds for every storage is proved by `istorage-tck`.

#![allow(clippy::unwrap_used)]

mod faults;
mod fixture;
mod metered;
