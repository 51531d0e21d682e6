//! Commands of the shop, and their rows.

use std::collections::BTreeMap;

use clock::Instant;
use eventlog::{Name, Parent, QName, RecordId, Value, Version, WsId};
use processor::{Command, FieldChange, RowChange};

/// Rows of a command.
pub type Batch = Vec<RowChange>;

/// A command that writes rows.
#[must_use]
pub fn cud(ws: u64, rows: Batch, deadline: Instant) -> Command {
    Command::new(WsId(ws), qname("sys.CUD"), deadline).with_rows(rows)
}

/// A command that makes a workspace.
#[must_use]
pub fn create_workspace(ws: u64, deadline: Instant) -> Command {
    Command::new(WsId(ws), qname("sys.CreateWorkspace"), deadline)
        .with_params(r#"{"kind": "Shop", "name": "Corner shop"}"#)
}

/// The name of a table or a command.
///
/// # Panics
/// If the text is no such name.
#[must_use]
pub fn qname(name: &str) -> QName {
    name.parse().expect("it is a name")
}

pub(super) fn name(name: &str) -> Name {
    name.parse().expect("it is a name")
}

/// A text value.
#[must_use]
pub fn text(text: impl Into<String>) -> Value {
    Value::String(text.into())
}

/// A new row without a parent.
#[must_use]
pub fn new_row<const N: usize>(id: u64, table: &str, fields: [(&str, Value); N]) -> RowChange {
    RowChange::Create {
        raw: RecordId(id),
        table: qname(table),
        parent: None,
        fields: fields.into_iter().map(|(field, value)| (name(field), value)).collect(),
    }
}

/// A new row in a container of another one.
#[must_use]
pub fn child<const N: usize>(
    id: u64,
    table: &str,
    of: (u64, &str),
    fields: [(&str, Value); N],
) -> RowChange {
    match new_row(id, table, fields) {
        RowChange::Create { raw, table, fields, .. } => {
            let parent = Parent { id: RecordId(of.0), container: name(of.1) };
            RowChange::Create { raw, table, parent: Some(parent), fields }
        }
        update @ RowChange::Update { .. } => update,
    }
}

/// A new article with two prices: a document and records of a collection.
#[must_use]
pub fn article(called: &str) -> Batch {
    vec![
        new_row(1, "shop.Article", [("name", text(called)), ("weight", Value::Float64(1.5))]),
        child(2, "shop.Price", (1, "prices"), [("cents", Value::Int64(100))]),
        child(3, "shop.Price", (1, "prices"), [("cents", Value::Int64(200))]),
    ]
}

/// A new bill with two lines: a document and records of a workspace.
#[must_use]
pub fn bill(called: &str) -> Batch {
    vec![
        new_row(1, "shop.Bill", [("name", text(called))]),
        child(2, "shop.Line", (1, "lines"), [("name", text(called))]),
        child(3, "shop.Line", (1, "lines"), [("name", text(called))]),
    ]
}

/// A change of the name of a record.
#[must_use]
pub fn update(id: RecordId, version: Option<Version>, called: &str) -> RowChange {
    let fields = BTreeMap::from([(name("name"), FieldChange::Set(text(called)))]);
    RowChange::Update { id, table: None, version, is_active: None, fields }
}
