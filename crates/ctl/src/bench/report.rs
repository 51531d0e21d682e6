//! The report of a bench, for people and as JSON.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use super::{
    args::BenchArgs,
    check::LogCheck,
    outcome::{BenchOutcome, EndCounts, NodeShare},
};

/// The measurements of a bench.
pub(super) struct BenchReport<'b> {
    pub(super) args: &'b BenchArgs,
    pub(super) outcome: &'b BenchOutcome,
    pub(super) took: Duration,
    /// The longest time in which no request was done, in microseconds.
    pub(super) longest_pause: u64,
    /// The check of the logs, if it was asked for and could be made.
    pub(super) check: Option<LogCheck>,
}

impl BenchReport<'_> {
    /// The text that the command prints.
    pub(super) fn text(&self) -> String {
        if self.args.json { format!("{:#}\n", self.json()) } else { self.lines() }
    }

    fn json(&self) -> serde_json::Value {
        let BenchReport { args, outcome, took, longest_pause, check } = self;
        let BenchOutcome { times, ends, failed, tries_again, nodes, .. } = outcome;
        let at = |quantile: f64| times.value_at_quantile(quantile);
        let nodes: BTreeMap<_, _> =
            nodes.iter().map(|(node, share)| (node.to_string(), share)).collect();
        json!({
            "send": args.send.name(),
            "clients": args.clients,
            "workspaces": args.workspaces,
            "records": args.records,
            "count": args.count,
            "seconds": took.as_secs_f64(),
            "done": times.len(),
            "perSecond": self.per_second(),
            "micros": {
                "mean": times.mean(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": times.max(),
            },
            "longestPauseMicros": longest_pause,
            "ends": ends,
            "triesAgain": tries_again,
            "nodes": nodes,
            "failed": failed,
            "check": check,
        })
    }

    fn lines(&self) -> String {
        let BenchReport { args, outcome, took, longest_pause, check } = self;
        let (times, requests) = (&outcome.times, args.send.name());
        let at = |quantile: f64| times.value_at_quantile(quantile);
        let mut text = format!(
            "{} {requests} in {:.1} s: {:.0}/s\np50 {} µs, p90 {} µs, p99 {} µs, p99.9 {} µs, longest {} µs\n",
            times.len(),
            took.as_secs_f64(),
            self.per_second(),
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            times.max()
        );
        let EndCounts { done_at_first_try, done_after_tries, refused, unknown, wrong } =
            outcome.ends;
        text += &format!(
            "{done_at_first_try} done at the first try, {done_after_tries} after tries at other nodes; {refused} refused, {unknown} of unknown outcome, {wrong} with another error\n\
             the longest time in which no request was done was {longest_pause} µs\n"
        );
        if args.nodes.len() > 1 {
            for (why, count) in &outcome.tries_again {
                text += &format!("{count} times sent again to the next node: {why}\n");
            }
            for (node, NodeShare { requests, answers, forwarded }) in &outcome.nodes {
                text += &format!(
                    "{node} got {requests} requests and answered {answers}, of which it forwarded {forwarded}\n"
                );
            }
        }
        text += &check.map(|check| check.text()).unwrap_or_default();
        for (why, count) in &outcome.failed {
            text += &format!("{count} times: {why}\n");
        }
        text
    }

    fn per_second(&self) -> f64 {
        self.outcome.times.len() as f64 / self.took.as_secs_f64()
    }
}
