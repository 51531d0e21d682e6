//! The outcome of a bench, and its text.

use std::{collections::BTreeMap, net::SocketAddr};

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::json;

use super::check::LogCheck;
use crate::{cli::BenchArgs, command_error::CommandError, print};

/// The largest time that is recorded, in microseconds: one hour. Longer times count as this one.
const LONGEST: u64 = 3_600_000_000;

/// The end of a request, after all its tries.
pub(super) enum RequestEnd {
    Done,
    /// Nothing was done.
    Refused(String),
    /// The request may have been done.
    Unknown(String),
    /// Nothing was done, and another try would change nothing.
    Failed(String),
}

/// The end of a request, as the logs must show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndKind {
    Done,
    NotDone,
    Unknown,
}

impl RequestEnd {
    pub(super) fn kind(&self) -> EndKind {
        match self {
            RequestEnd::Done => EndKind::Done,
            RequestEnd::Refused(_) | RequestEnd::Failed(_) => EndKind::NotDone,
            RequestEnd::Unknown(_) => EndKind::Unknown,
        }
    }
}

/// A command, for the check of the logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentCommand {
    pub(super) ws: u64,
    pub(super) client: u32,
    pub(super) number: u64,
    pub(super) end: EndKind,
}

/// The answers of a node.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct NodeShare {
    answers: u64,
    /// The answers that came from another node.
    forwarded: u64,
}

/// The outcome of the requests of one client, or of all clients.
pub(super) struct BenchOutcome {
    /// The times of the requests that were done, in microseconds.
    pub(super) times: Histogram<u64>,
    /// The numbers of requests that were not done, by the answer.
    pub(super) failed: BTreeMap<String, u64>,
    /// The number of times that a request was sent again, to the next node.
    pub(super) tries_again: u64,
    /// The answers of each node.
    pub(super) nodes: BTreeMap<SocketAddr, NodeShare>,
    /// All commands, if the logs are checked.
    pub(super) sent: Vec<SentCommand>,
    /// The number of requests that were due before the end and were not sent, because their clients
    /// still waited for answers.
    pub(super) unsent: u64,
}

/// What is known of all clients of a bench together.
pub(super) struct BenchTotals {
    /// The time of the bench, in seconds.
    pub(super) seconds: f64,
    /// The longest time in which no request was done, in microseconds.
    pub(super) longest_pause: u64,
    /// The check of the logs, if it was asked for.
    pub(super) check: Option<LogCheck>,
}

impl BenchOutcome {
    pub(super) fn new() -> Result<BenchOutcome, CommandError> {
        let times = Histogram::new_with_bounds(1, LONGEST, 3);
        let times = times.map_err(|error| CommandError::unfinished(error.to_string()))?;
        let (failed, tries_again, nodes, sent, unsent) = Default::default();
        Ok(BenchOutcome { times, failed, tries_again, nodes, sent, unsent })
    }

    pub(super) fn add(&mut self, other: BenchOutcome) -> Result<(), CommandError> {
        self.times.add(other.times).map_err(|error| CommandError::unfinished(error.to_string()))?;
        for (why, count) in other.failed {
            *self.failed.entry(why).or_default() += count;
        }
        for (node, NodeShare { answers, forwarded }) in other.nodes {
            let share = self.nodes.entry(node).or_default();
            share.answers += answers;
            share.forwarded += forwarded;
        }
        self.tries_again += other.tries_again;
        self.sent.extend(other.sent);
        self.unsent += other.unsent;
        Ok(())
    }

    pub(super) fn note_answer(&mut self, node: SocketAddr, is_of_another_node: bool) {
        let share = self.nodes.entry(node).or_default();
        share.answers += 1;
        share.forwarded += u64::from(is_of_another_node);
    }

    /// Returns whether requests were done, and no request failed.
    pub(super) fn is_clean(&self) -> bool {
        self.failed.is_empty() && !self.times.is_empty()
    }

    /// Prints the outcome of a bench.
    pub(super) fn print(
        &self,
        args: &BenchArgs,
        BenchTotals { seconds: took, longest_pause, check }: &BenchTotals,
    ) -> Result<(), CommandError> {
        let BenchOutcome { times, failed, tries_again, nodes, unsent, .. } = self;
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
                "longestPauseMicros": longest_pause,
                "triesAgain": tries_again,
                "nodes": nodes.iter().map(|(node, share)| (node.to_string(), share)).collect::<BTreeMap<_, _>>(),
                "failed": failed,
                "unsent": unsent,
                "check": check,
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
        if nodes.len() > 1 {
            text += &format!(
                "{tries_again} times a request was sent again to the next node; the longest time without an answer was {longest_pause} µs\n"
            );
            for (node, NodeShare { answers, forwarded }) in nodes {
                text += &format!("{node} answered {answers}, and forwarded {forwarded} of them\n");
            }
        }
        if let Some(check) = check {
            text += &check.text();
        }
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
