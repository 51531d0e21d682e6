//! Requests for document numbers.
//!
//! The leader of a workspace answers them, so the ranges of a workspace's counter are on one node.
//! A number that is drawn stays unique after the leadership is lost, because a range is reserved by
//! a conditional write. So the leadership is not checked again after a draw.

use clock::{Instant, WallTime};
use hyper::{Response, StatusCode};
use processor::{DeclaredSeries, SeriesPolicy};
use serde::Deserialize;
use serde_json::json;
use vvm::{
    App, LocalPartition,
    docnumbers::{FastSeries, Period, Reset, Series, SeriesId, WsId as NumberWs},
    eventlog::WsId,
};

use super::{
    body::{ReceivedBody, parsed},
    handler::{ApiHandler, RequestHead},
    headers::{refuse_idempotency_key, refuse_if_match},
};
use crate::{
    numbers::{
        draw_problem, gapless_problem, json_of_gap, json_of_numbers, json_of_peeked,
        json_of_series, name_of, render_problem, storage_problem,
    },
    problem::ProblemDetails,
    query::{limit, parameter},
    read,
    request_body::RequestBody,
    response::{Body, JSON, bytes_response, json_response},
};

/// The largest number of ranges in an answer.
const MOST_GAPS: usize = 1_000;

/// The body of a request that draws numbers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrawBody {
    #[serde(default = "one")]
    count: u32,
}

fn one() -> u32 {
    1
}

impl ApiHandler {
    pub(super) async fn list_series(
        &self,
        app: &App,
        ws: WsId,
    ) -> Result<Response<Body>, ProblemDetails> {
        self.in_workspace(app, ws, self.deadline()).await?;
        let series: Vec<_> = app.application().series().map(json_of_series).collect();
        Ok(json_response(StatusCode::OK, &json!({ "series": series })))
    }

    pub(super) async fn read_series(
        &self,
        app: &App,
        ws: WsId,
        id: &SeriesId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let declared = series_of(app, id)?;
        self.in_workspace(app, ws, self.deadline()).await?;
        Ok(json_response(StatusCode::OK, &json_of_series(declared)))
    }

    pub(super) async fn draw_numbers(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        id: &SeriesId,
        body: &mut RequestBody,
    ) -> Result<Response<Body>, ProblemDetails> {
        refuse_if_match(&head.headers)?;
        refuse_idempotency_key(&head.headers)?;
        let declared = series_of(app, id)?;
        let ReceivedBody { bytes, mut share, deadline } = self.receive_body(head, body).await?;
        let DrawBody { count } = parsed(&bytes)?;
        self.in_workspace(app, ws, deadline).await?;
        let series = fast_series(app, declared)?;
        let numbers = series.block(NumberWs(ws.0), count, deadline).await;
        let numbers = numbers.map_err(|error| draw_problem(&error))?;
        let json = json_of_numbers(&numbers).to_string();
        // The numbers are drawn. So they are sent even if there is no free memory.
        let _ = share.resize(json.len());
        Ok(bytes_response(StatusCode::OK, JSON, share.into_bytes(json.into_bytes())))
    }

    pub(super) async fn peek_number(
        &self,
        app: &App,
        ws: WsId,
        id: &SeriesId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let declared = series_of(app, id)?;
        let deadline = self.deadline();
        let partition = self.in_workspace(app, ws, deadline).await?;
        let number = match declared.policy {
            SeriesPolicy::Fast(_) => {
                let series = fast_series(app, declared)?;
                let number = series.peek(NumberWs(ws.0), deadline).await;
                number.map_err(|error| draw_problem(&error))?
            }
            SeriesPolicy::Gapless { counter } => {
                let now = self.node.clock().wall();
                let next = read::next_number(&partition, ws, &declared.series, counter, now);
                let next = self.read_in_time(deadline, self.throttle.run(next)).await;
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
        let DeclaredSeries { series, policy } = series_of(app, id)?;
        let query = head.query.as_deref();
        let (limit, from) = (limit(query, MOST_GAPS)?, parameter(query, "from")?.unwrap_or(0));
        let period = period_of(series, query, self.node.clock().wall())?;
        let deadline = self.deadline();
        let partition = self.in_workspace(app, ws, deadline).await?;
        let mut json = json!({
            "series": id.as_str(), "policy": name_of(policy), "period": period.to_string(),
            "reserved": null, "gaps": [], "next": null,
        });
        if matches!(policy, SeriesPolicy::Gapless { .. }) {
            json["reason"] =
                "a number of a gapless series exists exactly when its event does".into();
            return Ok(json_response(StatusCode::OK, &json));
        }
        let rows = partition.number_rows();
        let counter = series.counter_key(period, NumberWs(ws.0));
        let entries = rows.ledger(&counter, from, limit, deadline).await;
        let entries = entries.map_err(|error| storage_problem(&error))?;
        let reserved = rows.counter(&counter, deadline).await;
        json["reserved"] = json!(reserved.map_err(|error| storage_problem(&error))?);
        let own = partition.number_owner();
        let step = series.definition().step;
        json["gaps"] = entries.iter().map(|entry| json_of_gap(entry, step, own)).collect();
        let last = entries.last().filter(|_| entries.len() == limit);
        json["next"] = json!(last.map(|last| last.until));
        Ok(json_response(StatusCode::OK, &json))
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

/// The period that the query names, or else that of `now`.
fn period_of(
    series: &Series,
    query: Option<&str>,
    now: WallTime,
) -> Result<Period, ProblemDetails> {
    let reset = series.definition().reset;
    match parameter::<Period>(query, "period")? {
        Some(period) if period.reset() == reset => Ok(period),
        Some(period) => {
            let (id, example) = (series.id(), example_of(reset));
            let reason = format!("`{period}` is not a period of the series {id}: use {example}");
            Err(ProblemDetails::bad_request(reason))
        }
        None => Ok(series.day(now).map_err(|error| render_problem(&error))?.period()),
    }
}

/// The text of a period of this reset.
fn example_of(reset: Reset) -> &'static str {
    match reset {
        Reset::Never => "all",
        Reset::Year => "a year, such as 2026",
        Reset::Month => "a month, such as 2026-05",
        Reset::Week => "a week, such as 2026-W21",
        Reset::Day => "a day, such as 2026-05-22",
    }
}
