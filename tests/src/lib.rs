//! What the suites share: the databases that they run on.

pub mod commands;
pub mod processes;
pub mod reach;
pub mod servers;
pub mod subjects;
