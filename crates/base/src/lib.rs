//! What every crate of VVM may use: the ids of workspaces, epochs and offsets, and the text of an
//! error with all its causes.
//!
//! The crates that have these ids in their API re-export them. So `eventlog::WsId` and
//! `isequencer::WsId` are one type.

mod errors;
mod ids;

pub use errors::{listed, none_of, with_causes, with_causes_separated_by};
pub use ids::{Epoch, Offset, WsId};

/// The example of the README is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
