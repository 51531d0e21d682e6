//! Requests for document numbers.
//!
//! The leader of a workspace answers them, so the ranges of a workspace's counter are on one node.
//! A number that is drawn stays unique after the leadership is lost, because a range is reserved by
//! a conditional write. So the leadership is not checked again after a draw.

use bytes::Bytes;
use clock::Instant;
use http_server::{
    body::Payload,
    limits::held_bytes,
    problem::{Answer, ProblemDetails},
    response::{JSON, bytes_response, json_response},
};
use hyper::StatusCode;
use processor::{DeclaredSeries, SeriesPolicy};
use serde::Deserialize;
use serde_json::json;
use vvm::{
    App, LocalPartition,
    docnumbers::{FastSeries, FastSettings, SeriesId},
};

use crate::{
    context::{ApiContext, ApiRequest},
    document_reads::{read_in_time, read_within_memory},
    headers::{refuse_idempotency_key, refuse_if_match},
    json_body::parse,
    number_json::{draw_problem, gapless_problem, json_of_numbers, json_of_peeked, json_of_series},
    owner::{check_owned, owned},
    read::{self, GapQuery},
    refusal::problem_of,
    whole_number::whole,
};

/// The memory that a number takes while it is drawn: for its text of at most 200 bytes, for its
/// counter, and for their JSON.
const NUMBER_BYTES: usize = 1_024;

/// The most bytes of an answer with drawn numbers.
pub(crate) const DRAWN_BYTES: usize = NUMBER_BYTES * FastSettings::MOST_BLOCK as usize;

/// The most bytes of the body of a draw, which is held while the draw waits for other memory.
const MOST_BODY_BYTES: usize = 1 << 10;

/// The body of a request that draws numbers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawBody {
    #[serde(default = "one", deserialize_with = "whole")]
    count: u32,
}

fn one() -> u32 {
    1
}

pub(crate) async fn list_series(api: &ApiContext, request: &ApiRequest<'_>) -> Answer {
    in_workspace(api, request, api.deadline(request)).await?;
    let series: Vec<_> =
        request.app.application().declarations().series().map(json_of_series).collect();
    Ok(json_response(StatusCode::OK, &json!({ "series": series })))
}

pub(crate) async fn read_series(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    id: &SeriesId,
) -> Answer {
    let declared = series_of(request.app, id)?;
    in_workspace(api, request, api.deadline(request)).await?;
    Ok(json_response(StatusCode::OK, &json_of_series(declared)))
}

pub(crate) async fn draw(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    id: &SeriesId,
    payload: &mut Payload<'_>,
) -> Answer {
    let ApiRequest { head, app, ws, .. } = *request;
    refuse_if_match(&head.headers)?;
    refuse_idempotency_key(&head.headers)?;
    let declared = series_of(app, id)?;
    let body = api.bodies.receive(head, request.until, payload).await?;
    let count = drawn_count(&body)?;
    let deadline = api.deadline(request);
    in_workspace(api, request, deadline).await?;
    let series = fast_series(app, declared)?;
    // Take memory for the answer before drawing: the numbers of a refused answer would be used up.
    let bytes = NUMBER_BYTES * count.min(series.settings().max_block) as usize;
    let memory = api.limits.answers.of(bytes);
    let mut memory = memory.take(api.half_asker(head, deadline), bytes).await?;
    let numbers = series.block(ws, count, deadline).await;
    let numbers = numbers.map_err(|error| draw_problem(&error))?;
    let json = json_of_numbers(&numbers).to_string();
    // The answer is smaller than its memory.
    let _ = memory.resize(json.len());
    Ok(bytes_response(StatusCode::OK, JSON, held_bytes(json.into_bytes(), memory)))
}

