//! The requests of clients.

use shop::http_client::{command_path, workspace_path};
use vvm_tests::bench::request_bytes;

/// The record that each workspace has, and that reads ask for.
const RECORD: u64 = 322_685_000_131_072;

/// A command that makes a record.
pub(crate) fn command(ws: u64) -> Vec<u8> {
    let row = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    request_bytes("POST", &command_path(ws, "sys.CUD"), "", row)
}

/// A command that makes a workspace.
pub(crate) fn new_workspace(ws: u64) -> Vec<u8> {
    let kind = r#"{"args":{"kind":"Shop"}}"#;
    request_bytes("POST", &command_path(ws, "sys.CreateWorkspace"), "", kind)
}

/// The reading of a record.
pub(crate) fn read(ws: u64) -> Vec<u8> {
    let path = format!("{}/docs/shop.Article/{RECORD}", workspace_path(ws));
    request_bytes("GET", &path, "", "")
}
