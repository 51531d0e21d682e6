//! The requests of clients.

use serde_json::json;
use shop::http_client::{command_path, workspace_path};

use super::CREATE;
use crate::{
    api::HttpRequest,
    history::{Change, Outcome, Request, Version},
};

/// A command without its id.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) request: HttpRequest,
    pub(super) change: Change,
}

fn post(path: String, body: &serde_json::Value) -> HttpRequest {
    HttpRequest { method: "POST", path, headers: Vec::new(), body: body.to_string() }
}

/// The command that creates a workspace, and its id.
pub(super) fn workspace(ws: u64) -> (Sent, String) {
    let body = json!({"args": {"kind": "Shop"}});
    let request = post(command_path(ws, "sys.CreateWorkspace"), &body);
    (Sent { request, change: CREATE }, format!("workspace-{ws}"))
}

pub(super) fn article(ws: u64, value: u64) -> Sent {
    let body = json!({"fields": {"name": format!("{value:x}"), "cents": value >> 32}});
    let request = post(format!("{}/docs/shop.Article", workspace_path(ws)), &body);
    Sent { request, change: CREATE }
}

pub(super) fn delivery(ws: u64) -> Sent {
    let body = json!({"fields": {"customer": "Ann"}});
    let request = post(format!("{}/docs/shop.Delivery", workspace_path(ws)), &body);
    Sent { request, change: CREATE }
}

/// A bill with a line.
pub(super) fn bill(ws: u64) -> Sent {
    let body = json!({"rows": [
        {"id": 1, "table": "shop.Bill", "fields": {"customer": "Ann"}},
        {"id": 2, "table": "shop.Line", "parent": {"id": 1, "container": "lines"},
         "fields": {"quantity": 2}}]});
    Sent { request: post(command_path(ws, "sys.CUD"), &body), change: CREATE }
}

pub(super) fn changed(ws: u64, id: u64, if_match: Option<Version>, value: u64) -> Sent {
    let body = json!({"fields": {"name": format!("{value:x}")}}).to_string();
    change(ws, id, if_match, "PATCH", body)
}

pub(super) fn deactivated(ws: u64, id: u64, if_match: Option<Version>) -> Sent {
    change(ws, id, if_match, "DELETE", String::new())
}

fn change(ws: u64, id: u64, if_match: Option<Version>, method: &'static str, body: String) -> Sent {
    let path = format!("{}/docs/shop.Article/{id}", workspace_path(ws));
    let tag = |Version { epoch, offset }| ("if-match", format!("\"{epoch}.{offset}\""));
    let headers = if_match.map(tag).into_iter().collect();
    let request = HttpRequest { method, path, headers, body };
    Sent { request, change: Change::Update { id, if_match } }
}

pub(super) fn document(ws: u64, id: u64, eventual: bool) -> (Request, HttpRequest) {
    let consistency = if eventual { "?consistency=eventual" } else { "" };
    let path = format!("{}/docs/shop.Article/{id}{consistency}", workspace_path(ws));
    (Request::Read { id, eventual }, HttpRequest::get(path))
}

/// A read of a document that is not found is an answer, too.
pub(super) fn without_document(request: &Request, outcome: Outcome) -> Outcome {
    match (request, &outcome) {
        (Request::Read { eventual, .. }, Outcome::Refused { status: 404, code })
            if code == "not_found" =>
        {
            Outcome::Document { record: None, says_eventual: *eventual }
        }
        _ => outcome,
    }
}

pub(super) fn list(ws: u64, after: u64) -> (Request, HttpRequest) {
    let table = "shop.Article".to_owned();
    let path = format!("{}/cdocs/{table}?after={after}&limit=1000", workspace_path(ws));
    (Request::List { table, after }, HttpRequest::get(path))
}

pub(super) fn log(ws: u64, from: u64) -> (Request, HttpRequest) {
    let path = format!("{}/wlog?from={from}&limit=1000000", workspace_path(ws));
    (Request::Log { from }, HttpRequest::get(path))
}

pub(super) fn draw(ws: u64, count: u64) -> (Request, HttpRequest) {
    let path = format!("{}/numbers/order/next", workspace_path(ws));
    let request = post(path, &json!({"count": count}));
    (Request::Draw { series: "order".to_owned() }, request)
}
