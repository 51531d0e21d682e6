//! Commands.

use std::sync::LazyLock;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use processor::{Command, Done, RowChange};
use serde::Deserialize;
use serde_json::value::RawValue;
use vvm::{
    App,
    eventlog::{QName, WsId},
};

use super::{
    body::{Payload, ReceivedBody, parsed},
    done::done_response,
    handler::{ApiHandler, RequestHead},
    headers::{idempotency_key, refuse_if_match},
};
use crate::{
    problem::{NOT_LEADER, ProblemDetails},
    response::Body,
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
pub(super) fn params_and_rows(
    app: &App,
    args: Option<&RawValue>,
    rows: Vec<JsonObject<RowBody>>,
) -> Result<(Bytes, Vec<RowChange>), ProblemDetails> {
    let schema = app.application().schema();
    let rows = rows.into_iter().map(|JsonObject(row)| row.into_change(schema));
    let params = args.map(|args| Bytes::copy_from_slice(args.get().as_bytes()));
    Ok((params.unwrap_or_default(), rows.collect::<Result<_, _>>()?))
}

impl ApiHandler {
    pub(super) async fn run_command(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        name: &QName,
        payload: &mut Payload<'_>,
    ) -> Result<Response<Body>, ProblemDetails> {
        refuse_if_match(&head.headers)?;
        let body = self.receive_body(head, payload).await?;
        let CommandBody { args, rows } = parsed(&body.bytes)?;
        let (params, rows) = params_and_rows(app, args, rows)?;
        let done = self.run(head, app, ws, (name.clone(), params, rows), body).await?;
        Ok(done_response(StatusCode::OK, &done, body.take_share()))
    }

    async fn run(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        (name, params, rows): (QName, Bytes, Vec<RowChange>),
        body: &ReceivedBody,
    ) -> Result<Done, ProblemDetails> {
        let partition = self.at(app, ws).await?;
        let command = Command {
            params,
            rows,
            request: head.request.clone(),
            principal: self.access.name_of(&head.caller),
            idempotency_key: idempotency_key(head, &body.bytes)?,
            span: head.span.context(),
            ..Command::new(ws, name, body.deadline)
        };
        match partition.commands().run(command).await.map_err(ProblemDetails::refused) {
            Err(problem) if problem.code() == NOT_LEADER => {
                Err(self.with_leader(app, ws, problem).await)
            }
            answered => answered,
        }
    }

    /// Runs a command with one change.
    pub(super) async fn run_cud(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        row: RowChange,
        body: &mut ReceivedBody,
        status: StatusCode,
    ) -> Result<Response<Body>, ProblemDetails> {
        let command = (CUD.clone(), Bytes::new(), vec![row]);
        let done = self.run(head, app, ws, command, body).await?;
        Ok(done_response(status, &done, body.take_share()))
    }
}
