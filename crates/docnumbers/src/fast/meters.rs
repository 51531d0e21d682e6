//! The metrics of a fast series, through the `metrics` facade. Each has the label `series`, and the
//! label `app` if the owner of the ranges names an application
//! ([`RangeOwner::with_app`](crate::RangeOwner::with_app)):
//!
//! - counter `docnumbers_issued_total`: numbers that were drawn;
//! - counter `docnumbers_refills_total`: reservations of a range, by `outcome` (`reserved` or
//!   `failed`);
//! - histogram `docnumbers_refill_wait_seconds`: how long a draw waited for a range. A draw that
//!   did not wait is not counted;
//! - gauge `docnumbers_remaining`: the unissued counters that the node held when it last reserved a
//!   range, and 0 after the series was closed;
//! - counter `docnumbers_gaps_total`: counters that the node held and did not issue, by `cause`:
//!   `reserved_after` (other nodes had reserved counters after them) or `not_given_back` (the
//!   storage failed, the deadline passed, or too many counters waited to be given back).

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};

use crate::SeriesId;

#[derive(Debug)]
pub(crate) struct SeriesMeters {
    pub(crate) issued: Counter,
    pub(crate) reserved: Counter,
    pub(crate) failed: Counter,
    pub(crate) refill_wait: Histogram,
    pub(crate) remaining: Gauge,
    pub(crate) reserved_after: Counter,
    pub(crate) not_given_back: Counter,
}

impl SeriesMeters {
    pub(crate) fn new(series: &SeriesId, app: Option<&str>) -> SeriesMeters {
        let app = app.map(|app| Label::new("app", app.to_owned()));
        let labels: Vec<Label> =
            app.into_iter().chain([Label::new("series", series.to_string())]).collect();
        let with = |key, value| [&labels[..], &[Label::new(key, value)]].concat();
        let refills = |outcome| counter!("docnumbers_refills_total", with("outcome", outcome));
        let gaps = |cause| counter!("docnumbers_gaps_total", with("cause", cause));
        SeriesMeters {
            issued: counter!("docnumbers_issued_total", labels.clone()),
            reserved: refills("reserved"),
            failed: refills("failed"),
            refill_wait: histogram!("docnumbers_refill_wait_seconds", labels.clone()),
            remaining: gauge!("docnumbers_remaining", labels.clone()),
            reserved_after: gaps("reserved_after"),
            not_given_back: gaps("not_given_back"),
        }
    }
}
