//! What every crate of VVM may use: the ids of workspaces, epochs and offsets, the text of an error
//! with all its causes, and locks that a panic does not poison.
//!
//! The crates that have these ids in their API re-export them. So `eventlog::WsId` and
//! `isequencer::WsId` are one type.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod errors;
mod ids;
pub mod locks;

pub use errors::{listed, none_of, with_causes, with_causes_separated_by};
pub use ids::{Epoch, Offset, WsId};
