//! The HTTP API of a node and its admin endpoint, both as [services](vvm::Service) of the node.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admin;
mod api;
mod authentication;
mod authority;
mod body;
mod check;
mod client_lines;
mod cross_origin;
mod follow;
mod forward;
mod given_file;
mod html_page;
pub mod inspect;
mod limits;
mod numbers;
mod openapi;
mod problem;
mod query;
mod read;
mod refusal;
mod request_body;
mod request_head;
mod request_id;
mod response;
mod route;
mod rows;
mod server;
mod shared_renderer;
mod spans;
mod stream;
mod tls;
mod web_pages;
mod whole_number;

pub use admin::{AdminEndpoint, AdminSettings, OPERATOR_LINES};
pub use api::{ClusterPort, HttpApi, HttpApiSettings};
pub use authentication::{AccessFileError, Authenticator, NotAuthenticated, TokenAuthenticator};
pub use forward::{ClusterSettings, ClusterSettingsError};
pub use limits::READ_BYTES;
pub use server::{HttpLimits, most_socket_bytes};
pub use shared_renderer::MetricsRenderer;
pub use tls::{CERTIFICATE_WARN_DAYS, ClusterTls, ServerTls, TlsFile, TlsFileError, TlsFiles};

// These crates and types occur in the API.
pub use access;
pub use hyper::HeaderMap;
pub use vvm;

/// The example of the README is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
