//! The keeper, the owner and the storage in every order, under a scheduler that takes its decisions from a seed.

mod found;
mod schedules;
mod world;
