//! The node of each test, and requests to the node.

mod client;
mod node;

pub(crate) use self::{
    client::{
        Answer, answer, answer_to, code, command_path, connect, get, request, try_request,
        workspace_path,
    },
    node::{PATIENCE, ROW, TestNode, WS, shop_node},
};
