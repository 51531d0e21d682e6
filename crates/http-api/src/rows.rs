//! Rows in JSON: the rows of a request become changes, and stored rows become answers.

mod body;
mod bytes_body;
mod shown;
mod stored;
mod value;

use http_server::problem::ProblemDetails;
use processor::{FieldChange, RowChange};
use vvm::eventlog::{Fields, Name, Parent, QName, RecordId, Schema, Table, Value, Version};

use self::{
    body::ParentBody,
    value::{change_of_json, value_of_json},
};
pub(crate) use self::{
    body::{FieldBody, FieldsBody, JsonObject, RowBody, UniqueNames},
    bytes_body::BytesBody,
    stored::{json_of_fields, line_of_entry},
    value::{comparable_value, json_of_value},
};
pub use self::{
    shown::ShownFields,
    stored::{json_of_entry, json_of_record},
};

/// The largest raw id.
const LARGEST_RAW: u64 = u16::MAX as u64;

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

/// Finds a table by its name.
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
    UniqueNames(fields): FieldsBody,
) -> Result<RowChange, ProblemDetails> {
    let parent = match parent {
        None => None,
        Some(ParentBody { id, container }) => {
            Some(Parent { id: RecordId(id), container: field_name(&container)? })
        }
    };
    let mut all = Fields::new();
    for (name, FieldBody(json)) in fields {
        if !json.is_null() {
            all.insert(field_name(&name)?, value_of_json(table, &name, json)?);
        }
    }
    Ok(RowChange::Create { raw, table: table.name().clone(), parent, fields: all })
}

/// A change that creates a single document.
pub(crate) fn new_doc(table: &Table, fields: FieldsBody) -> Result<RowChange, ProblemDetails> {
    let change = create(table, RecordId(1), None, fields)?;
    refuse_raw_refs(table, &change)?;
    Ok(change)
}

/// A change of a single document.
pub(crate) fn change_doc(
    table: &Table,
    id: RecordId,
    version: Option<Version>,
    is_active: Option<bool>,
    fields: FieldsBody,
) -> Result<RowChange, ProblemDetails> {
    let change = update(table, id, version, is_active, fields)?;
    refuse_raw_refs(table, &change)?;
    Ok(change)
}

/// Refuses references to raw ids in the change of a single document. Its sender sees no raw ids: a
/// new document has the raw id 1 in its command, so a reference to 1 would be one to itself.
fn refuse_raw_refs(table: &Table, change: &RowChange) -> Result<(), ProblemDetails> {
    let refuse = |name: &Name, value: &Value| match value {
        Value::Ref(id) if id.0 <= LARGEST_RAW => {
            let (table, id, first) = (table.name(), id.0, LARGEST_RAW + 1);
            Err(ProblemDetails::bad_request(format!(
                "the field `{name}` of {table} refers to record {id}, and the ids of records \
                 begin at {first}: send the id that an answer gave. Only rows of a command refer \
                 to new rows by the ids from 1 to {LARGEST_RAW}"
            )))
        }
        _ => Ok(()),
    };
    match change {
        RowChange::Create { fields, .. } => {
            fields.iter().try_for_each(|(name, value)| refuse(name, value))
        }
        RowChange::Update { fields, .. } => {
            fields.iter().try_for_each(|(name, change)| match change {
                FieldChange::Set(value) => refuse(name, value),
                FieldChange::Clear | FieldChange::Add(_) => Ok(()),
            })
        }
    }
}

/// A change of an existing row.
fn update(
    table: &Table,
    id: RecordId,
    version: Option<Version>,
    is_active: Option<bool>,
    UniqueNames(fields): FieldsBody,
) -> Result<RowChange, ProblemDetails> {
    let change = |(name, FieldBody(json)): (String, FieldBody)| {
        Ok((field_name(&name)?, change_of_json(table, &name, json)?))
    };
    let fields = fields.into_iter().map(change).collect::<Result<_, ProblemDetails>>()?;
    Ok(RowChange::Update { id, table: Some(table.name().clone()), version, is_active, fields })
}

fn field_name(name: &str) -> Result<Name, ProblemDetails> {
    name.parse()
        .map_err(|_| ProblemDetails::bad_request(format!("`{name}` is not the name of a field")))
}
