//! Code that the suites share: databases, servers, processes and trials.

/// Runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/commands.md")]
struct Commands;

/// Runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
struct Embedding;

/// Runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/numbers.md")]
struct Numbers;

/// Runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/orchestration.md")]
struct Orchestration;

/// Runs the examples of the page.
#[cfg(doctest)]
#[doc = include_str!("../../docs/sequencing.md")]
struct Sequencing;

pub mod bench;
pub mod drivers;
#[cfg(doctest)]
mod misuse;
pub mod processes;
pub mod servers;
pub mod subjects;
pub mod trials;
