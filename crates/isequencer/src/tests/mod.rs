//! A simulation: keeper, owner and storage run in every order, under a scheduler that decides by a
//! seed.

mod defects;
mod schedules;
mod simulation;
