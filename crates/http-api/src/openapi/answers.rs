//! The answers to requests that succeed.

use serde_json::{Value as Json, json};

use super::{
    json::{DescribedApp, list, natural, object, schema, text},
    tables::RECORD,
};
use crate::route::AnswerKind;

/// The content of an answer. `table` is the table of the operation, if it has one.
pub(super) fn content(app: &DescribedApp<'_>, answer: AnswerKind, table: Option<&str>) -> Json {
    let record = || table.map(|table| schema(&app.schema_name(table))).unwrap_or_default();
    let json = |schema: Json| json!({ "application/json": { "schema": schema } });
    match answer {
        AnswerKind::Done | AnswerKind::Created => json(schema("WriteAnswer")),
        AnswerKind::BatchDone => {
            json(object(json!({ "answers": list(schema("BatchAnswer")) }), &["answers"]))
        }
        AnswerKind::Records => {
            let ids = |description| list(natural(description));
            let properties = json!({
                "docs": list(schema(&app.schema_name(RECORD))),
                "missing": ids("An id without a record."),
                "rest": ids("An id that this answer does not cover, because it is too large."),
            });
            json(object(properties, &["docs", "missing", "rest"]))
        }
        AnswerKind::OneRecord => json(record()),
        AnswerKind::Documents => {
            let mut next = natural("The value of `after` to read on; `null` marks the end.");
            next["type"] = json!(["integer", "null"]);
            json(object(json!({ "docs": list(record()), "next": next }), &["docs", "next"]))
        }
        AnswerKind::Events => events(),
        AnswerKind::SeriesList => json(schema("SeriesList")),
        AnswerKind::OneSeries => json(schema("Series")),
        AnswerKind::Drawn => json(schema("DrawnNumbers")),
        AnswerKind::Next => json(schema("NextNumber")),
        AnswerKind::Gaps => json(schema("Gaps")),
    }
}

/// Lines, each an event. OpenAPI 3.1 cannot describe the lines of a body, so an extension key names
/// their schema.
fn events() -> Json {
    let lines = "One event in each line. An empty line is a sign of life.";
    let events = "Server-sent events: `data` is an event, and `id` its offset in this log.";
    let stream = |description: &str| {
        let mut stream = text(description);
        stream["x-vvm-item"] = schema("LogEvent");
        json!({ "schema": stream })
    };
    json!({ "application/x-ndjson": stream(lines), "text/event-stream": stream(events) })
}
