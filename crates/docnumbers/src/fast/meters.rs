//! The metrics of a fast series, through the `metrics` facade. Each has the label `series`:
//!
//! - counter `docnumbers_issued_total`: numbers that were drawn;
//! - counter `docnumbers_refills_total`: reservations of a range, by `outcome` (`reserved` or
//!   `failed`);
//! - histogram `docnumbers_refill_wait_seconds`: the time for which a draw waited for a range. A
//!   draw that did not wait is not counted;
//! - gauge `docnumbers_remaining`: the counters that the node holds and has not issued, when it
//!   last reserved a range, and 0 after the series was closed;
//! - counter `docnumbers_gaps_total`: counters that the node held and did not issue, by `cause`:
//!   `reserved_after` (other nodes had reserved counters after them) or `not_given_back` (the
//!   storage failed, the time was over, or too many counters waited to be given back).

use std::fmt;

use metrics::{Counter, Gauge, Histogram};

use crate::SeriesId;

pub(crate) struct SeriesMeters {
    pub(crate) issued: Counter,
    pub(crate) reserved: Counter,
    pub(crate) failed: Counter,
    pub(crate) refill_wait: Histogram,
    pub(crate) remaining: Gauge,
    pub(crate) reserved_after: Counter,
    pub(crate) not_given_back: Counter,
}

impl fmt::Debug for SeriesMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeriesMeters").finish_non_exhaustive()
    }
}

impl SeriesMeters {
    pub(crate) fn new(series: &SeriesId) -> SeriesMeters {
        let label = || series.to_string();
        SeriesMeters {
            issued: metrics::counter!("docnumbers_issued_total", "series" => label()),
            reserved: metrics::counter!("docnumbers_refills_total", "series" => label(), "outcome" => "reserved"),
            failed: metrics::counter!("docnumbers_refills_total", "series" => label(), "outcome" => "failed"),
            refill_wait: metrics::histogram!("docnumbers_refill_wait_seconds", "series" => label()),
            remaining: metrics::gauge!("docnumbers_remaining", "series" => label()),
            reserved_after: metrics::counter!("docnumbers_gaps_total", "series" => label(), "cause" => "reserved_after"),
            not_given_back: metrics::counter!("docnumbers_gaps_total", "series" => label(), "cause" => "not_given_back"),
        }
    }
}
