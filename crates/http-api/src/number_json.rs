//! Document numbers: their JSON, and the problems of requests for them.

use http_server::problem::{NO_NUMBER, ProblemDetails};
use hyper::StatusCode;
use processor::{DeclaredSeries, SeriesPolicy};
use serde_json::{Value as Json, json};
use vvm::{
    docnumbers::{
        DocNumber, DocNumberError, FastSettings, LedgerEntry, RangeState, RenderError, SeriesId,
    },
    istorage::{self, ErrorKind},
};

/// The definition of a series, and the settings of its policy.
pub(crate) fn json_of_series(DeclaredSeries { series, policy }: &DeclaredSeries) -> Json {
    let definition = series.definition();
    let mut json = json!({
        "series": series.id().as_str(),
        "template": definition.template,
        "reset": definition.reset,
        "zone": definition.zone,
        "start": definition.start,
        "step": definition.step,
        "overflow": definition.overflow,
        "scope": definition.scope,
        "warnAtPercent": definition.warn_at_percent,
        "policy": name_of(policy),
    });
    match policy {
        SeriesPolicy::Fast(FastSettings { range, refill_below, max_block, .. }) => {
            json["range"] = json!(range);
            json["refillBelow"] = json!(refill_below);
            json["maxCount"] = json!(max_block);
        }
        SeriesPolicy::Gapless { counter } => json["record"] = json!(counter.0),
    }
    json
}

/// The name of a policy.
pub(crate) fn name_of(policy: &SeriesPolicy) -> &'static str {
    match policy {
        SeriesPolicy::Fast(_) => "fast",
        SeriesPolicy::Gapless { .. } => "gapless",
    }
}

/// Numbers that were drawn together, so all of them have the same period.
pub(crate) fn json_of_numbers(numbers: &[DocNumber]) -> Json {
    let texts: Vec<&str> = numbers.iter().map(|number| &*number.text).collect();
    let counters: Vec<u64> = numbers.iter().map(|number| number.counter).collect();
    let period = numbers.first().map(|number| number.period.to_string());
    let mut json = json!({ "numbers": texts, "period": period, "counters": counters });
    if numbers.iter().any(|number| number.is_nearly_full) {
        json["nearlyFull"] = json!(true);
    }
    json
}

/// A number that was not drawn.
pub(crate) fn json_of_peeked(number: &DocNumber) -> Json {
    json!({
        "number": number.text,
        "period": number.period.to_string(),
        "counter": number.counter,
        "nearlyFull": number.is_nearly_full,
    })
}

/// An entry of a ledger of a series with this step. `own` is the name of the present leadership.
pub(crate) fn json_of_gap(entry: &LedgerEntry, step: u64, own: &str) -> Json {
    json!({
        "first": entry.first,
        "last": entry.until.saturating_sub(step),
        "count": entry.until.saturating_sub(entry.first).div_ceil(step),
        "state": match entry.state {
            RangeState::Open if entry.owner == own => "in_use",
            RangeState::Open => "open",
            RangeState::NotIssued => "not_issued",
        },
        "owner": entry.owner,
        "reservedAtMicros": entry.reserved_at.as_micros(),
    })
}

/// The problem of a draw that failed.
pub(crate) fn draw_problem(error: &DocNumberError) -> ProblemDetails {
    match error {
        DocNumberError::Render(error) => render_problem(error),
        DocNumberError::Block { max, .. } => {
            ProblemDetails::bad_request(format!("`count` must be a number from 1 to {max}"))
        }
        DocNumberError::Storage(error) => storage_problem(error),
        DocNumberError::TimedOut => ProblemDetails::unavailable("timed_out", error.to_string()),
        DocNumberError::Closed => ProblemDetails::unavailable("stopping", error.to_string()),
    }
}

/// The problem of a series that has no number for a request.
pub(crate) fn render_problem(error: &RenderError) -> ProblemDetails {
    ProblemDetails::new(StatusCode::CONFLICT, NO_NUMBER, error.to_string())
}

/// The problem of a series whose numbers are drawn by commands only.
pub(crate) fn gapless_problem(id: &SeriesId) -> ProblemDetails {
    let reason = format!(
        "the series {id} is gapless, so only commands draw its numbers: create a row of a table with \
         a number field of this series, or run a command that draws"
    );
    ProblemDetails::new(StatusCode::CONFLICT, "gapless", reason)
}

/// The problem of a storage that failed.
pub(crate) fn storage_problem(error: &istorage::Error) -> ProblemDetails {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Corrupt => ProblemDetails::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            format!("{error}: an operator must repair it"),
        ),
        ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::Closed => {
            ProblemDetails::unavailable("storage", error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyper::header::RETRY_AFTER;
    use vvm::istorage::Error;

    use super::*;

    #[test]
    fn a_failed_draw_says_whether_the_client_may_try_again() {
        let storage = |error| DocNumberError::Storage(Arc::new(error));
        let full = RenderError::CounterOverflow { counter: 10, width: 1 };
        for (error, expected) in [
            (DocNumberError::Render(full), (409, "no_number", false)),
            (DocNumberError::Block { count: 0, max: 5 }, (400, "bad_request", false)),
            (storage(Error::unavailable("it is away")), (503, "storage", true)),
            (storage(Error::closed()), (503, "storage", true)),
            (storage(Error::corrupt("a row is damaged")), (500, "internal", false)),
            (DocNumberError::TimedOut, (503, "timed_out", true)),
            (DocNumberError::Closed, (503, "stopping", true)),
        ] {
            let problem = draw_problem(&error);
            let code = problem.code();
            let response = problem.into_response();
            let may_try_again = response.headers().contains_key(RETRY_AFTER);
            let answered = (response.status().as_u16(), code, may_try_again);
            assert_eq!(answered, expected, "{error}");
        }
        assert!(
            draw_problem(&DocNumberError::Block { count: 0, max: 5 }).reason().contains("1 to 5")
        );
    }
}