pub(crate) async fn peek(api: &ApiContext, request: &ApiRequest<'_>, id: &SeriesId) -> Answer {
    let ApiRequest { app, ws, .. } = *request;
    let deadline = api.deadline(request);
    let declared = series_of(app, id)?;
    let partition = in_workspace(api, request, deadline).await?;
    let number = match declared.policy {
        SeriesPolicy::Fast(_) => {
            let number = fast_series(app, declared)?.peek(ws, deadline).await;
            number.map_err(|error| draw_problem(&error))?
        }
        SeriesPolicy::Gapless { counter } => {
            let commands = partition.commands();
            let next = api.limits.turns.run(commands.peek_number(ws, &declared.series, counter));
            let next = async { next.await.map_err(problem_of) };
            let next = read_in_time(api, deadline, next).await;
            check_owned(api, request, &partition).await?;
            next?
        }
    };
    Ok(json_response(StatusCode::OK, &json_of_peeked(&number)))
}

/// Lists the ranges that a counter has reserved and may not have fully issued.
pub(crate) async fn list_gaps(api: &ApiContext, request: &ApiRequest<'_>, id: &SeriesId) -> Answer {
    let deadline = api.deadline(request);
    let declared = series_of(request.app, id)?;
    let partition = in_workspace(api, request, deadline).await?;
    let now = api.node.clock().wall();
    let query = GapQuery::of(&declared.series, request.query(), now)?;
    let read = || async {
        let gaps = read::list_gaps(&partition, request.ws, declared, &query, deadline);
        let gaps = api.limits.turns.run(gaps).await;
        check_owned(api, request, &partition).await?;
        Ok((gaps?, ()))
    };
    let (gaps, ()) = read_within_memory(api, request, deadline, read).await?;
    Ok(bytes_response(StatusCode::OK, JSON, gaps))
}

/// The partition of a workspace that exists.
async fn in_workspace<'r>(
    api: &ApiContext,
    request: &ApiRequest<'r>,
    deadline: Instant,
) -> Result<LocalPartition<'r>, ProblemDetails> {
    let partition = owned(api, request).await?;
    let exists = read::check_workspace_exists(&partition, request.ws);
    let exists = read_in_time(api, deadline, exists).await;
    // The present leader may have the workspace.
    check_owned(api, request, &partition).await?;
    exists?;
    Ok(partition)
}

/// The count of numbers that a body asks for.
fn drawn_count(body: &Bytes) -> Result<u32, ProblemDetails> {
    if body.len() > MOST_BODY_BYTES {
        let reason =
            format!("the body of a draw is too large: the limit is {MOST_BODY_BYTES} bytes");
        return Err(ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", reason));
    }
    parse(body).map(|DrawBody { count }| count)
}

/// The memory for the numbers that a request draws; `None` if it draws none, or its owner refuses
/// it.
///
/// # Errors
/// If the body is not a draw.
pub(crate) fn drawn_bytes(
    app: &App,
    id: &SeriesId,
    body: &Bytes,
) -> Result<Option<usize>, ProblemDetails> {
    let count = drawn_count(body)?;
    Ok(allowed_count(app, id, count).map(|count| NUMBER_BYTES * count as usize))
}

/// The count of numbers that a request draws; `None` if it draws none, or its owner refuses it.
pub(crate) fn numbers_drawn(app: &App, id: &SeriesId, body: &Bytes) -> Option<u32> {
    allowed_count(app, id, drawn_count(body).ok()?)
}

fn allowed_count(app: &App, id: &SeriesId, count: u32) -> Option<u32> {
    match series_of(app, id).ok()?.policy {
        SeriesPolicy::Fast(FastSettings { max_block, .. }) => (count <= max_block).then_some(count),
        SeriesPolicy::Gapless { .. } => None,
    }
}

fn series_of<'a>(app: &'a App, id: &SeriesId) -> Result<&'a DeclaredSeries, ProblemDetails> {
    app.application().declarations().find_series(id).ok_or_else(|| {
        let reason = format!("the application {} has no series `{id}`", app.name());
        ProblemDetails::not_found(reason)
    })
}

/// The handle of a fast series.
fn fast_series<'a>(app: &'a App, of: &DeclaredSeries) -> Result<&'a FastSeries, ProblemDetails> {
    let id = of.series.id();
    if let SeriesPolicy::Gapless { .. } = of.policy {
        return Err(gapless_problem(id));
    }
    let reason = || format!("the series {id} is not open yet");
    app.fast_series(id).ok_or_else(|| ProblemDetails::unavailable("recovering", reason()))
}
