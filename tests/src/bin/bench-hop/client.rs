//! The requests of clients.

use shop::http_client::{command_path, workspace_path};

/// The record that each workspace has, and that reads ask for.
const RECORD: u64 = 322_685_000_131_072;

/// A command that makes a record.
pub(crate) fn command(ws: u64) -> Vec<u8> {
    post(&command_path(ws, "sys.CUD"), r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#)
}

/// A command that makes a workspace.
pub(crate) fn new_workspace(ws: u64) -> Vec<u8> {
    post(&command_path(ws, "sys.CreateWorkspace"), r#"{"args":{"kind":"Shop"}}"#)
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

/// The reading of a record.
pub(crate) fn read(ws: u64) -> Vec<u8> {
    let path = format!("{}/docs/shop.Article/{RECORD}", workspace_path(ws));
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into()
}
