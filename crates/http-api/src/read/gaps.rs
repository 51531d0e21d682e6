//! Reading the ranges that a counter has reserved and may not have fully issued.

use clock::{Instant, WallTime};
use http_server::{
    problem::ProblemDetails,
    query::{limit, parameter},
};
use processor::{DeclaredSeries, SeriesPolicy};
use serde_json::json;
use vvm::{
    LocalPartition,
    docnumbers::{Period, Reset, Series},
    eventlog::WsId,
};

use crate::number_json::{json_of_gap, name_of, render_problem, storage_problem};

/// The largest number of ranges in an answer.
pub(crate) const MOST_GAPS: usize = 1_000;

/// The ranges that the query of a request asks for.
pub(crate) struct GapQuery {
    period: Period,
    /// The first counter of the first range, or a lower one.
    from: u64,
    limit: usize,
}

impl GapQuery {
    /// Reads the query of a request that comes at `now`.
    pub(crate) fn of(
        series: &Series,
        query: Option<&str>,
        now: WallTime,
    ) -> Result<GapQuery, ProblemDetails> {
        let (limit, from) = (limit(query, MOST_GAPS)?, parameter(query, "from")?.unwrap_or(0));
        Ok(GapQuery { period: period_of(series, query, now)?, from, limit })
    }
}

/// Lists the ranges of the counter of a workspace.
pub(crate) async fn list_gaps(
    partition: &LocalPartition<'_>,
    ws: WsId,
    DeclaredSeries { series, policy }: &DeclaredSeries,
    &GapQuery { period, from, limit }: &GapQuery,
    deadline: Instant,
) -> Result<Vec<u8>, ProblemDetails> {
    let mut json = json!({
        "series": series.id().as_str(), "policy": name_of(policy), "period": period.to_string(),
        "reserved": null, "gaps": [], "next": null,
    });
    if matches!(policy, SeriesPolicy::Gapless { .. }) {
        json["reason"] = "a number of a gapless series exists exactly when its event does".into();
        return Ok(json.to_string().into_bytes());
    }
    let rows = partition.number_rows();
    let counter = series.counter_key(period, ws);
    let entries = rows.ledger(&counter, from, limit, deadline).await;
    let entries = entries.map_err(|error| storage_problem(&error))?;
    let reserved = rows.counter(&counter, deadline).await;
    json["reserved"] = json!(reserved.map_err(|error| storage_problem(&error))?);
    let (step, own) = (series.definition().step, partition.number_owner());
    json["gaps"] = entries.iter().map(|entry| json_of_gap(entry, step, own)).collect();
    let last = entries.last().filter(|_| entries.len() == limit);
    json["next"] = json!(last.map(|last| last.until));
    Ok(json.to_string().into_bytes())
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
