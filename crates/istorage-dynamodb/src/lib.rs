//! The storage contract of VVM on Amazon DynamoDB.
//!
//! A keyspace is a table. Every condition is part of the request that it guards, so no other node
//! can write between the check and the write. A lease expires for a node when the node has seen the
//! lease unchanged for as long as the lease lasts. An ordered row expires by the service's time.
//! Every read is consistent. The driver sends a write again only if the service has definitely
//! refused it. See [`DynamoDbDriver`].

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod connection;
mod driver;
mod errors;
mod layout;
mod lease;
mod read;
mod storage;
mod table;
mod table_leases;
mod table_setup;
#[cfg(test)]
mod tests;
mod time;
mod transact;
mod write;

pub use config::{Billing, DynamoDbConfig, Secret};
pub use driver::DynamoDbDriver;
pub use storage::CAPABILITIES;

// The types of these crates occur in the API.
pub use clock;
pub use istorage;
