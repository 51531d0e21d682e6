//! Commands, and their answers.

use std::sync::LazyLock;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use processor::{Command, Done, MOST_RESULT_BYTES, RowChange};
use serde::Deserialize;
use serde_json::{Value as Json, json, value::RawValue};
use vvm::{
    App,
    eventlog::{QName, WsId},
};

use super::{
    body::{Payload, ReceivedBody, parsed},
    handler::{ApiHandler, RequestHead},
    headers::{idempotency_key, refuse_if_match},
};
use crate::{
    memory::MemoryShare,
    problem::{NOT_LEADER, ProblemDetails},
    response::{Body, JSON, bytes_response},
    rows::{JsonObject, RowBody, json_of_bytes},
};

/// The command that writes rows.
static CUD: LazyLock<QName> = LazyLock::new(|| "sys.CUD".parse().expect("it is a name"));

/// The most bytes of the answer to a command that is done. A result becomes at most four times as
/// long, because a number such as `1e15` is written with all its digits. The new ids have the rest.
pub(super) const DONE_BYTES: usize = 4 * MOST_RESULT_BYTES + (1 << 20);

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

/// The answer of a command. It takes over the share of the body, and makes the share as large as
/// the answer. If there is no free memory, the answer is sent anyway: the command is done.
fn done_response(status: StatusCode, done: &Done, share: Option<MemoryShare>) -> Response<Body> {
    let json = json_of_done(done).to_string();
    bytes_response(status, JSON, within_share(share, json.into_bytes()))
}

/// The bytes of the answer of a request that is done, with the share of its body. The share stays
/// as it is if there is no free memory.
pub(super) fn within_share(
    share: Option<MemoryShare>,
    bytes: impl AsRef<[u8]> + Into<Bytes> + Send + 'static,
) -> Bytes {
    let Some(mut share) = share else { return bytes.into() };
    let _ = share.resize(bytes.as_ref().len());
    share.into_bytes(bytes)
}

pub(super) fn json_of_done(done: &Done) -> Json {
    let Done { epoch, plog, wlog, answer, is_repeated } = done;
    let ids = answer.ids.iter().map(|(raw, id)| (raw.0.to_string(), json!(id.0)));
    let mut json = json!({
        "epoch": epoch.0,
        "plogOffset": plog.0,
        "wlogOffset": wlog.0,
        "newIds": Json::Object(ids.collect()),
    });
    if let Some(object) = json.as_object_mut() {
        if !answer.result.is_empty() {
            object.insert("result".to_owned(), json_of_bytes(&answer.result));
        }
        if *is_repeated {
            object.insert("repeated".to_owned(), json!(true));
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use processor::Answer;
    use vvm::eventlog::{Epoch, Offset, RecordId};

    use super::*;

    /// A node that forwards a command takes an answer of at most [`DONE_BYTES`].
    #[test]
    fn the_largest_answer_of_a_command_has_a_bound() {
        let done = |result: String| {
            assert!(result.len() <= MOST_RESULT_BYTES);
            let id = |raw| (RecordId(raw), RecordId(u64::MAX));
            let answer = Answer { ids: (61_440..65_536).map(id).collect(), result: result.into() };
            let (epoch, offset) = (Epoch(u64::MAX), Offset(u64::MAX));
            Done { epoch, plog: offset, wlog: offset, answer, is_repeated: true }
        };
        let list = |of: &str| {
            let numbers = vec![of; MOST_RESULT_BYTES / (of.len() + 1) - 1];
            format!("[{}]", numbers.join(","))
        };
        let others = ["\u{1}".repeat(MOST_RESULT_BYTES), "x".repeat(MOST_RESULT_BYTES)];
        let lists = ["1e15", "-0"].map(list);
        for result in lists.into_iter().chain(others) {
            let (bytes, begin) = (result.len(), result[..5].to_owned());
            let json = json_of_done(&done(result)).to_string().len();
            assert!(json > bytes && json <= DONE_BYTES, "{begin}: {json}");
        }
    }
}
