//! Commands.

use std::sync::LazyLock;

use bytes::Bytes;
use http_server::{
    body::Payload,
    problem::{Answer, ProblemDetails},
    request_head::RequestHead,
};
use hyper::StatusCode;
use processor::{Command, RowChange};
use serde::Deserialize;
use serde_json::value::RawValue;
use vvm::{App, eventlog::QName};

use crate::{
    context::{ApiContext, ApiRequest},
    done::done_response,
    headers::{idempotency_key, refuse_if_match},
    json_body::parse,
    owner::{owned, with_owner},
    refusal::problem_of,
    rows::{JsonObject, RowBody},
};

/// The command that writes rows.
static CUD: LazyLock<QName> = LazyLock::new(|| "sys.CUD".parse().expect("it is a name"));

/// The body of a command.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandBody<'b> {
    #[serde(borrow)]
    args: Option<&'b RawValue>,
    #[serde(default)]
    rows: Vec<JsonObject<RowBody>>,
}

/// The params and rows of a command, from the parts of its body.
pub(crate) fn params_and_rows(
    app: &App,
    args: Option<&RawValue>,
    rows: Vec<JsonObject<RowBody>>,
) -> Result<(Bytes, Vec<RowChange>), ProblemDetails> {
    let schema = app.application().declarations().schema();
    let rows = rows.into_iter().map(|JsonObject(row)| row.into_change(schema));
    let params = args.map(|args| Bytes::copy_from_slice(args.get().as_bytes()));
    Ok((params.unwrap_or_default(), rows.collect::<Result<_, _>>()?))
}

/// Runs the command that a path names.
pub(crate) async fn run(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    name: &QName,
    payload: &mut Payload<'_>,
) -> Answer {
    refuse_if_match(&request.head.headers)?;
    let body = api.bodies.receive(request.head, request.until, payload).await?;
    let CommandBody { args, rows } = parse(&body)?;
    let (params, rows) = params_and_rows(request.app, args, rows)?;
    let command = Command::new(request.ws, name.clone(), api.deadline(request));
    let command = Command { params, rows, ..command };
    run_one(api, request, command, payload, StatusCode::OK).await
}

/// Runs a command with one change.
pub(crate) async fn run_change(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    row: RowChange,
    payload: &mut Payload<'_>,
    status: StatusCode,
) -> Answer {
    let command = Command::new(request.ws, CUD.clone(), api.deadline(request));
    run_one(api, request, command.with_rows(vec![row]), payload, status).await
}

async fn run_one(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    command: Command,
    payload: &mut Payload<'_>,
    status: StatusCode,
) -> Answer {
    let partition = owned(api, request).await?;
    let idempotency_key = idempotency_key(request.head, &payload.bytes())?;
    let command = Command { idempotency_key, ..sent_by(request.head, command) };
    match partition.commands().run(command).await {
        Ok(done) => Ok(done_response(status, &done, payload.take_memory())),
        Err(why) => Err(with_owner(api, request, problem_of(why)).await),
    }
}

/// The command with the sender and the name of its request.
pub(crate) fn sent_by(head: &RequestHead, command: Command) -> Command {
    Command {
        request: head.request.clone(),
        principal: head.principal().unwrap_or_default().to_owned(),
        span: head.span.context(),
        ..command
    }
}
