//! The node of each test, and requests to the node.

mod authority;
mod client;
mod node;
mod tls_client;

pub(crate) use self::{
    authority::{TestAuthority, TestFiles},
    client::{Answer, answer_to, code, connect, get},
    node::{PATIENCE, ROW, TestNode, WS, demo_app, demo_node},
    tls_client::{TlsClient, TlsConnection},
};
