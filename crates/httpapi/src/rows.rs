//! Conversion between JSON and rows. The type of a field comes from its table, because JSON has
//! fewer types.

use std::{fmt, marker::PhantomData};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use processor::RowChange;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value as Json, json};
use vvm::eventlog::{
    Entry, Epoch, Event, FieldType, Fields, Marker, Name, Offset, Parent, QName, Record, RecordId,
    Schema, StoredRecord, Table, Value, Version,
};

use crate::response::ProblemDetails;

/// The largest raw id.
const LARGEST_RAW: u64 = u16::MAX as u64;

/// A value that is sent as a JSON object. The derived `Deserialize` accepts an array, too, and then
/// the order of the fields would be a promise.
#[derive(Debug)]
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<JsonObject<T>, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(from)).map(JsonObject)
            }
        }

        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A row as a client sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RowBody {
    id: u64,
    table: String,
    parent: Option<JsonObject<ParentBody>>,
    version: Option<JsonObject<VersionBody>>,
    is_active: Option<bool>,
    #[serde(default)]
    fields: FieldsBody,
}

/// Fields as a client sends them. JSON may name a field twice; such a body is refused, because the
/// meaning is not clear.
#[derive(Debug, Default)]
pub(crate) struct FieldsBody(Map<String, Json>);

impl FieldsBody {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for FieldsBody {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FieldsBody, D::Error> {
        struct UniqueFieldsVisitor;

        impl<'de> Visitor<'de> for UniqueFieldsVisitor {
            type Value = FieldsBody;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<FieldsBody, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = from.next_entry::<String, Json>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!(
                            "the row has the field `{name}` twice"
                        )));
                    }
                    fields.insert(name, value);
                }
                Ok(FieldsBody(fields))
            }
        }

        from.deserialize_map(UniqueFieldsVisitor)
    }
}

/// The parent of a row, and the container in the parent.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ParentBody {
    id: u64,
    container: String,
}

/// The event that wrote a row last.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionBody {
    epoch: u64,
    offset: u64,
}

impl From<Version> for VersionBody {
    fn from(version: Version) -> VersionBody {
        VersionBody { epoch: version.epoch.0, offset: version.plog.0 }
    }
}

impl From<VersionBody> for Version {
    fn from(version: VersionBody) -> Version {
        Version { epoch: Epoch(version.epoch), plog: Offset(version.offset) }
    }
}

impl RowBody {
    /// Converts the row into a change: a new row if its id is a raw id, else a change of an
    /// existing row.
    pub(crate) fn into_change(self, schema: &Schema) -> Result<RowChange, ProblemDetails> {
        let RowBody { id, table, parent, version, is_active, fields } = self;
        let table = table_of(schema, &table)?;
        if id > LARGEST_RAW {
            if parent.is_some() {
                return Err(ProblemDetails::bad_request(format!(
                    "record {id} exists, and its parent cannot change: leave out `parent`"
                )));
            }
            let version = version.map(|JsonObject(version)| version.into());
            return update(table, RecordId(id), version, is_active, fields);
        }
        if version.is_some() || is_active.is_some() {
            let reason = format!("row {id} is new: leave out `version` and `isActive`");
            return Err(ProblemDetails::bad_request(reason));
        }
        create(table, RecordId(id), parent.map(|JsonObject(parent)| parent), fields)
    }
}

/// Finds the table of a name.
pub(crate) fn table_of<'s>(schema: &'s Schema, name: &str) -> Result<&'s Table, ProblemDetails> {
    let parsed: QName = name
        .parse()
        .map_err(|_| ProblemDetails::bad_request(format!("`{name}` is not the name of a table")))?;
    schema
        .table(&parsed)
        .ok_or_else(|| ProblemDetails::bad_request(format!("the application has no table {name}")))
}

fn create(
    table: &Table,
    raw: RecordId,
    parent: Option<ParentBody>,
    FieldsBody(fields): FieldsBody,
) -> Result<RowChange, ProblemDetails> {
    let parent = match parent {
        None => None,
        Some(ParentBody { id, container }) => {
            Some(Parent { id: RecordId(id), container: field_name(&container)? })
        }
    };
    let mut all = Fields::new();
    for (name, json) in fields {
        if !json.is_null() {
            all.insert(field_name(&name)?, value(table, &name, json)?);
        }
    }
    Ok(RowChange::Create { raw, table: table.name().clone(), parent, fields: all })
}

/// A change that creates a single document.
pub(crate) fn new_doc(table: &Table, fields: FieldsBody) -> Result<RowChange, ProblemDetails> {
    create(table, RecordId(1), None, fields)
}

/// A change of an existing row.
pub(crate) fn update(
    table: &Table,
    id: RecordId,
    version: Option<Version>,
    is_active: Option<bool>,
    FieldsBody(fields): FieldsBody,
) -> Result<RowChange, ProblemDetails> {
    let change = |(name, json): (String, Json)| {
        let value = if json.is_null() { None } else { Some(value(table, &name, json)?) };
        Ok((field_name(&name)?, value))
    };
    let fields = fields.into_iter().map(change).collect::<Result<_, ProblemDetails>>()?;
    Ok(RowChange::Update { id, table: Some(table.name().clone()), version, is_active, fields })
}

