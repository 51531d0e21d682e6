//! The node of each test, and requests to the node.

mod client;
mod node;

pub(crate) use self::{
    client::{Answer, answer_to, code, connect, get},
    node::{PATIENCE, ROW, TestNode, WS, demo_app, demo_node},
};
