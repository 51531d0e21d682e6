//! The suite of the program `vvm`, as a process.
//!
//! One file a subject, and one program for all: each program links all crates again.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod access;
mod backup;
#[path = "../support/collector.rs"]
mod collector;
mod comeback;
mod elections;
mod exit_codes;
mod follow;
mod http;
#[path = "../support/in_memory.rs"]
mod in_memory;
#[path = "../support/keyspaces.rs"]
mod keyspaces;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "../support/load.rs"]
mod load;
#[path = "../support/node.rs"]
mod node;
mod numbers;
mod running_node;
mod scrapes;
mod sequences;
mod stored_numbers;
mod tables;
mod tls;
mod traces;
mod verify;
#[path = "../support/wrong_logs.rs"]
mod wrong_logs;
