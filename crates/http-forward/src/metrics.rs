//! The metrics of forwarding.

use metrics::{Counter, Gauge};

/// The metrics of forwarding. They exist from the beginning.
#[derive(Clone, Debug)]
pub struct ForwardMetrics {
    /// Requests that a peer answered.
    pub(crate) answered: Counter,
    /// Requests that the peer did not do, and that may be tried again.
    pub(crate) refused: Counter,
    /// Requests that no peer got.
    pub(crate) not_sent: Counter,
    /// Requests whose connection broke before the whole answer.
    pub(crate) broken: Counter,
    /// Requests that were given up because the partition has another owner.
    pub(crate) abandoned: Counter,
    /// Requests that were not answered by their deadline.
    pub(crate) late: Counter,
    /// Requests that were tried again.
    pub(crate) retries: Counter,
    /// Requests that wait to be tried again.
    parked: Gauge,
}

/// Counts a request that waits to be tried again, until it is dropped.
#[derive(Debug)]
pub(crate) struct Parked<'m>(&'m Gauge);

impl ForwardMetrics {
    pub(crate) fn park(&self) -> Parked<'_> {
        self.parked.increment(1);
        Parked(&self.parked)
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

impl Default for ForwardMetrics {
    fn default() -> ForwardMetrics {
        let forwarded = |outcome| {
            let counter = metrics::counter!("httpapi_forwarded_total", "outcome" => outcome);
            counter.increment(0);
            counter
        };
        let metrics = ForwardMetrics {
            answered: forwarded("answered"),
            refused: forwarded("refused"),
            not_sent: forwarded("not_sent"),
            broken: forwarded("broken"),
            abandoned: forwarded("abandoned"),
            late: forwarded("late"),
            retries: metrics::counter!("httpapi_retries_total"),
            parked: metrics::gauge!("httpapi_parked_requests"),
        };
        metrics.retries.increment(0);
        metrics.parked.increment(0);
        metrics
    }
}
