//! The requests of clients.

use hyper::{
    Method,
    header::{HeaderValue, IF_MATCH},
};
use serde_json::{Value, json};
use shop::http_client::{command_path, workspace_path};

use crate::{
    api::HttpRequest,
    history::{Change, Parent, Request, SentRow, Version},
};

/// A command without its id.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) request: HttpRequest,
    pub(super) change: Change,
    pub(super) rows: Vec<SentRow>,
}

impl Sent {
    /// The command as the history has it. `place` is its place in a batch.
    pub(super) fn recorded(&self, id: &str, has_key: bool, place: Option<u32>) -> Request {
        let (change, rows) = (self.change.clone(), self.rows.clone());
        Request::Write { id: id.to_owned(), has_key, place, change, rows }
    }
}

fn post(path: String, body: &Value) -> HttpRequest {
    HttpRequest { method: Method::POST, path, headers: Vec::new(), body: body.to_string() }
}

/// The `limit` of each list that clients ask for.
pub(crate) const LISTED_AT_MOST: usize = 1_000;

pub(super) const ARTICLE: &str = "shop.Article";

fn row(id: u64, table: &str, fields: Value) -> SentRow {
    SentRow { id, table: table.to_owned(), parent: None, is_active: None, fields }
}

/// The command that creates a workspace, and its id.
pub(super) fn workspace(ws: u64) -> (Sent, String) {
    let body = json!({"args": {"kind": "Shop"}});
    let request = post(command_path(ws, "sys.CreateWorkspace"), &body);
    let rows = vec![row(1, "sys.WorkspaceDescriptor", json!({"kind": "Shop", "name": ""}))];
    (Sent { request, change: Change::Create, rows }, format!("workspace-{ws}"))
}

/// A document that is created by a command of its own.
fn created(ws: u64, table: &str, fields: Value) -> Sent {
    let body = json!({"fields": fields});
    let request = post(format!("{}/docs/{table}", workspace_path(ws)), &body);
    Sent { request, change: Change::Create, rows: vec![row(1, table, fields)] }
}

pub(super) fn article(ws: u64, value: u64) -> Sent {
    created(ws, ARTICLE, json!({"name": format!("{value:x}"), "cents": value >> 32}))
}

pub(super) fn delivery(ws: u64, value: u64) -> Sent {
    created(ws, "shop.Delivery", json!({"customer": format!("{value:x}")}))
}

/// A bill with a line.
pub(super) fn bill(ws: u64, value: u64) -> Sent {
    let parent = Some(Parent { id: 1, container: "lines".to_owned() });
    let quantity = json!({"quantity": value % 1_000});
    let rows = vec![
        row(1, "shop.Bill", json!({"customer": format!("{value:x}")})),
        SentRow { parent, ..row(2, "shop.Line", quantity) },
    ];
    let body = json!({"rows": rows.iter().map(json_of).collect::<Vec<_>>()});
    Sent { request: post(command_path(ws, "sys.CUD"), &body), change: Change::Create, rows }
}

/// A batch of commands.
pub(super) fn batch(ws: u64, commands: &[Sent]) -> HttpRequest {
    let commands = commands.iter().map(|sent| {
        let mut rows: Vec<Value> = sent.rows.iter().map(json_of).collect();
        if let (Change::Update { if_match: Some(Version { epoch, offset }), .. }, [row]) =
            (&sent.change, &mut rows[..])
        {
            row["version"] = json!({"epoch": epoch, "offset": offset});
        }
        json!({"command": "sys.CUD", "rows": rows})
    });
    let body = json!({"commands": commands.collect::<Vec<_>>()});
    post(format!("{}/commands", workspace_path(ws)), &body)
}

/// A row of a command, as the API has it.
fn json_of(row: &SentRow) -> Value {
    let mut json = json!({"id": row.id, "table": row.table, "fields": row.fields});
    if let Some(Parent { id, container }) = &row.parent {
        json["parent"] = json!({"id": id, "container": container});
    }
    json
}

pub(super) fn changed(ws: u64, id: u64, if_match: Option<Version>, value: u64) -> Sent {
    let fields = json!({"name": format!("{value:x}")});
    let body = json!({"fields": fields}).to_string();
    change(ws, (Method::PATCH, body), if_match, row(id, ARTICLE, fields))
}

pub(super) fn deactivated(ws: u64, id: u64, if_match: Option<Version>) -> Sent {
    let row = SentRow { is_active: Some(false), ..row(id, ARTICLE, json!({})) };
    change(ws, (Method::DELETE, String::new()), if_match, row)
}

fn change(
    ws: u64,
    (method, body): (Method, String),
    if_match: Option<Version>,
    row: SentRow,
) -> Sent {
    let id = row.id;
    let path = format!("{}/docs/{ARTICLE}/{id}", workspace_path(ws));
    let tag = |Version { epoch, offset }| {
        let tag = HeaderValue::try_from(format!("\"{epoch}.{offset}\""));
        (IF_MATCH, tag.expect("a version has no other characters"))
    };
    let headers = if_match.map(tag).into_iter().collect();
    let request = HttpRequest { method, path, headers, body };
    Sent { request, change: Change::Update { id, if_match }, rows: vec![row] }
}

pub(super) fn document(ws: u64, id: u64, eventual: bool) -> (Request, HttpRequest) {
    let consistency = if eventual { "?consistency=eventual" } else { "" };
    let path = format!("{}/docs/{ARTICLE}/{id}{consistency}", workspace_path(ws));
    (Request::Read { id, eventual }, HttpRequest::get(path))
}

pub(super) fn list(ws: u64, after: u64) -> (Request, HttpRequest) {
    let path =
        format!("{}/cdocs/{ARTICLE}?after={after}&limit={LISTED_AT_MOST}", workspace_path(ws));
    (Request::List { table: ARTICLE.to_owned(), after }, HttpRequest::get(path))
}

pub(super) fn log(ws: u64, from: u64) -> (Request, HttpRequest) {
    let path = format!("{}/wlog?from={from}&limit=1000000", workspace_path(ws));
    (Request::Log { from }, HttpRequest::get(path))
}

pub(super) fn draw(ws: u64, count: u64) -> (Request, HttpRequest) {
    let path = format!("{}/numbers/order/next", workspace_path(ws));
    let request = post(path, &json!({"count": count}));
    (Request::Draw { series: "order".to_owned(), count }, request)
}
