//! Requests for document numbers.
//!
//! The leader of a workspace answers them, so the ranges of a workspace's counter are on one node.
//! A number that is drawn stays unique after the leadership is lost, because a range is reserved by
//! a conditional write. So the leadership is not checked again after a draw.

use bytes::Bytes;
use clock::Instant;
use hyper::{Response, StatusCode};
use processor::{DeclaredSeries, SeriesPolicy};
use serde::Deserialize;
use serde_json::json;
use vvm::{
    App, LocalPartition,
    docnumbers::{FastSeries, FastSettings, SeriesId},
    eventlog::WsId,
};

use super::{
    body::{Payload, parsed},
    handler::{ApiHandler, RequestHead},
    headers::{refuse_idempotency_key, refuse_if_match},
    routing::RoutedRequest,
};
use crate::{
    memory::{MemoryPool, MemoryShare},
    numbers::{draw_problem, gapless_problem, json_of_numbers, json_of_peeked, json_of_series},
    places::NoPlace,
    problem::ProblemDetails,
    read::{self, GapQuery, READ_BYTES},
    response::{Body, JSON, bytes_response, json_response},
    route::ApiOperation,
    whole_number::whole,
};

/// The memory that a number takes while it is drawn: for its text of at most 200 bytes, for its
/// counter, and for their JSON.
const NUMBER_BYTES: usize = 1_024;

/// The most bytes of an answer with drawn numbers.
pub(super) const DRAWN_BYTES: usize = NUMBER_BYTES * FastSettings::MOST_BLOCK as usize;

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

impl ApiHandler {
    pub(super) async fn list_series(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
    ) -> Result<Response<Body>, ProblemDetails> {
        self.in_workspace(app, ws, self.deadline(head)).await?;
        let series: Vec<_> = app.application().series().map(json_of_series).collect();
        Ok(json_response(StatusCode::OK, &json!({ "series": series })))
    }

    pub(super) async fn read_series(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        id: &SeriesId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let (declared, _) = self.series_in(app, ws, id, self.deadline(head)).await?;
        Ok(json_response(StatusCode::OK, &json_of_series(declared)))
    }

    pub(super) async fn draw_numbers(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        id: &SeriesId,
        payload: &mut Payload<'_>,
    ) -> Result<Response<Body>, ProblemDetails> {
        refuse_if_match(&head.headers)?;
        refuse_idempotency_key(&head.headers)?;
        let declared = series_of(app, id)?;
        let body = self.receive_body(head, payload).await?;
        let (DrawBody { count }, deadline) = (parsed(&body.bytes)?, body.deadline);
        // A request that waits for memory holds none.
        body.release();
        self.in_workspace(app, ws, deadline).await?;
        let series = fast_series(app, declared)?;
        let most = count.min(series.settings().max_block);
        let mut share = self.memory_for_numbers(head, most, deadline).await?;
        let numbers = series.block(ws, count, deadline).await;
        let numbers = numbers.map_err(|error| draw_problem(&error))?;
        let json = json_of_numbers(&numbers).to_string();
        // The answer is smaller than its share.
        let _ = share.resize(json.len());
        Ok(bytes_response(StatusCode::OK, JSON, share.into_bytes(json.into_bytes())))
    }

    /// Takes the memory for an answer with so many numbers. No number is drawn before its answer
    /// has memory, because the numbers of an answer that is refused would be used up.
    pub(super) async fn memory_for_numbers(
        &self,
        head: &RequestHead,
        count: u32,
        deadline: Instant,
    ) -> Result<MemoryShare, ProblemDetails> {
        let (pool, bytes) = self.pool_for_numbers(count);
        pool.reserve_in_half(self.taker(head), bytes, deadline).await
    }

    /// Takes the same memory, if it is free at once.
    pub(super) fn try_memory_for_numbers(
        &self,
        head: &RequestHead,
        count: u32,
    ) -> Result<MemoryShare, NoPlace> {
        let (pool, bytes) = self.pool_for_numbers(count);
        pool.try_reserve(self.access.principal(&head.caller), bytes)
    }

