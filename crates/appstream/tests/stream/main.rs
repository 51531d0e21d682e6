//! Export and import between storages in memory: what arrives, and what is refused.

#![allow(clippy::unwrap_used)]

mod counters;
mod damage;
mod round_trip;
mod scene;
mod unfinished;
