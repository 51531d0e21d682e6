//! The storage contract of VVM on Amazon DynamoDB.
//!
//! A keyspace is a table. Every condition travels in the request that it guards, so that no other node can come between. A
//! lease expires when a node has seen the lease unchanged for as long as the lease lasts; an ordered row expires by the
//! service's time. Every read is consistent. No write is sent again but one that the service has definitely refused. See
//! [`DynamoDbDriver`].

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
#[cfg(test)]
mod testing;
mod time;
mod transact;
mod write;

pub use config::{Billing, Config, Secret};
pub use driver::DynamoDbDriver;
pub use storage::CAPABILITIES;
