//! Conversion between JSON and the value of a field.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use http_server::problem::ProblemDetails;
use processor::FieldChange;
use serde_json::{Map, Value as Json, json};
use vvm::eventlog::{FieldType, RecordId, Table, Value};

use crate::whole_number::whole_in;

/// The operator that adds to a number.
const ADD: &str = "$add";

/// The value of a field that a client sent. The type comes from the table, because JSON has fewer
/// types.
pub(super) fn value_of_json(
    table: &Table,
    name: &str,
    json: Json,
) -> Result<Value, ProblemDetails> {
    if let Some(why) = table.why_not_sent(name) {
        return Err(ProblemDetails::bad_request(why));
    }
    if json.as_object().is_some_and(has_operator) && table.field_type(name).is_some() {
        return Err(ProblemDetails::bad_request(format!(
            "the record is new, so there is nothing to add to: send a value for the field `{name}` \
             of {}",
            table.name()
        )));
    }
    comparable_value(table, name, json)
}

/// The change of a field that a client sent: a value, `null`, or an object with an operator.
pub(super) fn change_of_json(
    table: &Table,
    name: &str,
    json: Json,
) -> Result<FieldChange, ProblemDetails> {
    match json {
        // The command refuses to empty a field that the node gives, or that the table lacks.
        Json::Null => Ok(FieldChange::Clear),
        Json::Object(operators) if has_operator(&operators) => {
            added_number(table, name, &operators).map(FieldChange::Add)
        }
        json => value_of_json(table, name, json).map(FieldChange::Set),
    }
}

fn has_operator(object: &Map<String, Json>) -> bool {
    object.keys().any(|key| key.starts_with('$'))
}

/// The number that a client adds to a field.
fn added_number(
    table: &Table,
    name: &str,
    operators: &Map<String, Json>,
) -> Result<i64, ProblemDetails> {
    let of = table.name();
    let refuse = |why: String| {
        Err(ProblemDetails::bad_request(format!("the field `{name}` of {of}: {why}")))
    };
    match table.field_type(name) {
        Some(FieldType::Int32 | FieldType::Int64) => {}
        Some(other) => {
            return refuse(format!(
                "`{ADD}` is for int32 and int64, and the field is of type {other}"
            ));
        }
        None => return Err(ProblemDetails::bad_request(format!("{of} has no field `{name}`"))),
    }
    if let Some(unknown) = operators.keys().find(|key| *key != ADD) {
        return refuse(format!("`{unknown}` is unknown: the only operator is `{ADD}`"));
    }
    match operators.get(ADD).and_then(whole_in) {
        Some(number) => Ok(number),
        None => refuse(format!("`{ADD}` needs a whole number of 64 bits")),
    }
}

/// The value that a client compares a field with. Unlike a value to write, it may be for a number
/// field or a sequence field.
pub(crate) fn comparable_value(
    table: &Table,
    name: &str,
    json: Json,
) -> Result<Value, ProblemDetails> {
    let Some(field_type) = table.field_type(name) else {
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
            let number = whole_in(&json).and_then(|number| i32::try_from(number).ok());
            Value::Int32(number.ok_or_else(|| wrong("a whole number of 32 bits"))?)
        }
        FieldType::Int64 => {
            Value::Int64(whole_in(&json).ok_or_else(|| {
                wrong("a whole number of 64 bits, and below 2^53 if it has a point")
            })?)
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
            let id = whole_in(&json).and_then(|id| u64::try_from(id).ok());
            Value::Ref(RecordId(id.ok_or_else(|| wrong("the id of a record"))?))
        }
    })
}

pub(crate) fn json_of_value(value: &Value) -> Json {
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
