//! Batches of commands: several commands of one workspace in one request.
//!
//! Each command is an event of its own, or is refused by itself. The commands run in their order.
//!
//! Invariant: a batch is answered with 503 only if nothing of it was done. So a batch can be tried
//! again as a whole, as a single command can.

use bytes::Bytes;
use clock::Instant;
use hyper::{Response, StatusCode};
use processor::{Command, Done, Refused};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value as Json, json, value::RawValue};
use vvm::{
    App,
    eventlog::{InvalidName, QName, WsId},
};

use super::{
    body::{Payload, parsed},
    commands::{json_of_done, params_and_rows, within_share},
    handler::{ApiHandler, RequestHead},
    headers::{idempotency_key, refuse_if_match},
};
use crate::{
    problem::{NOT_LEADER, ProblemDetails},
    response::{Body, JSON, bytes_response},
    rows::{JsonObject, RowBody},
};

/// The largest number of commands in a batch.
pub(crate) const MOST_COMMANDS: usize = 100;

/// The code of an answer in which some commands were refused as busy. Only nodes see it.
///
/// Such a refusal says that this try of the command did nothing. If an earlier try of the batch may
/// have done the command, the refusal must not reach the client
/// ([`Tries::next`](super::tries::Tries::next)).
pub(super) const PARTLY_BUSY: &str = "partly_busy";

/// Marks an answer with the code [`PARTLY_BUSY`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PartlyBusy;

/// The code of an answer for the tries of its request.
pub(super) fn code_of(answer: &Result<Response<Body>, ProblemDetails>) -> Option<&'static str> {
    match answer {
        Ok(response) => response.extensions().get::<PartlyBusy>().map(|_| PARTLY_BUSY),
        Err(problem) => Some(problem.code()),
    }
}

/// The body of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody<'b> {
    #[serde(borrow)]
    commands: Vec<JsonObject<BatchedCommand<'b>>>,
}

/// A command of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchedCommand<'b> {
    command: String,
    #[serde(borrow)]
    args: Option<&'b RawValue>,
    #[serde(default)]
    rows: Vec<JsonObject<RowBody>>,
}

impl BatchedCommand<'_> {
    fn into_command(
        self,
        app: &App,
        ws: WsId,
        deadline: Instant,
    ) -> Result<Command, ProblemDetails> {
        let BatchedCommand { command, args, rows } = self;
        let name: QName = command
            .parse()
            .map_err(|bad: InvalidName| ProblemDetails::bad_request(bad.to_string()))?;
        let (params, rows) = params_and_rows(app, args, rows)?;
        Ok(Command { params, rows, ..Command::new(ws, name, deadline) })
    }
}

impl ApiHandler {
    /// Runs the commands of a batch, and answers each of them.
    pub(super) async fn run_batch(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        payload: &mut Payload<'_>,
    ) -> Result<Response<Body>, ProblemDetails> {
        refuse_if_match(&head.headers)?;
        let body = self.receive_body(head, payload).await?;
        let BatchBody { commands } = parsed(&body.bytes)?;
        if !(1..=MOST_COMMANDS).contains(&commands.len()) {
            let reason = format!("a batch has 1 to {MOST_COMMANDS} commands");
            return Err(ProblemDetails::bad_request(reason));
        }
        let key = idempotency_key(head, &body.bytes)?;
        // The commands that can run, and the problem of each of the others.
        let (mut sent, mut invalid) = (Vec::with_capacity(commands.len()), Vec::new());
        for (place, JsonObject(command)) in (0..).zip(commands) {
            let command = command.into_command(app, ws, body.deadline).map(|command| Command {
                request: head.request.clone(),
                principal: self.access.name_of(&head.caller),
                idempotency_key: key.as_ref().map(|key| key.of_place(place)),
                span: head.span.context(),
                ..command
            });
            invalid.push(command.map(|command| sent.push(command)).err());
        }
        let partition = self.at(app, ws).await?;
        let answered = partition.commands().run_batch(sent).await;
        let (json, is_partly_busy) = match json_of_batch(invalid, answered) {
            Err(problem) if problem.code() == NOT_LEADER => {
                return Err(self.with_leader(app, ws, problem).await);
            }
            answer => answer?,
        };
        let json = within_share(body.take_share(), json.to_string().into_bytes());
        let mut response = bytes_response(StatusCode::OK, JSON, json);
        if is_partly_busy {
            response.extensions_mut().insert(PartlyBusy);
        }
        Ok(response)
    }
}

