//! What the suites share: the databases that they run on.

pub mod servers;
pub mod subjects;
