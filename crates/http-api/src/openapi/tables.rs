//! The schemas of an application: its records, its fields, and the rows of its commands.

use serde_json::{Map, Value as Json, json};
use vvm::eventlog::{FieldRules, FieldType, Name, Schema, Stamp, Table, TableKind};

use crate::rows::json_of_value;

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
    let is_fixed =
        table.is_append_only() || matches!(table.kind(), TableKind::ODoc | TableKind::ORecord);
    !is_of_system(table) && !is_fixed
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
            if !table.rules().is_empty() {
                add(&new_fields_name(table), new_fields(table));
            }
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

/// The name of the schema of the fields that a client gives to a new record. A stored record may
/// be older than the rules of its table, so it has a schema without them.
pub(super) fn new_fields_name(table: &Table) -> String {
    match table.rules().is_empty() {
        true => fields_name(table.name().as_str()),
        false => format!("{}.New", table.name()),
    }
}

/// Whether a new record needs a field from its client.
pub(super) fn needs_fields(table: &Table) -> bool {
    table.rules().values().any(|rules| rules.required && rules.default.is_none())
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
    let changes = schema(&app.schema_name(&changes_name(table.name().as_str())));
    let new = || schema(&app.schema_name(&new_fields_name(table)));
    let fields = match (table.is_append_only(), table.rules().is_empty()) {
        (true, _) => new(),
        (false, true) => changes,
        (false, false) => json!({ "anyOf": [new(), changes] }),
    };
    let mut properties =
        json!({ "id": id, "table": { "const": table.name().as_str() }, "fields": fields });
    if !table.is_append_only() {
        properties["isActive"] = flag("Only for a change: whether the record is in use.");
        properties["version"] = schema("Version");
    }
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

/// The fields of a record. The node itself gives the values of number fields, sequence fields and
/// stamps. A record may be older than the rules of its table, so no field is required.
fn fields(table: &Table) -> Json {
    let own = |name: &str, kind, how: String| {
        let mut value = value(kind);
        value["readOnly"] = true.into();
        value["description"] = how.into();
        (name.to_owned(), value)
    };
    let mut properties = Map::new();
    for (name, kind) in table.fields() {
        let name_and_value = match table.stamps().get(name) {
            Some(stamp) => own(name.as_str(), *kind, stamp_text(stamp)),
            None => (name.as_str().to_owned(), value(*kind)),
        };
        properties.extend([name_and_value]);
    }
    properties.extend(table.numbers().iter().map(|(name, series)| {
        let how = format!("The node draws the value from the series `{series}`.");
        own(name.as_str(), FieldType::String, how)
    }));
    properties.extend(table.sequences().iter().map(|(name, sequence)| {
        let how = format!("The node draws the value from the sequence `{sequence}`.");
        own(name.as_str(), FieldType::Int64, how)
    }));
    object(properties.into(), &[])
}

fn stamp_text(stamp: &Stamp) -> String {
    match stamp {
        Stamp::Created => "When the record was made, in microseconds since 1970.".to_owned(),
        Stamp::Changed => {
            "When the record was last written, in microseconds since 1970.".to_owned()
        }
        Stamp::Date { of, format, zone } => {
            format!("The date of `{of}` in {zone}, as `{format}`.")
        }
    }
}

/// The fields that a client gives to a new record of a table with rules.
fn new_fields(table: &Table) -> Json {
    let mut new = fields(table);
    let mut required = Vec::new();
    for (name, rules) in table.rules() {
        add_rules(&mut new["properties"][name.as_str()], rules);
        if rules.required && rules.default.is_none() {
            required.push(name.as_str());
        }
    }
    if !required.is_empty() {
        new["required"] = json!(required);
    }
    new
}

/// Adds the rules of a field to the schema of its values.
fn add_rules(value: &mut Json, rules: &FieldRules) {
    let words = [("minimum", &rules.min), ("maximum", &rules.max), ("default", &rules.default)];
    for (word, given) in words {
        if let Some(given) = given {
            value[word] = json_of_value(given);
        }
    }
    let mut sentences: Vec<String> =
        value.get("description").and_then(Json::as_str).map(str::to_owned).into_iter().collect();
    match rules.max_length {
        // Bytes are sent as a text that is longer than they are.
        Some(most) if value.get("contentEncoding").is_some() => {
            sentences.push(format!("At most {most} bytes."));
        }
        Some(most) => value["maxLength"] = most.into(),
        None => {}
    }
    if !rules.one_of.is_empty() {
        value["enum"] = rules.one_of.iter().map(json_of_value).collect();
    }
    if !rules.to.is_empty() {
        let to: Vec<&str> = rules.to.iter().map(|to| to.as_str()).collect();
        sentences.push(format!("The record is an active one of {}.", to.join(" or ")));
    }
    if rules.immutable {
        sentences.push("Once the field has a value, it keeps the value.".to_owned());
    }
    if !sentences.is_empty() {
        value["description"] = sentences.join(" ").into();
    }
}

/// Changes of the fields of a record: `null` empties a field.
fn changes(table: &Table) -> Json {
    let change = |(name, kind): (&Name, &FieldType)| {
        let mut value = value(*kind);
        let rules = table.rules().get(name);
        if let Some(rules) = rules {
            add_rules(&mut value, &FieldRules { default: None, ..rules.clone() });
        }
        if !rules.is_some_and(|rules| rules.required) {
            value["type"] = json!([value["type"], "null"]);
            if let Some(known) = value.get_mut("enum").and_then(Json::as_array_mut) {
                known.push(Json::Null);
            }
        }
        if matches!(kind, FieldType::Int32 | FieldType::Int64) {
            value = json!({ "oneOf": [value, schema("Add")] });
        }
        (name.as_str().to_owned(), value)
    };
    let sent = table.fields().iter().filter(|(name, _)| !table.stamps().contains_key(*name));
    let mut changes = object(sent.map(change).collect::<Map<_, _>>().into(), &[]);
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