/// The answers of all commands, and whether some of them are busy. `invalid` has the problem of
/// each command that was not sent, and `answered` the answers of the others.
///
/// # Errors
/// The problem of the whole batch, if nothing was done and a command was refused as busy. Then the
/// batch may be tried again as a whole.
fn json_of_batch(
    invalid: Vec<Option<ProblemDetails>>,
    answered: Vec<Result<Done, Refused>>,
) -> Result<(Json, bool), ProblemDetails> {
    let may_be_done = answered.iter().any(|answer| {
        matches!(answer, Ok(_) | Err(Refused::NotApplied { .. } | Refused::Unknown(_)))
    });
    let is_busy = |answer: &&Result<Done, Refused>| matches!(answer, Err(Refused::Busy(_)));
    let busy = answered.iter().find(is_busy);
    if let Some(Err(refused)) = busy
        && !may_be_done
    {
        return Err(ProblemDetails::refused(refused.clone()));
    }
    let is_partly_busy = busy.is_some();
    let mut answered = answered.into_iter();
    let answers = invalid.into_iter().filter_map(|invalid| match invalid {
        Some(problem) => Some(problem.into_answer()),
        None => answered.next().map(json_of_answer),
    });
    Ok((json!({ "answers": answers.collect::<Vec<_>>() }), is_partly_busy))
}

fn json_of_answer(answered: Result<Done, Refused>) -> Json {
    match answered {
        Ok(done) => {
            let mut json = json_of_done(&done);
            json["status"] = StatusCode::OK.as_u16().into();
            json
        }
        Err(refused) => ProblemDetails::refused(refused).into_answer(),
    }
}

/// The number of commands in the body of a batch; `None` if the body is no batch, or is refused
/// because of this number: such a body does no command.
pub(super) fn commands_in(body: &Bytes) -> Option<u32> {
    #[derive(Deserialize)]
    struct AnyBatch {
        commands: Vec<IgnoredAny>,
    }
    let AnyBatch { commands } = serde_json::from_slice(body).ok()?;
    (1..=MOST_COMMANDS).contains(&commands.len()).then_some(commands.len() as u32)
}

#[cfg(test)]
mod tests {
    use processor::{Answer, Busy, Rejection};
    use vvm::eventlog::{Epoch, Offset};

    use super::*;

    fn done() -> Result<Done, Refused> {
        let (epoch, plog, wlog) = (Epoch(1), Offset(2), Offset(3));
        Ok(Done { epoch, plog, wlog, answer: Answer::default(), is_repeated: false })
    }

    fn rejected() -> Result<Done, Refused> {
        Err(Refused::Rejected(Rejection::conflict("no")))
    }

    fn unknown() -> Result<Done, Refused> {
        Err(Refused::Unknown("lost".to_owned()))
    }

    fn not_applied() -> Result<Done, Refused> {
        Err(Refused::NotApplied { plog: Offset(2), why: "full".to_owned() })
    }

    /// The statuses in the answer to commands that all were sent, or the code of the problem of the
    /// whole batch.
    fn answer(answered: Vec<Result<Done, Refused>>) -> Result<(Vec<u64>, bool), &'static str> {
        let invalid = answered.iter().map(|_| None).collect();
        let answer = json_of_batch(invalid, answered).map_err(|problem| problem.code())?;
        let statuses = answer.0["answers"].as_array().unwrap().iter();
        Ok((statuses.map(|answer| answer["status"].as_u64().unwrap()).collect(), answer.1))
    }

    #[test]
    fn a_batch_is_busy_as_a_whole_only_if_nothing_of_it_may_be_done() {
        let busy = || Err(Refused::Busy(Busy::Stopping));
        assert_eq!(answer(vec![busy(), busy()]), Err("stopping"));
        assert_eq!(answer(vec![rejected(), busy()]), Err("stopping"));
        assert_eq!(answer(vec![done(), busy()]), Ok((vec![200, 503], true)));
        assert_eq!(answer(vec![busy(), unknown()]), Ok((vec![503, 504], true)));
        assert_eq!(answer(vec![busy(), not_applied()]), Ok((vec![503, 500], true)));
        assert_eq!(answer(vec![rejected(), rejected()]), Ok((vec![409, 409], false)));
        assert_eq!(answer(vec![done(), rejected(), done()]), Ok((vec![200, 409, 200], false)));
        assert_eq!(answer(vec![]), Ok((vec![], false)));
    }

    #[test]
    fn a_command_that_was_not_sent_keeps_its_place() {
        let invalid = || Some(ProblemDetails::bad_request("no such table"));
        let places = vec![invalid(), None, invalid(), None];
        let (json, _) = json_of_batch(places, vec![done(), rejected()]).unwrap();
        let statuses: Vec<_> =
            json["answers"].as_array().unwrap().iter().map(|answer| &answer["status"]).collect();
        assert_eq!(statuses, [400, 200, 400, 409]);
        assert_eq!(json["answers"][0]["reason"], "no such table");
        assert_eq!(json["answers"][1]["plogOffset"], 2);
    }

    #[test]
    fn the_commands_of_a_body_are_counted() {
        let count = |body: &'static str| commands_in(&Bytes::from_static(body.as_bytes()));
        assert_eq!(count(r#"{"commands":[{},1,{"rows":[[]]}],"more":[]}"#), Some(3));
        // A body that is refused must not count as the commands that it names.
        let many = format!(r#"{{"commands":[{}]}}"#, ["{}"; MOST_COMMANDS + 1].join(","));
        assert_eq!(commands_in(&many.into()), None);
        for none in ["", "{}", r#"{"commands":[]}"#, r#"{"commands":{}}"#, r#"{"commands":[{}"#] {
            assert_eq!(count(none), None, "{none}");
        }
    }
}