fn field_name(name: &str) -> Result<Name, ProblemDetails> {
    name.parse()
        .map_err(|_| ProblemDetails::bad_request(format!("`{name}` is not the name of a field")))
}

fn value(table: &Table, name: &str, json: Json) -> Result<Value, ProblemDetails> {
    let Some(field_type) = table.fields().get(name).copied() else {
        return Err(ProblemDetails::bad_request(format!("{} has no field `{name}`", table.name())));
    };
    let wrong = |expected: &str| {
        ProblemDetails::bad_request(format!(
            "the field `{name}` of {} must be {expected}",
            table.name()
        ))
    };
    let text =
        |json: &Json, expected| json.as_str().map(str::to_owned).ok_or_else(|| wrong(expected));
    Ok(match field_type {
        FieldType::Bool => Value::Bool(json.as_bool().ok_or_else(|| wrong("true or false"))?),
        FieldType::Int32 => {
            let number = json.as_i64().and_then(|number| i32::try_from(number).ok());
            Value::Int32(number.ok_or_else(|| wrong("a whole number of 32 bits"))?)
        }
        FieldType::Int64 => {
            Value::Int64(json.as_i64().ok_or_else(|| wrong("a whole number of 64 bits"))?)
        }
        FieldType::Float32 => {
            let number = json.as_f64().map(|number| number as f32);
            let number = number.filter(|number| number.is_finite());
            Value::Float32(number.ok_or_else(|| wrong("a number of 32 bits"))?)
        }
        FieldType::Float64 => Value::Float64(json.as_f64().ok_or_else(|| wrong("a number"))?),
        FieldType::String => match json {
            Json::String(text) => Value::String(text),
            _ => return Err(wrong("a text")),
        },
        FieldType::Bytes => {
            let expected = "bytes, as a text in Base64";
            let bytes = BASE64.decode(text(&json, expected)?).map_err(|_| wrong(expected))?;
            Value::Bytes(Bytes::from(bytes))
        }
        FieldType::QName => {
            let expected = "a name such as `shop.Article`";
            Value::QName(text(&json, expected)?.parse().map_err(|_| wrong(expected))?)
        }
        FieldType::Ref => {
            Value::Ref(RecordId(json.as_u64().ok_or_else(|| wrong("the id of a record"))?))
        }
    })
}

fn json_of_value(value: &Value) -> Json {
    match value {
        Value::Bool(value) => json!(value),
        Value::Int32(value) => json!(value),
        Value::Int64(value) => json!(value),
        Value::Float32(value) => json!(value),
        Value::Float64(value) => json!(value),
        Value::String(value) => json!(value),
        Value::Bytes(value) => json!(BASE64.encode(value)),
        Value::QName(value) => json!(value.as_str()),
        Value::Ref(value) => json!(value.0),
    }
}

fn json_of_fields(fields: &Fields) -> Json {
    let fields =
        fields.iter().map(|(name, value)| (name.as_str().to_owned(), json_of_value(value)));
    Json::Object(fields.collect())
}

fn json_of_row(record: &Record) -> Json {
    let Record { table, id, parent, is_active, fields, .. } = record;
    let mut row = json!({
        "id": id.0,
        "table": table.as_str(),
        "isActive": is_active,
        "fields": json_of_fields(fields),
    });
    if let (Some(parent), Some(row)) = (parent, row.as_object_mut()) {
        let parent = json!({ "id": parent.id.0, "container": parent.container.as_str() });
        row.insert("parent".to_owned(), parent);
    }
    row
}

/// A stored record as JSON.
pub(crate) fn json_of_record(stored: &StoredRecord) -> Json {
    let mut row = json_of_row(&stored.record);
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
            let Event { time, request, command, params, changes, .. } = &**event;
            object.insert("timeMicros".to_owned(), json!(time.as_micros()));
            object.insert("requestId".to_owned(), json!(request));
            object.insert("command".to_owned(), json!(command.as_str()));
            if !params.is_empty() {
                object.insert("args".to_owned(), json_of_bytes(params));
            }
            let rows = changes.iter().map(|change| json_of_row(&change.record));
            object.insert("rows".to_owned(), rows.collect());
        }
        Entry::Marker(Marker { bytes, .. }) => {
            object.insert("corrupted".to_owned(), json!(BASE64.encode(bytes)));
        }
    }
    json
}

/// The JSON of bytes that a handler takes or returns: JSON as it is, and other bytes as a text in
/// Base64.
pub(crate) fn json_of_bytes(bytes: &Bytes) -> Json {
    serde_json::from_slice(bytes).unwrap_or_else(|_| json!({ "base64": BASE64.encode(bytes) }))
}
