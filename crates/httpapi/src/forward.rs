//! Forwarding: a request is tried at the owner of its partition, here or on another node, until it
//! is done or its time is over.

mod connection;
mod connections;
mod forwarder;
mod log;
mod mark;
mod metrics;
mod outcome;
mod parking;
mod peer;
mod peer_body;
mod peers;
mod placement;
mod receive;
mod send;
mod settings;
mod successor;
mod tries;

pub use self::settings::{ClusterSettings, ClusterSettingsError};
pub(crate) use self::{
    forwarder::{ForwardKind, ForwardRequest, Forwarder, ForwarderSettings},
    mark::{ForwardMark, PROBLEM},
    outcome::{Answer, BatchState, code_of},
    placement::{NextPlace, Placement},
    successor::{PeerCheck, asked_successor},
    tries::is_settled,
};
