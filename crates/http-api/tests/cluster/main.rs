//! Forwarding between the nodes of a cluster in this process, over sockets.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod access;
mod batches;
mod cuts;
mod envelopes;
mod follow;
mod forwarding;
mod frozen;
mod moves;
mod shares;
mod spans;
mod support;
mod tls;
