//! A server of HTTP/1.1 that keeps its limits, for services that answer requests.
//!
//! [`Server::serve`](server::Server::serve) accepts connections, over TLS if a port
//! [has it](ServerTls), and gives each request to a [`RequestHandler`](server::RequestHandler). A
//! handler finds the sender ([`authentication`]), receives the body ([`body`]), takes what the
//! request needs ([`limits`]), and answers ([`response`]), or says why not ([`problem`]). The crate
//! knows no node and no application.

#![cfg_attr(test, allow(clippy::unwrap_used))]
// The example of the README is compiled as a test.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

pub mod authentication;
mod authority;
pub mod body;
pub mod check;
pub mod client_lines;
pub mod cross_origin;
pub mod event_stream;
mod given_file;
pub mod html_page;
pub mod limits;
pub mod problem;
pub mod query;
pub mod request_body;
pub mod request_head;
mod request_id;
pub mod response;
pub mod server;
pub mod spans;
pub mod stream;
pub mod tls;
pub mod web_pages;

pub use self::{
    authentication::{AccessFileError, Authenticator, NotAuthenticated, TokenAuthenticator},
    limits::READ_BYTES,
    server::{HttpLimits, most_socket_bytes},
    tls::{CERTIFICATE_WARN_DAYS, ClusterTls, PortTls, ServerTls, TlsFile, TlsFileError, TlsFiles},
};

// These crates and types occur in the API.
pub use access;
pub use hyper::HeaderMap;
