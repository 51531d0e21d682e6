//! The HTTP API of a node, as a [service](vvm::Service) of the node, and the port on which other
//! nodes forward requests to it.

#![cfg_attr(test, allow(clippy::unwrap_used))]
// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod allowed_route;
mod answer;
mod api;
mod batch;
mod client_entry;
mod cluster_port;
mod commands;
mod context;
mod counted;
mod document_reads;
mod document_writes;
mod done;
mod eventual;
mod follow;
mod headers;
mod json_body;
mod limits;
mod logs;
mod number_json;
mod numbers;
mod openapi;
mod operations;
mod owner;
mod peer_entry;
mod read;
mod refusal;
mod request_times;
mod route;
mod rows;
mod settings;
mod shared;
mod views;
mod whole_number;

pub use api::HttpApi;
pub use cluster_port::ClusterPort;
pub use settings::HttpApiSettings;
// What the admin endpoint shows as the API does.
pub use read::{check_workspace_exists, read_problem};
pub use refusal::problem_of_busy;
pub use rows::{ShownFields, json_of_entry, json_of_record};

pub use http_forward::{ClusterSettings, ClusterSettingsError};

// The API of this crate has types of `vvm`.
pub use vvm;
