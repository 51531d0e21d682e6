//! What the suites share: the databases that they run on.

pub mod noted;
pub mod processes;
pub mod servers;
pub mod subjects;
