//! The schemas of an application: its records, its fields, and the rows of its commands.

use serde_json::{Map, Value as Json, json};
use vvm::eventlog::{FieldType, Schema, Table, TableKind};

use super::json::{DescribedApp, flag, natural, object, schema};

/// Whether the system alone writes the records of a table.
pub(super) fn is_of_system(table: &Table) -> bool {
    table.name().package() == "sys"
}

/// Whether an application has a table for rows of commands.
pub(super) fn has_rows(app: &DescribedApp<'_>) -> bool {
    app.application.declarations().schema().tables().any(|table| !is_of_system(table))
}

/// Whether clients may change the records of a table.
pub(crate) fn is_changeable(table: &Table) -> bool {
    !is_of_system(table) && !matches!(table.kind(), TableKind::ODoc | TableKind::ORecord)
}

/// All schemas of an application.
pub(super) fn schemas(app: &DescribedApp<'_>) -> Map<String, Json> {
    let definition = app.application.declarations().schema();
    let mut schemas = Map::new();
    let (mut records, mut rows) = (Vec::new(), Vec::new());
    for table in definition.tables() {
        let name = table.name().as_str();
        let mut add = |of: &str, schema| schemas.insert(app.schema_name(of), schema);
        add(name, record(app, table, containers_of(definition, table)));
        add(&fields_name(name), fields(table));
        records.push(name);
        if !is_of_system(table) {
            add(&changes_name(name), changes(table));
            add(&row_name(name), row(app, table, containers_of(definition, table)));
            rows.push(name);
        }
    }
    if !rows.is_empty() {
        schemas.insert(app.schema_name(ROW), any_of(app, &rows, row_name));
    }
    schemas.insert(app.schema_name(RECORD), any_of(app, &records, str::to_owned));
    schemas
}

/// The name of the schema of a row of any table.
pub(super) const ROW: &str = "Row";

/// The name of the schema of a record of any table.
pub(super) const RECORD: &str = "Record";

/// The name of the schema of the fields of a table.
pub(super) fn fields_name(table: &str) -> String {
    format!("{table}.Fields")
}

/// The name of the schema of changes of the fields of a table.
pub(super) fn changes_name(table: &str) -> String {
    format!("{table}.Changes")
}

fn row_name(table: &str) -> String {
    format!("{table}.Row")
}

/// The names of the containers that hold records of a table.
fn containers_of<'s>(all: &'s Schema, table: &Table) -> Vec<&'s str> {
    let containers = all.tables().flat_map(|parent| parent.containers());
    let of_table = containers.filter(|(_, held)| *held == table.name());
    let mut names: Vec<&str> = of_table.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A stored record.
fn record(app: &DescribedApp<'_>, table: &Table, containers: Vec<&str>) -> Json {
    let mut required = vec!["id", "table", "isActive", "fields", "version"];
    let mut properties = json!({
        "id": id_of(table),
        "table": { "const": table.name().as_str() },
        "isActive": flag("Whether the record is in use. No record is ever deleted."),
        "fields": schema(&app.schema_name(&fields_name(table.name().as_str()))),
        "version": schema("Version"),
    });
    if !table.kind().is_document() {
        properties["parent"] = parent(containers);
        required.push("parent");
    }
    let mut record = object(properties, &required);
    record["description"] = kind_text(table).into();
    record
}

/// A row of a command: a new record, or a change of an existing one.
fn row(app: &DescribedApp<'_>, table: &Table, containers: Vec<&str>) -> Json {
    let id = "From 1 to 65535: a new record, which other rows of the command refer to by this id. \
              Above: the id of the record to change.";
    let mut id = natural(id);
    id["minimum"] = 1.into();
    let mut properties = json!({
        "id": id,
        "table": { "const": table.name().as_str() },
        "isActive": flag("Only for a change: whether the record is in use."),
        "version": schema("Version"),
        "fields": schema(&app.schema_name(&changes_name(table.name().as_str()))),
    });
    if !table.kind().is_document() {
        properties["parent"] = parent(containers);
    }
    let mut row = object(properties, &["id", "table"]);
    row["description"] = kind_text(table).into();
    row
}

