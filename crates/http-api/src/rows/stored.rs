//! Stored records and events as JSON.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use clock::WallTime;
use processor::LogName;
use serde::Serialize;
use serde_json::{Value as Json, json};
use vvm::eventlog::{
    Entry, Event, Fields, Marker, Name, Record, RecordChange, StoredRecord, Table,
};

use super::{BytesBody, ShownFields, body::VersionBody, value::json_of_value};

/// The fields of a record as JSON. If `table` is the table of the record, fields that it does not
/// declare are hidden.
pub(crate) fn json_of_fields(fields: &Fields, shown: &ShownFields, table: Option<&Table>) -> Json {
    let is_declared =
        |name: &Name| table.is_none_or(|table| table.field_type(name.as_str()).is_some());
    let fields = fields.iter().filter(|(name, _)| shown.shows(name) && is_declared(name));
    let fields = fields.map(|(name, value)| (name.as_str().to_owned(), json_of_value(value)));
    Json::Object(fields.collect())
}

fn json_of_row(record: &Record, shown: &ShownFields, declared: Option<&Table>) -> Json {
    let Record { table, id, parent, is_active, fields, .. } = record;
    let mut row = json!({
        "id": id.0,
        "table": table.as_str(),
        "isActive": is_active,
        "fields": json_of_fields(fields, shown, declared),
    });
    if let (Some(parent), Some(row)) = (parent, row.as_object_mut()) {
        let parent = json!({ "id": parent.id.0, "container": parent.container.as_str() });
        row.insert("parent".to_owned(), parent);
    }
    row
}

/// A stored record as JSON. If `table` is its table, fields that the table does not declare are
/// hidden.
pub fn json_of_record(stored: &StoredRecord, shown: &ShownFields, table: Option<&Table>) -> Json {
    let mut row = json_of_row(&stored.record, shown, table);
    if let Some(row) = row.as_object_mut() {
        row.insert("version".to_owned(), json!(VersionBody::from(stored.version)));
    }
    row
}

/// An entry of a log. The keys stand in the order of their names, as in all other JSON.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryBody<'e> {
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<BytesBody<'e>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'e str>,
    /// The bytes that were found instead of an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupted: Option<String>,
    epoch: u64,
    /// Whether this is a fencing entry, which has no event.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    fencing: bool,
    plog_offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Json>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wlog_offset: Option<u64>,
    /// The workspace, in the log of a partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<u64>,
}

impl<'e> EntryBody<'e> {
    fn of(entry: &'e Entry, log: LogName) -> EntryBody<'e> {
        let place = entry.place();
        let empty = EntryBody {
            epoch: entry.epoch().0,
            plog_offset: entry.plog().0,
            time_micros: entry.time().map(WallTime::as_micros),
            wlog_offset: place.map(|place| place.wlog.0),
            workspace: place.filter(|_| log == LogName::Partition).map(|place| place.ws.0),
            ..EntryBody::default()
        };
        match entry {
            Entry::Event(event) => {
                let Event { request, principal, command, params, changes, .. } = &**event;
                let row =
                    |change: &RecordChange| json_of_row(&change.record, &ShownFields::All, None);
                EntryBody {
                    args: (!params.is_empty()).then(|| BytesBody::of(params)),
                    command: Some(command.as_str()),
                    principal: (!principal.is_empty()).then_some(principal),
                    request_id: Some(request),
                    rows: Some(changes.iter().map(row).collect()),
                    ..empty
                }
            }
            Entry::Marker(Marker { bytes, .. }) => {
                EntryBody { corrupted: Some(BASE64.encode(bytes)), ..empty }
            }
            Entry::Fencing(_) => EntryBody { fencing: true, ..empty },
        }
    }
}

/// An entry of a log as a line of JSON. In the log of a partition an event names its workspace, and
/// a fencing entry names none.
///
/// Invariant: the line contains no newline. A client may send arguments in several lines. JSON
/// texts escape their newlines, so any other newline is between two values, and a space in its
/// place changes no value.
pub(crate) fn line_of_entry(entry: &Entry, log: LogName) -> Vec<u8> {
    // All keys are texts, so the conversion cannot fail.
    let mut line = serde_json::to_vec(&EntryBody::of(entry, log)).unwrap_or_default();
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line
}

/// An entry of a log as JSON for an operator. The arguments are written again.
pub fn json_of_entry(entry: &Entry) -> Json {
    json!(EntryBody::of(entry, LogName::Partition))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use vvm::eventlog::{Epoch, EventPlace, FencingEntry, Offset, WsId};

    use super::*;

    fn event(params: &'static str) -> Entry {
        let (epoch, plog, ws, wlog) = (Epoch(1), Offset(2), WsId(3), Offset(4));
        let place = EventPlace { epoch, plog, ws, wlog };
        let mut event = Event::new(place, WallTime::from_millis(5), "shop.Sell".parse().unwrap());
        event.params = Bytes::from_static(params.as_bytes());
        Entry::Event(event.into())
    }

    #[test]
    fn a_fencing_entry_names_no_workspace() {
        let (epoch, plog, time) = (Epoch(7), Offset(3), WallTime::from_millis(5));
        let entry = Entry::Fencing(FencingEntry { epoch, partition: 1, plog, time });
        let line = String::from_utf8(line_of_entry(&entry, LogName::Partition)).unwrap();
        let expected = r#"{"epoch":7,"fencing":true,"plogOffset":3,"timeMicros":5000}"#;
        assert_eq!(line, expected);
    }

    /// The arguments were written again, unlike the result of a command: `1e15` got all its digits,
    /// and a key that the arguments had twice was lost.
    #[test]
    fn an_event_has_its_arguments_as_they_are_in_one_line() {
        let line = |params, log| String::from_utf8(line_of_entry(&event(params), log)).unwrap();
        let of_ws = LogName::Workspace(WsId(3));
        let args = |params| {
            let line = line(params, of_ws);
            let (args, _) = line.split_once(r#","command":"shop.Sell","epoch":1,"#)?;
            Some(args.strip_prefix(r#"{"args":"#)?.to_owned())
        };
        let as_it_is = r#"{ "b": 1e15, "a": 0.10, "a": "\n" }"#;
        assert_eq!(args(as_it_is).as_deref(), Some(as_it_is));
        assert_eq!(args("[1,\r\n 2,\n3]").as_deref(), Some("[1,   2, 3]"));
        assert_eq!(args("\n{").as_deref(), Some(r#"{"base64":"Cns="}"#));
        assert_eq!(args(""), None);
        assert!(!line("7", of_ws).contains("workspace"));
        assert!(line("7", LogName::Partition).ends_with(r#","wlogOffset":4,"workspace":3}"#));
    }
}
