//! Batches of commands: several commands of one workspace in one request.
//!
//! Each command becomes an event of its own, or is refused on its own. The commands run in order.
//!
//! Invariant: a batch is answered with 503 or 429 only if none of its commands was done. So the
//! whole batch can be sent again, like a single command.

use clock::Instant;
use http_forward::{BatchState, is_settled};
use http_server::{
    body::Payload,
    limits::Permit,
    problem::{Answer, ProblemDetails, UNKNOWN},
    response::{JSON, bytes_response},
};
use hyper::StatusCode;
use processor::{Command, Done, MOST_RESULT_BYTES, Refused, Rejection, RejectionKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, value::RawValue};
use vvm::{
    App,
    eventlog::{InvalidName, QName, WsId},
};

use crate::{
    commands::{params_and_rows, sent_by},
    context::{ApiContext, ApiRequest},
    done::{DoneBody, json_of_answer, most_result_bytes},
    headers::{idempotency_key, refuse_if_match},
    json_body::parse,
    owner::{owned, with_owner},
    refusal::problem_of,
    route::MOST_COMMANDS,
    rows::{JsonObject, RowBody},
};

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

/// Runs the commands of a batch, and answers each of them.
pub(crate) async fn run(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    payload: &mut Payload<'_>,
) -> Answer {
    let ApiRequest { head, app, ws, .. } = *request;
    refuse_if_match(&head.headers)?;
    let body = api.bodies.receive(head, request.until, payload).await?;
    let BatchBody { commands } = parse(&body)?;
    if !(1..=MOST_COMMANDS).contains(&commands.len()) {
        let reason = format!("a batch has 1 to {MOST_COMMANDS} commands");
        return Err(ProblemDetails::bad_request(reason));
    }
    let (key, deadline) = (idempotency_key(head, &body)?, api.deadline(request));
    let most_result_bytes = most_result_bytes(commands.len());
    // 1. Send the commands that can run, and keep the problem of each of the others.
    let (mut sent, mut invalid) = (Vec::with_capacity(commands.len()), Vec::new());
    for (place, JsonObject(command)) in (0..).zip(commands) {
        let command = command.into_command(app, ws, deadline).map(|command| Command {
            idempotency_key: key.as_ref().map(|key| key.of_place(place)),
            most_result_bytes,
            ..sent_by(head, command)
        });
        invalid.push(command.map(|command| sent.push(command)).err());
    }
    let partition = owned(api, request).await?;
    let answered = partition.commands().run_batch(sent).await;
    // 2. Answer all of them in their order.
    let (json, state) = match json_of_batch(invalid, &answered) {
        Ok(answer) => answer,
        Err(problem) => return Err(with_owner(api, request, problem).await),
    };
    let json = Permit::around(payload.take_memory(), json);
    let mut response = bytes_response(StatusCode::OK, JSON, json);
    if let Some(state) = state {
        response.extensions_mut().insert(state);
    }
    Ok(response)
}

