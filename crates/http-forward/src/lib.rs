//! Forwarding: a request is tried at the owner of its partition, here or on another node, until it
//! is done or its time is over.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod connection;
mod connections;
mod envelope;
mod forwarder;
mod limits;
mod log;
mod metrics;
mod outcome;
mod peer;
mod peer_body;
mod peers;
mod placement;
mod receive;
mod send;
mod settings;
mod successor;
mod tries;
mod way;

pub use self::{
    envelope::{Envelope, PROBLEM},
    forwarder::{ForwardKind, ForwardRequest, Forwarder, ForwarderSettings},
    limits::MostWaiting,
    metrics::ForwardMetrics,
    outcome::{BatchState, code_of},
    peers::Peers,
    placement::{NextTry, Placement},
    settings::{ClusterSettings, ClusterSettingsError},
    successor::{PeerCheck, asked_successor},
    tries::is_settled,
};