    fn pool_for_numbers(&self, count: u32) -> (&MemoryPool, usize) {
        let bytes = NUMBER_BYTES.saturating_mul(count as usize);
        let is_large = bytes > READ_BYTES;
        (if is_large { &self.large_answers } else { &self.answers }, bytes)
    }

    pub(super) async fn peek_number(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        id: &SeriesId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let deadline = self.deadline(head);
        let (declared, partition) = self.series_in(app, ws, id, deadline).await?;
        let number = match declared.policy {
            SeriesPolicy::Fast(_) => {
                let series = fast_series(app, declared)?;
                let number = series.peek(ws, deadline).await;
                number.map_err(|error| draw_problem(&error))?
            }
            SeriesPolicy::Gapless { counter } => {
                let commands = partition.commands();
                let next = self.throttle.run(commands.peek_number(ws, &declared.series, counter));
                let next = async { next.await.map_err(ProblemDetails::refused) };
                let next = self.read_in_time(deadline, next).await;
                self.check_leadership(app, ws, &partition).await?;
                next?
            }
        };
        Ok(json_response(StatusCode::OK, &json_of_peeked(&number)))
    }

    /// Lists the ranges of a counter that were reserved and may not be all issued.
    pub(super) async fn list_gaps(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        id: &SeriesId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let deadline = self.deadline(head);
        let (declared, partition) = self.series_in(app, ws, id, deadline).await?;
        let now = self.node.clock().wall();
        let query = GapQuery::of(&declared.series, head.query(), now)?;
        let read = || async {
            let gaps = read::list_gaps(&partition, ws, declared, &query, deadline);
            let gaps = self.throttle.run(gaps).await;
            self.check_leadership(app, ws, &partition).await?;
            Ok((gaps?, ()))
        };
        let (gaps, ()) = self.read_within_memory(head, deadline, read).await?;
        Ok(bytes_response(StatusCode::OK, JSON, gaps))
    }

    /// A series, and the partition of a workspace that exists.
    async fn series_in<'a>(
        &self,
        app: &'a App,
        ws: WsId,
        id: &SeriesId,
        deadline: Instant,
    ) -> Result<(&'a DeclaredSeries, LocalPartition<'a>), ProblemDetails> {
        let declared = series_of(app, id)?;
        Ok((declared, self.in_workspace(app, ws, deadline).await?))
    }

    /// The partition of a workspace that exists.
    async fn in_workspace<'a>(
        &self,
        app: &'a App,
        ws: WsId,
        deadline: Instant,
    ) -> Result<LocalPartition<'a>, ProblemDetails> {
        let partition = self.at(app, ws).await?;
        let exists = read::check_workspace_exists(&partition, ws);
        let exists = self.read_in_time(deadline, exists).await;
        // The present leader may have the workspace.
        self.check_leadership(app, ws, &partition).await?;
        exists?;
        Ok(partition)
    }

    /// Reads something, at most until the deadline of the request.
    async fn read_in_time<T>(
        &self,
        deadline: Instant,
        read: impl Future<Output = Result<T, ProblemDetails>>,
    ) -> Result<T, ProblemDetails> {
        let read = self.node.clock().timeout_at(deadline, read).await;
        read.unwrap_or_else(|_| {
            Err(ProblemDetails::unavailable("timed_out", "the answer was not read in time"))
        })
    }
}

/// The count of numbers that a request draws; `None` if it draws none, or its owner refuses it.
pub(super) fn numbers_drawn(request: &RoutedRequest<'_>, body: &Bytes) -> Option<u32> {
    let ApiOperation::DrawNumbers(id) = request.operation else { return None };
    let DrawBody { count } = parsed(body).ok()?;
    match series_of(request.app, id).ok()?.policy {
        SeriesPolicy::Fast(FastSettings { max_block, .. }) => (count <= max_block).then_some(count),
        SeriesPolicy::Gapless { .. } => None,
    }
}

/// The body of a request that draws so many numbers.
pub(super) fn draw_body(count: u32) -> Bytes {
    json!({ "count": count }).to_string().into()
}

fn series_of<'a>(app: &'a App, id: &SeriesId) -> Result<&'a DeclaredSeries, ProblemDetails> {
    app.application().find_series(id).ok_or_else(|| {
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
