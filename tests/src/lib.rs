//! What the suites share: the databases that they run on.

/// Its example runs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/commands.md")]
struct Commands;

/// Its example runs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/orchestration.md")]
struct Orchestration;

pub mod bench;
pub mod between;
pub mod commands;
pub mod long;
pub mod processes;
pub mod reach;
pub mod servers;
pub mod subjects;
pub mod trials;
