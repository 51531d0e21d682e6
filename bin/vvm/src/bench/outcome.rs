//! The outcome of a bench, and its text.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::json;

use crate::{cli::BenchArgs, command_error::CommandError, print};

/// The largest time that is recorded, in microseconds: one hour. Longer times count as this one.
const LONGEST: u64 = 3_600_000_000;

/// The outcome of the requests of one client, or of all clients.
pub(super) struct BenchOutcome {
    /// The times of the requests that were done, in microseconds.
    pub(super) times: Histogram<u64>,
    /// The numbers of requests that were not done, by the answer.
    pub(super) failed: BTreeMap<String, u64>,
    /// The number of requests that were due before the end and were not sent, because their clients
    /// still waited for answers.
    pub(super) unsent: u64,
}

impl BenchOutcome {
    pub(super) fn new() -> Result<BenchOutcome, CommandError> {
        let times = Histogram::new_with_bounds(1, LONGEST, 3);
        let times = times.map_err(|error| CommandError::unfinished(error.to_string()))?;
        Ok(BenchOutcome { times, failed: BTreeMap::new(), unsent: 0 })
    }

    pub(super) fn add(&mut self, other: BenchOutcome) -> Result<(), CommandError> {
        self.times.add(other.times).map_err(|error| CommandError::unfinished(error.to_string()))?;
        for (why, count) in other.failed {
            *self.failed.entry(why).or_default() += count;
        }
        self.unsent += other.unsent;
        Ok(())
    }

    /// Returns whether requests were done, and no request failed.
    pub(super) fn is_clean(&self) -> bool {
        self.failed.is_empty() && !self.times.is_empty()
    }

    /// Prints the outcome of a bench that took `took` seconds.
    pub(super) fn print(&self, args: &BenchArgs, took: f64) -> Result<(), CommandError> {
        let BenchOutcome { times, failed, unsent } = self;
        let requests = args.send.name();
        let per_second = times.len() as f64 / took;
        let at = |quantile: f64| times.value_at_quantile(quantile);
        if args.json {
            let result = json!({
                "send": args.send.name(),
                "clients": args.clients,
                "rate": args.rate,
                "workspaces": args.workspaces,
                "zipf": args.zipf,
                "records": args.records,
                "count": args.count,
                "seconds": took,
                "done": times.len(),
                "perSecond": per_second,
                "micros": {
                    "mean": times.mean(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": times.max(),
                },
                "failed": failed,
                "unsent": unsent,
            });
            return print(&format!("{result:#}\n"));
        }
        let mut text = format!(
            "{} {requests} in {took:.1} s: {per_second:.0}/s\np50 {} µs, p90 {} µs, p99 {} µs, p99.9 {} µs, longest {} µs\n",
            times.len(),
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            times.max()
        );
        for (why, count) in failed {
            text += &format!("{count} times: {why}\n");
        }
        if *unsent > 0 {
            text += &format!(
                "{unsent} {requests} were due and not sent: {} clients do not reach this rate\n",
                args.clients
            );
        }
        print(&text)
    }
}