/// A row or a record of any of these tables. The name of its table tells which. `name` is the name
/// of the schema of one table.
fn any_of(app: &DescribedApp<'_>, tables: &[&str], name: fn(&str) -> String) -> Json {
    let one = |table: &&str| schema(&app.schema_name(&name(table)));
    let mapping = tables.iter().map(|table| {
        let one = format!("#/components/schemas/{}", app.schema_name(&name(table)));
        ((*table).to_owned(), Json::from(one))
    });
    json!({
        "oneOf": tables.iter().map(one).collect::<Json>(),
        "discriminator": { "propertyName": "table", "mapping": mapping.collect::<Map<_, _>>() },
    })
}

fn id_of(table: &Table) -> Json {
    match table.singleton_id() {
        Some(id) => json!({ "const": id.0 }),
        None => natural("The id of the record."),
    }
}

fn parent(containers: Vec<&str>) -> Json {
    let container = json!({ "type": "string", "enum": containers });
    let id = natural("The id of the record that contains this record.");
    object(json!({ "id": id, "container": container }), &["id", "container"])
}

/// The fields of a record. The node itself draws the values of number fields and sequence fields.
/// No table demands a field, so none is required.
fn fields(table: &Table) -> Json {
    let given = table.fields().iter().map(|(name, kind)| (name.as_str(), value(*kind)));
    let drawn = |name: &str, kind, from: String| {
        let mut value = value(kind);
        value["readOnly"] = true.into();
        value["description"] = format!("The node draws the value from the {from}.").into();
        (name.to_owned(), value)
    };
    let mut properties: Map<String, Json> =
        given.map(|(name, value)| (name.to_owned(), value)).collect();
    properties.extend(table.numbers().iter().map(|(name, series)| {
        drawn(name.as_str(), FieldType::String, format!("series `{series}`"))
    }));
    properties.extend(table.sequences().iter().map(|(name, sequence)| {
        drawn(name.as_str(), FieldType::Int64, format!("sequence `{sequence}`"))
    }));
    object(properties.into(), &[])
}

/// Changes of the fields of a record: `null` empties a field.
fn changes(table: &Table) -> Json {
    let change = |(name, kind): (&vvm::eventlog::Name, &FieldType)| {
        let mut value = value(*kind);
        value["type"] = json!([value["type"], "null"]);
        (name.as_str().to_owned(), value)
    };
    let mut changes = object(table.fields().iter().map(change).collect::<Map<_, _>>().into(), &[]);
    changes["description"] = "`null` empties a field.".into();
    changes
}

/// The values of a field of this type.
fn value(kind: FieldType) -> Json {
    match kind {
        FieldType::Bool => json!({ "type": "boolean" }),
        FieldType::Int32 => json!({
            "type": "integer", "format": "int32", "minimum": i32::MIN, "maximum": i32::MAX,
        }),
        FieldType::Int64 => json!({ "type": "integer", "format": "int64" }),
        FieldType::Float32 => json!({ "type": "number", "format": "float" }),
        FieldType::Float64 => json!({ "type": "number", "format": "double" }),
        FieldType::String => json!({ "type": "string" }),
        FieldType::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
        FieldType::QName => json!({
            "type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$",
            "description": "The name of a table or a command.",
        }),
        FieldType::Ref => natural(
            "The id of a record. In a row of a command, an id from 1 to 65535 is that of a new row \
             of the command.",
        ),
    }
}

fn kind_text(table: &Table) -> &'static str {
    match table.kind() {
        TableKind::CDoc => "A document of a collection. All of them can be listed.",
        TableKind::CRecord => "A record in a document of a collection.",
        TableKind::WDoc => "A document of a workspace.",
        TableKind::WRecord => "A record in a document of a workspace.",
        TableKind::ODoc => "A document of an operation, which does not change.",
        TableKind::ORecord => "A record in a document of an operation, which does not change.",
        TableKind::Singleton => "A document that a workspace has at most once, with this id.",
    }
}
