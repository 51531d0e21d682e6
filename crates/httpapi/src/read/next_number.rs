//! Reading the counter of a gapless series.

use clock::WallTime;
use vvm::{
    LocalPartition,
    docnumbers::{DocNumber, Series, WsId as NumberWs},
    eventlog::{RecordId, Value, WsId},
};

use super::record::read_problem;
use crate::{numbers::render_problem, problem::ProblemDetails};

/// The number that a command would draw from a gapless series now.
pub(crate) async fn next_number(
    partition: &LocalPartition<'_>,
    ws: WsId,
    series: &Series,
    counter: RecordId,
    now: WallTime,
) -> Result<DocNumber, ProblemDetails> {
    let day = series.day(now).map_err(|error| render_problem(&error))?;
    let stored = partition.record(ws, counter).await.map_err(read_problem)?;
    let next = stored.and_then(|stored| {
        let fields = &stored.record.fields;
        match (fields.get("period"), fields.get("next")) {
            (Some(Value::String(period)), Some(Value::Int64(next)))
                if *period == day.period().to_string() =>
            {
                u64::try_from(*next).ok()
            }
            _ => None,
        }
    });
    let next = next.unwrap_or(series.definition().start);
    day.number(NumberWs(ws.0), next).map_err(|error| render_problem(&error))
}
