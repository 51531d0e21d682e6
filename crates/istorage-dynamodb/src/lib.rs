//! The storage contract of VVM on Amazon DynamoDB.
//!
//! A keyspace is a table. Every condition travels in the request that it guards, with the expiry inside it, so that no
//! other node can come between; expiry follows the service's time, not the node's; every read is consistent; no write
//! is sent again but one that the service has definitely refused. See [`DynamoDbDriver`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod connection;
mod driver;
mod errors;
mod layout;
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
