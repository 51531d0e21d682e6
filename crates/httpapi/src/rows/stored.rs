//! Stored records and events as JSON.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use serde_json::{Value as Json, json};
use vvm::eventlog::{Entry, Event, Fields, Marker, Record, StoredRecord};

use super::{ShownFields, body::VersionBody, value::json_of_value};

fn json_of_fields(fields: &Fields, shown: &ShownFields) -> Json {
    let fields = fields.iter().filter(|(name, _)| shown.shows(name));
    let fields = fields.map(|(name, value)| (name.as_str().to_owned(), json_of_value(value)));
    Json::Object(fields.collect())
}

fn json_of_row(record: &Record, shown: &ShownFields) -> Json {
    let Record { table, id, parent, is_active, fields, .. } = record;
    let mut row = json!({
        "id": id.0,
        "table": table.as_str(),
        "isActive": is_active,
        "fields": json_of_fields(fields, shown),
    });
    if let (Some(parent), Some(row)) = (parent, row.as_object_mut()) {
        let parent = json!({ "id": parent.id.0, "container": parent.container.as_str() });
        row.insert("parent".to_owned(), parent);
    }
    row
}

/// A stored record as JSON.
pub(crate) fn json_of_record(stored: &StoredRecord, shown: &ShownFields) -> Json {
    let mut row = json_of_row(&stored.record, shown);
    if let Some(row) = row.as_object_mut() {
        row.insert("version".to_owned(), json!(VersionBody::from(stored.version)));
    }
    row
}

/// An entry of the log of a workspace as JSON.
pub(crate) fn json_of_entry(entry: &Entry) -> Json {
    let place = entry.place();
    let mut json = json!({
        "wlogOffset": place.wlog.0,
        "plogOffset": place.plog.0,
        "epoch": place.epoch.0,
    });
    let Some(object) = json.as_object_mut() else { return json };
    match entry {
        Entry::Event(event) => {
            let Event { time, request, principal, command, params, changes, .. } = &**event;
            object.insert("timeMicros".to_owned(), json!(time.as_micros()));
            object.insert("requestId".to_owned(), json!(request));
            if !principal.is_empty() {
                object.insert("principal".to_owned(), json!(principal));
            }
            object.insert("command".to_owned(), json!(command.as_str()));
            if !params.is_empty() {
                object.insert("args".to_owned(), json_of_bytes(params));
            }
            let rows = changes.iter().map(|change| json_of_row(&change.record, &ShownFields::All));
            object.insert("rows".to_owned(), rows.collect());
        }
        Entry::Marker(Marker { bytes, .. }) => {
            object.insert("corrupted".to_owned(), json!(BASE64.encode(bytes)));
        }
    }
    json
}

/// The JSON of bytes that a handler takes: JSON as it is, and other bytes as a text in
/// Base64.
fn json_of_bytes(bytes: &Bytes) -> Json {
    serde_json::from_slice(bytes).unwrap_or_else(|_| json!({ "base64": BASE64.encode(bytes) }))
}