/// The answer to a batch, as JSON.
#[derive(Serialize)]
struct BatchAnswer<'d> {
    answers: Vec<CommandAnswer<'d>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum CommandAnswer<'d> {
    Done(DoneBody<'d>),
    Refused(Json),
}

/// The answers of all commands, and the state of the batch. `invalid` has the problem of each
/// command that was not sent, and `answered` the answers of the others.
///
/// # Errors
/// The problem of the whole batch, if nothing was done and a command was refused as busy. Then the
/// whole batch may be tried again.
fn json_of_batch(
    invalid: Vec<Option<ProblemDetails>>,
    answered: &[Result<Done, Refused>],
) -> Result<(Vec<u8>, Option<BatchState>), ProblemDetails> {
    let may_be_done = answered.iter().any(|answer| {
        matches!(answer, Ok(_) | Err(Refused::NotApplied { .. } | Refused::Unknown(_)))
    });
    let is_busy = |answer: &&Result<Done, Refused>| matches!(answer, Err(Refused::Busy(_)));
    let busy = answered.iter().find(is_busy);
    if let Some(Err(refused)) = busy
        && !may_be_done
    {
        return Err(problem_of(refused.clone()));
    }
    let (mut answered, mut is_unsettled, commands) = (answered.iter(), false, invalid.len());
    let mut refused = |problem: ProblemDetails| {
        is_unsettled |= !is_settled(problem.code()) && problem.code() != UNKNOWN;
        CommandAnswer::Refused(problem.into_answer())
    };
    let answers = invalid.into_iter().filter_map(|invalid| match invalid {
        Some(problem) => Some(refused(problem)),
        None => answered.next().map(|answer| match answer {
            Ok(done) => CommandAnswer::Done(DoneBody::in_batch(done, commands)),
            Err(why) => refused(problem_of(with_advice(why, commands))),
        }),
    });
    let json = json_of_answer(&BatchAnswer { answers: answers.collect() });
    let state = match busy {
        Some(_) => Some(BatchState::PartlyBusy),
        None => is_unsettled.then_some(BatchState::PartlyUnsettled),
    };
    Ok((json, state))
}

/// The refusal of a command of a batch. If its result is too large, the refusal says that a smaller
/// batch has more room for it.
fn with_advice(refused: &Refused, commands: usize) -> Refused {
    let mut refused = refused.clone();
    if let Refused::Rejected(Rejection { kind: RejectionKind::ResultTooLarge, message }) =
        &mut refused
        && commands > 1
    {
        let room = MOST_RESULT_BYTES >> 20;
        let advice = "send it alone or in a smaller batch";
        *message = format!("{message}; the commands of a batch share {room} MiB: {advice}");
    }
    refused
}

#[cfg(test)]
mod tests {
    use http_server::problem::NOT_OWNER;
    use processor::{Answer, Busy};
    use vvm::eventlog::{Epoch, Offset, RecordId};

    use super::*;
    use crate::{done::BATCH_BYTES, openapi::PROBLEM_CODES};

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

    fn failed() -> Result<Done, Refused> {
        Err(Refused::Rejected(Rejection::new(RejectionKind::Internal, "it panicked")))
    }

    fn not_applied() -> Result<Done, Refused> {
        Err(Refused::NotApplied { plog: Offset(2), why: "full".to_owned() })
    }

    /// The status of each answer, and the state of the batch; or the code of the problem of the
    /// whole batch.
    fn answers_of(
        invalid: Vec<Option<ProblemDetails>>,
        answered: &[Result<Done, Refused>],
    ) -> Result<(Vec<u64>, Option<BatchState>), &'static str> {
        let (json, state) = json_of_batch(invalid, answered).map_err(|problem| problem.code())?;
        let json: Json = serde_json::from_slice(&json).unwrap();
        let statuses = json["answers"].as_array().unwrap().iter();
        Ok((statuses.map(|answer| answer["status"].as_u64().unwrap()).collect(), state))
    }

    /// The answer to commands that were all sent.
    fn answer(
        answered: &[Result<Done, Refused>],
    ) -> Result<(Vec<u64>, Option<BatchState>), &'static str> {
        answers_of(answered.iter().map(|_| None).collect(), answered)
    }

    #[test]
    fn a_batch_is_busy_as_a_whole_only_if_nothing_of_it_may_be_done() {
        let busy = || Err(Refused::Busy(Busy::Stopping));
        let partly = Some(BatchState::PartlyBusy);
        assert_eq!(answer(&[busy(), busy()]), Err("stopping"));
        assert_eq!(answer(&[rejected(), busy()]), Err("stopping"));
        assert_eq!(answer(&[done(), busy()]), Ok((vec![200, 503], partly)));
        assert_eq!(answer(&[busy(), unknown()]), Ok((vec![503, 504], partly)));
        assert_eq!(answer(&[busy(), not_applied()]), Ok((vec![503, 500], partly)));
        assert_eq!(answer(&[busy(), done(), failed()]), Ok((vec![503, 200, 500], partly)));
        assert_eq!(answer(&[rejected(), rejected()]), Ok((vec![409, 409], None)));
        assert_eq!(answer(&[done(), rejected(), done()]), Ok((vec![200, 409, 200], None)));
        assert_eq!(answer(&[]), Ok((vec![], None)));
    }

    /// The owner sends the state to the node that forwarded the batch. No problem has the same
    /// code.
    #[test]
    fn a_state_is_found_by_its_code_and_no_problem_is_a_state() {
        for state in [BatchState::PartlyBusy, BatchState::PartlyUnsettled] {
            assert_eq!(BatchState::of(state.code()), Some(state));
            assert!(PROBLEM_CODES.iter().all(|problem| problem.code != state.code()), "{state:?}");
        }
        assert_eq!(BatchState::of(NOT_OWNER), None);
    }

    /// The client was told that a command of its batch had failed, but an earlier try of the batch
    /// had done it.
    #[test]
    fn a_problem_that_does_not_tell_the_outcome_of_an_earlier_try_marks_its_batch() {
        let partly = Some(BatchState::PartlyUnsettled);
        assert_eq!(answer(&[done(), failed()]), Ok((vec![200, 500], partly)));
        assert_eq!(answer(&[failed(), unknown()]), Ok((vec![500, 504], partly)));
        let invalid = || Some(ProblemDetails::bad_request("no such table"));
        assert_eq!(answers_of(vec![None, invalid()], &[done()]), Ok((vec![200, 400], partly)));
        assert_eq!(answers_of(vec![invalid()], &[]), Ok((vec![400], partly)));
        // These tell the outcome, or say that it is not known.
        for settled in [done(), rejected(), not_applied(), unknown()] {
            assert_eq!(answer(&[done(), settled]).unwrap().1, None);
        }
    }

    /// The reason named an undocumented limit, and did not say what to do.
    #[test]
    fn a_result_that_is_too_large_for_its_batch_may_have_room_in_a_smaller_one() {
        let reason = |kind, commands: usize| {
            let refused = Err(Refused::Rejected(Rejection::new(kind, "too large")));
            let invalid = (0..commands).map(|_| None).collect();
            let (json, _) = json_of_batch(invalid, &vec![refused; commands]).unwrap();
            let json: Json = serde_json::from_slice(&json).unwrap();
            assert_eq!(json["answers"][0]["status"], 413);
            json["answers"][0]["reason"].as_str().unwrap().to_owned()
        };
        let advice = "; the commands of a batch share 4 MiB: send it alone or in a smaller batch";
        let result = RejectionKind::ResultTooLarge;
        assert_eq!(reason(result, 2), format!("too large{advice}"));
        assert_eq!(reason(result, 1), "too large", "it is alone");
        assert_eq!(reason(RejectionKind::TooLarge, 2), "too large", "its rows are too large");
    }

    #[test]
    fn a_command_that_was_not_sent_keeps_its_place() {
        let invalid = || Some(ProblemDetails::bad_request("no such table"));
        let places = vec![invalid(), None, invalid(), None];
        let (json, _) = json_of_batch(places, &[done(), rejected()]).unwrap();
        let json: Json = serde_json::from_slice(&json).unwrap();
        let statuses: Vec<_> =
            json["answers"].as_array().unwrap().iter().map(|answer| &answer["status"]).collect();
        assert_eq!(statuses, [400, 200, 400, 409]);
        assert_eq!(json["answers"][0]["reason"], "no such table");
        assert_eq!(json["answers"][1]["plogOffset"], 2);
    }

    /// A node that forwards a batch accepts an answer of at most [`BATCH_BYTES`].
    #[test]
    fn the_largest_answer_of_a_batch_has_a_bound() {
        let id = |raw| (RecordId(raw), RecordId(u64::MAX));
        let largest = |result: Vec<u8>| {
            let ids = (61_440..65_536).map(id).collect();
            let answer = Answer { ids, result: result.into(), ..Answer::default() };
            let (epoch, offset) = (Epoch(u64::MAX), Offset(u64::MAX));
            Ok(Done { epoch, plog: offset, wlog: offset, answer, is_repeated: true })
        };
        // Each byte of a reason becomes six in JSON.
        let longest = || Err(Refused::Rejected(Rejection::conflict("\u{1}".repeat(1 << 20))));
        for count in [1, MOST_COMMANDS] {
            let most = most_result_bytes(count);
            let bytes = |answered: Vec<Result<Done, Refused>>| {
                let invalid = answered.iter().map(|_| None).collect();
                json_of_batch(invalid, &answered).unwrap().0.len()
            };
            let all_done = bytes((0..count).map(|_| largest(vec![0xff; most])).collect());
            assert!(all_done > MOST_RESULT_BYTES && all_done <= BATCH_BYTES, "{all_done}");
            let all_refused = bytes((0..count).map(|_| longest()).collect());
            assert!(all_refused <= BATCH_BYTES, "{all_refused}");
        }
    }
}
