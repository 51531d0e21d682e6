//! The operations: each endpoint of the table, for each command, table or series that fits.

use serde_json::{Map, Value as Json, json};
use vvm::{
    docnumbers::Reset,
    eventlog::{FieldType, QName, Table, TableKind},
    processor::{DeclaredSeries, SeriesPolicy},
};

use super::{
    answers::content,
    headers::{headers_of, parameter_of},
    json::{DescribedApp, list, object, reference, schema, text},
    problems::problems_of,
    tables::{
        ROW, changes_name, has_rows, is_changeable, is_of_system, needs_fields, new_fields_name,
    },
};
use crate::route::{
    APPS, AnswerKind, BodyKind, ENDPOINTS, Endpoint, MOST_COMMANDS, Parameter, Segment, Values,
};

/// The command that writes rows, and takes no arguments.
const CUD: &str = "sys.CUD";

/// The command that creates a workspace, and takes no rows.
const CREATE_WORKSPACE: &str = "sys.CreateWorkspace";

/// The part of a path that has a name of the application.
#[derive(Clone, Copy)]
enum Subject<'a> {
    None,
    Command(&'a QName),
    Table(&'a Table),
    Series(&'a DeclaredSeries),
}

impl<'a> Subject<'a> {
    /// All subjects of an endpoint.
    fn all(app: &DescribedApp<'a>, endpoint: &Endpoint) -> Vec<Subject<'a>> {
        let application = app.application;
        if endpoint.path.contains(&Segment::Command) {
            let is_possible = |name: &&QName| name.as_str() != CUD || has_rows(app);
            application.commands().filter(is_possible).map(Subject::Command).collect()
        } else if endpoint.path.contains(&Segment::Table) {
            let tables = application.declarations().schema().tables();
            tables.filter(|table| is_of(endpoint, table)).map(Subject::Table).collect()
        } else if endpoint.path.contains(&Segment::Series) {
            let is_drawn = |one: &&DeclaredSeries| {
                endpoint.body != Some(BodyKind::Draw) || matches!(one.policy, SeriesPolicy::Fast(_))
            };
            application.declarations().series().filter(is_drawn).map(Subject::Series).collect()
        } else {
            vec![Subject::None]
        }
    }

    fn name(self) -> Option<&'a str> {
        match self {
            Subject::None => None,
            Subject::Command(name) => Some(name.as_str()),
            Subject::Table(table) => Some(table.name().as_str()),
            Subject::Series(declared) => Some(declared.series.id().as_str()),
        }
    }
}

/// Whether an endpoint serves a table.
fn is_of(endpoint: &Endpoint, table: &Table) -> bool {
    match (endpoint.answer, endpoint.body) {
        (AnswerKind::Documents, _) => table.kind() == TableKind::CDoc,
        (_, Some(BodyKind::NewDoc)) => table.kind().is_document() && !is_of_system(table),
        _ if endpoint.is_read() => true,
        _ => is_changeable(table),
    }
}

/// The paths of an application.
pub(super) fn paths(app: &DescribedApp<'_>, needs_token: bool) -> Map<String, Json> {
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        for subject in Subject::all(app, endpoint) {
            let path = path(app, endpoint, subject);
            let of_path = paths.entry(path).or_insert_with(|| json!({}));
            let method = endpoint.method.as_str().to_ascii_lowercase();
            of_path[method] = operation(app, endpoint, subject, needs_token);
        }
    }
    paths
}

fn path(app: &DescribedApp<'_>, endpoint: &Endpoint, subject: Subject<'_>) -> String {
    let mut path = format!("{APPS}{}", app.name);
    for segment in endpoint.path {
        path.push('/');
        path += match segment {
            Segment::Is(name) => name,
            Segment::Workspace => "{workspace}",
            Segment::Partition => "{partition}",
            Segment::Record => "{id}",
            Segment::Command | Segment::Table | Segment::Series => {
                subject.name().unwrap_or_default()
            }
        };
    }
    path
}

fn operation(
    app: &DescribedApp<'_>,
    endpoint: &Endpoint,
    subject: Subject<'_>,
    needs_token: bool,
) -> Json {
    let (kind, summary) = (endpoint.kind, endpoint.summary);
    let id = format!("{}.{}.{kind}", app.name.owner(), app.name.name());
    let (id, summary) = match subject.name() {
        None => (id, summary.to_owned()),
        Some(name) => {
            (format!("{id}.{name}"), format!("{}: {name}", summary.trim_end_matches('.')))
        }
    };
    let table = match subject {
        Subject::Table(table) => Some(table.name().as_str()),
        _ => None,
    };
    let mut responses = problems_of(endpoint);
    let (status, description) = match endpoint.answer {
        AnswerKind::Created => ("201", "The document was created."),
        AnswerKind::Done => ("200", "The request was done."),
        _ => ("200", "The answer."),
    };
    let answer = json!({
        "description": description,
        "headers": headers_of(endpoint),
        "content": content(app, endpoint.answer, table),
    });
    responses.insert(status.to_owned(), answer);
    let mut operation = json!({
        "operationId": id,
        "tags": [app.name.to_string()],
        "summary": summary,
        "parameters": parameters(endpoint, subject),
        "responses": responses,
    });
    if needs_token {
        let right = endpoint.right.name();
        operation["description"] = format!("The token must grant the right `{right}`.").into();
    }
    if let Some(body) = endpoint.body {
        operation["requestBody"] = body_of(app, body, subject);
    }
    operation
}

fn parameters(endpoint: &Endpoint, subject: Subject<'_>) -> Vec<Json> {
    let in_path = |segment: &Segment| {
        let (name, most, description) = match segment {
            Segment::Workspace => ("workspace", None, "The number of the workspace."),
            Segment::Partition => ("partition", Some(u16::MAX), "The number of the partition."),
            Segment::Record => ("id", None, "The id of the record."),
            _ => return None,
        };
        let mut schema = json!({ "type": "integer", "format": "int64", "minimum": 0 });
        if let Some(most) = most {
            schema["maximum"] = most.into();
        }
        Some(json!({
            "name": name, "in": "path", "required": true, "schema": schema,
            "description": description,
        }))
    };
    let in_query = |parameter: &Parameter| {
        json!({
            "name": parameter.name, "in": "query", "schema": values(parameter.values, subject),
            "description": parameter.summary,
            "required": matches!(parameter.values, Values::Ids { .. }),
        })
    };
    let mut all: Vec<Json> = endpoint.path.iter().filter_map(in_path).collect();
    all.extend(endpoint.parameters.iter().map(in_query));
    all.push(reference("parameters", "RequestId"));
    all.extend(endpoint.headers.iter().map(|header| parameter_of(*header)));
    all
}

/// The schema of a parameter. Its examples are of this subject, so the node accepts them.
fn values(values: Values, subject: Subject<'_>) -> Json {
    match values {
        Values::Number { least, most, default } => {
            let mut number = json!({ "type": "integer", "format": "int64", "minimum": least });
            if let Some(most) = most {
                number["maximum"] = most.into();
            }
            if let Some(default) = default {
                number["default"] = default.into();
            }
            number
        }
        Values::Offset => json!({ "type": "string", "pattern": "^([1-9][0-9]*|end)$" }),
        Values::Flag => json!({ "type": "boolean" }),
        Values::Word(word) => json!({ "type": "string", "enum": [word] }),
        Values::Ids { most } => {
            let more = most - 1;
            json!({ "type": "string", "pattern": format!("^[0-9]+(,[0-9]+){{0,{more}}}$") })
        }
        Values::Fields => match subject {
            Subject::Table(table) => {
                json!({ "type": "string", "examples": [example_fields(table)] })
            }
            _ => json!({ "type": "string" }),
        },
        Values::Filter => json!({
            "type": "string", "contentMediaType": "application/json",
            "examples": [example_filter(subject)],
        }),
        Values::Order => json!({ "type": "string", "enum": ["id", "-id"], "default": "id" }),
        Values::Period => json!({ "type": "string", "examples": [example_period(subject)] }),
    }
}

/// Two fields of a table.
fn example_fields(table: &Table) -> String {
    let names: Vec<&str> = table.fields().iter().take(2).map(|(name, _)| name.as_str()).collect();
    names.join(",")
}

/// A text in a field of a table.
fn example_filter(subject: Subject<'_>) -> String {
    let Subject::Table(table) = subject else { return "{}".to_owned() };
    let is_text = |(_, kind): &(_, &FieldType)| **kind == FieldType::String;
    let text = table.fields().iter().find(is_text);
    let fields = text.map(|(name, _)| (name.as_str().to_owned(), Json::from("Tea")));
    Json::Object(fields.into_iter().collect()).to_string()
}

/// A period of a series.
fn example_period(subject: Subject<'_>) -> &'static str {
    let Subject::Series(declared) = subject else { return "all" };
    match declared.series.definition().reset {
        Reset::Never => "all",
        Reset::Year => "2026",
        Reset::Month => "2026-11",
        Reset::Week => "2026-W48",
        Reset::Day => "2026-11-29",
    }
}

/// The body of a request.
fn body_of(app: &DescribedApp<'_>, body: BodyKind, subject: Subject<'_>) -> Json {
    let of_table = |name: fn(&Table) -> String| match subject {
        Subject::Table(table) => schema(&app.schema_name(&name(table))),
        _ => json!({}),
    };
    let (schema, is_required) = match body {
        BodyKind::Command => command(app, subject.name().unwrap_or_default()),
        BodyKind::Batch => (batch(app), true),
        BodyKind::NewDoc => {
            let is_needed = matches!(subject, Subject::Table(table) if needs_fields(table));
            let required: &[&str] = if is_needed { &["fields"] } else { &[] };
            (object(json!({ "fields": of_table(new_fields_name) }), required), true)
        }
        BodyKind::Change => {
            let fields = of_table(|table| changes_name(table.name().as_str()));
            let properties = json!({ "fields": fields, "isActive": { "type": "boolean" } });
            let mut change = object(properties, &[]);
            change["minProperties"] = 1.into();
            (change, true)
        }
        BodyKind::Draw => (draw(subject), false),
    };
    json!({ "required": is_required, "content": { "application/json": { "schema": schema } } })
}

/// The body of a command, and whether it must not be empty.
fn command(app: &DescribedApp<'_>, command: &str) -> (Json, bool) {
    let rows = || list(schema(&app.schema_name(ROW)));
    match command {
        CUD => {
            let mut rows = rows();
            rows["minItems"] = 1.into();
            (object(json!({ "rows": rows }), &["rows"]), true)
        }
        CREATE_WORKSPACE => {
            let kinds: Vec<&String> = app.application.declarations().kinds().keys().collect();
            let kind = json!({ "type": "string", "enum": kinds });
            let args = json!({ "kind": kind, "name": text("The name of the workspace.") });
            (object(json!({ "args": object(args, &["kind"]) }), &["args"]), true)
        }
        _ => {
            let args =
                json!({ "description": "The arguments, in the form that the command takes." });
            let mut properties = json!({ "args": args });
            if has_rows(app) {
                properties["rows"] = rows();
            }
            (object(properties, &[]), false)
        }
    }
}

/// The body of a batch of commands.
fn batch(app: &DescribedApp<'_>) -> Json {
    let mut properties = json!({
        "command": { "type": "string", "description": "The name of the command." },
        "args": { "description": "The arguments, in the form that the command takes." },
    });
    if has_rows(app) {
        properties["rows"] = list(schema(&app.schema_name(ROW)));
    }
    let mut commands = list(object(properties, &["command"]));
    commands["minItems"] = 1.into();
    commands["maxItems"] = MOST_COMMANDS.into();
    object(json!({ "commands": commands }), &["commands"])
}

fn draw(subject: Subject<'_>) -> Json {
    let mut count = json!({ "type": "integer", "minimum": 1, "default": 1 });
    if let Subject::Series(DeclaredSeries { policy: SeriesPolicy::Fast(settings), .. }) = subject {
        count["maximum"] = settings.max_block.into();
    }
    object(json!({ "count": count }), &[])
}
