//! A shop: the example application of tests and benches, its database, and the checks of its
//! stored rows.
//!
//! [`shop`] is the application, with functions such as [`article`] and [`cud`] that make its rows
//! and commands. A [`ShopDatabase`] is the shop on any storage driver, and starts leaders of its
//! partitions, each as a [`ShopNode`]. A test notes all answers in an [`AnswerLedger`]. At the end
//! [`check`] reads the stored rows of a partition, and panics if they do not follow from its log,
//! or if the log differs from the answers.
//!
//! Two wrappers of a storage disturb a node: a [`StallingStorage`] lets the node stand still at one
//! of its calls, and a [`NarrowStorage`] cannot write groups atomically. A [`LateStorage`] claims
//! that its writes may land late.
//!
//! [`http_client`] sends requests to a node that has the HTTP API, and a [`Follower`] follows a
//! log.
//!
//! The crate depends on no database client, so the tests of `processor`, `vvm` and `http-api` build
//! without one. It depends on `processor`, and unit tests of `processor` would see two versions of
//! that crate. So only integration tests and benches use the shop.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod answer_ledger;
mod application;
mod database;
mod follower;
pub mod http_client;
mod late_storage;
mod lost_frames;
mod narrow_storage;
mod stalling_storage;
mod stored_state;
mod test_fence;

pub use answer_ledger::AnswerLedger;
pub use application::{
    Batch, article, bill, child, create_workspace, cud, new_row, qname, shop, text, update,
};
pub use database::{ShopDatabase, ShopNode, ShopNodeSettings};
pub use follower::Follower;
pub use late_storage::LateStorage;
pub use lost_frames::lose_last_frames;
pub use narrow_storage::{NarrowStorage, WriteSteps};
pub use stalling_storage::{StallPoint, StallingStorage};
pub use stored_state::{CheckOptions, StoredState, check, check_with};
pub use test_fence::TestFence;

// The types of these crates occur in the API.
pub use clock;
pub use eventlog;
pub use isequencer;
pub use istorage;
pub use processor;
pub use sysvvm;
