//! The answers to requests that succeed, and the schemas that all applications share.

use serde_json::{Map, Value as Json, json};

use super::{
    json::{DescribedApp, flag, list, natural, object, schema, text},
    tables::RECORD,
};
use crate::route::AnswerKind;

/// The schemas that all applications share.
pub(super) fn common_schemas() -> Map<String, Json> {
    let schemas = [
        ("Version", version()),
        ("WriteAnswer", write_answer()),
        ("BatchAnswer", batch_answer()),
        ("LogEvent", log_event()),
        ("LoggedRow", logged_row()),
        ("Series", series()),
        ("SeriesList", object(json!({ "series": list(schema("Series")) }), &["series"])),
        ("DrawnNumbers", drawn_numbers()),
        ("NextNumber", next_number()),
        ("Gap", gap()),
        ("Gaps", gaps()),
    ];
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

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
            let next = nullable(natural("The value of `after` to read on; `null` marks the end."));
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

/// Lines, each an event. OpenAPI 3.1 has no word for the lines of a body, so a key of its own names
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

fn nullable(mut schema: Json) -> Json {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

fn version() -> Json {
    let properties = json!({
        "epoch": natural("The epoch of the leader that wrote the event."),
        "offset": natural("The offset of the event in the log of the partition."),
    });
    let mut version = object(properties, &["epoch", "offset"]);
    version["description"] = "The event that wrote a record last.".into();
    version
}

fn write_answer() -> Json {
    object(write_properties(), &["epoch", "plogOffset", "wlogOffset", "newIds"])
}

/// The answer of a command of a batch: that of a write, or a problem.
fn batch_answer() -> Json {
    let mut properties = write_properties();
    properties["status"] = natural("The status code that the command alone would get.");
    properties["code"] = text("The code of the problem, for programs.");
    properties["reason"] = text("The reason of the problem, for people.");
    properties["retryAfter"] = natural("The seconds after which the command may be sent again.");
    object(properties, &["status"])
}

fn write_properties() -> Json {
    let ids = json!({
        "type": "object", "additionalProperties": natural("The id of the record."),
        "description": "The id of each new record, by the id that its row had in the request. The \
                        id of a document that is created alone is 1.",
    });
    let drawn = json!({
        "type": "object",
        "additionalProperties": {
            "type": "object", "additionalProperties": { "type": ["string", "integer"] },
        },
        "description": "The number fields and sequence fields of the new records, each record by \
                        the id that its row had in the request. Absent if there are none, or if \
                        they have more than 1 MiB together.",
    });
    json!({
        "epoch": natural("The epoch of the leader that wrote the event."),
        "plogOffset": natural("The offset of the event in the log of the partition."),
        "wlogOffset": natural("The offset of the event in the log of the workspace."),
        "newIds": ids,
        "drawn": drawn,
        "result": { "description": "The result of the command; absent if there is none." },
        "repeated": flag("Whether this is the answer to an earlier request with the same key."),
    })
}

fn log_event() -> Json {
    let properties = json!({
        "wlogOffset": natural("The offset of the event in the log of the workspace; absent in a \
                               fencing entry."),
        "plogOffset": natural("The offset of the entry in the log of the partition."),
        "epoch": natural("The epoch of the leader that wrote the entry."),
        "workspace": natural("The workspace; only in the log of a partition."),
        "timeMicros": {
            "type": "integer", "format": "int64",
            "description": "Microseconds since 1970, UTC, by the clock of the node.",
        },
        "requestId": text("The `X-Request-Id` of the request."),
        "principal": text("The sender of the command, with tokens."),
        "command": text("The command."),
        "args": { "description": "The arguments of the command; absent if there are none." },
        "rows": list(schema("LoggedRow")),
        "corrupted": {
            "type": "string", "contentEncoding": "base64",
            "description": "The bytes in place of an event that could not be read.",
        },
        "fencing": flag("Whether this is a fencing entry, which has no event and no workspace; \
                         only in the log of a partition."),
    });
    object(properties, &["plogOffset", "epoch"])
}

fn logged_row() -> Json {
    let parent =
        json!({ "id": natural("The id of the parent."), "container": text("The container.") });
    let properties = json!({
        "id": natural("The id of the record."),
        "table": text("The table of the record."),
        "isActive": flag("Whether the record is in use."),
        "parent": object(parent, &["id", "container"]),
        "fields": { "type": "object", "description": "The fields that have a value." },
    });
    object(properties, &["id", "table", "isActive", "fields"])
}

fn series() -> Json {
    let properties = json!({
        "series": text("The id of the series."),
        "policy": { "enum": ["fast", "gapless"] },
        "template": text("The form of the numbers."),
        "reset": text("The period after which the counter starts again."),
        "zone": text("The time zone of the periods."),
        "start": natural("The first counter of a period."),
        "step": natural("The difference of two counters."),
        "overflow": { "enum": ["widen", "error"] },
        "scope": { "enum": ["workspace", "application"] },
        "warnAtPercent": natural("The part of the counters that counts as nearly full."),
        "range": natural("The counters that a node reserves together; only for `fast`."),
        "refillBelow": natural("The counters left at which more are reserved; only for `fast`."),
        "maxCount": natural("The most numbers of one request; only for `fast`."),
        "record": natural("The id of the counter record; only for `gapless`."),
    });
    let required = [
        "series",
        "policy",
        "template",
        "reset",
        "zone",
        "start",
        "step",
        "overflow",
        "scope",
        "warnAtPercent",
    ];
    object(properties, &required)
}

fn drawn_numbers() -> Json {
    let properties = json!({
        "numbers": list(text("A number.")),
        "counters": list(natural("The counter of the number.")),
        "period": text("The period in which the counters count."),
        "nearlyFull": flag("Whether the counters are nearly used up."),
    });
    object(properties, &["numbers", "counters", "period"])
}

fn next_number() -> Json {
    let properties = json!({
        "number": text("The number that would be drawn next."),
        "counter": natural("Its counter."),
        "period": text("The period in which the counter counts."),
        "nearlyFull": flag("Whether the counters are nearly used up."),
    });
    object(properties, &["number", "counter", "period", "nearlyFull"])
}

fn gap() -> Json {
    let properties = json!({
        "first": natural("The first counter of the range."),
        "last": natural("The last counter of the range."),
        "count": natural("The number of counters of the range."),
        "state": { "enum": ["not_issued", "in_use", "open"] },
        "owner": text("The leadership that reserved the range."),
        "reservedAtMicros": natural("Microseconds since 1970, UTC."),
    });
    object(properties, &["first", "last", "count", "state", "owner", "reservedAtMicros"])
}

fn gaps() -> Json {
    let reserved =
        natural("The counter at which the next range begins; `null` if none was reserved.");
    let properties = json!({
        "series": text("The id of the series."),
        "policy": { "enum": ["fast", "gapless"] },
        "period": text("The period of the counter."),
        "reserved": nullable(reserved),
        "gaps": list(schema("Gap")),
        "next": nullable(natural("The value of `from` to read on; `null` marks the end.")),
        "reason": text("The reason why a gapless series has no gaps."),
    });
    object(properties, &["series", "policy", "period", "reserved", "gaps", "next"])
}
