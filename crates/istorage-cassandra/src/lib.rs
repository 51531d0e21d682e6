//! The storage contract of VVM on [Apache Cassandra](https://cassandra.apache.org), with the
//! [scylla](https://docs.rs/scylla) client.
//!
//! One session serves all keyspaces of a process. A keyspace has one table. A plain write carries
//! the node's time as its timestamp, an ordered write a negative one that follows from its order. A
//! conditional write is a lightweight transaction, one statement or one batch per call, and is
//! never repeated. See [`CassandraDriver`].
//!
//! ScyllaDB speaks the same protocol. If a keyspace has no tablets, we know no difference that
//! matters to this crate, but ScyllaDB has not been tested.

// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod conditional;
mod config;
mod connect;
mod driver;
mod errors;
mod keyspace;
mod layout;
mod limits;
mod one_server;
mod probe;
mod read;
mod routing;
mod server_settings;
mod session;
mod storage;
mod suspects;
mod timestamps;
mod tls;
mod ttl;
mod write;

pub use config::{
    CassandraConfig, Login, Password, QuorumConsistency, Replication, SerialConsistency,
};
pub use driver::CassandraDriver;
pub use limits::CAPABILITIES;
pub use server_settings::{CommitLogSync, ServerSettings, SettingProblem};
pub use tls::Tls;

// The types of these crates occur in the API.
pub use clock;
pub use istorage;
