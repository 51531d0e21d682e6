//! The outcome of the requests of a bench.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tries::{EndKind, RequestEnd};
use crate::{CommandError, client::NodeAddress};

/// The largest time that is recorded, in microseconds: one hour. Longer times count as this one.
const LONGEST: u64 = 3_600_000_000;

/// A command, for the check of the logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentCommand {
    pub(super) ws: u64,
    pub(super) client: u32,
    pub(super) number: u64,
    pub(super) end: EndKind,
}

/// The numbers of requests, by their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndCounts {
    pub(super) done_at_first_try: u64,
    /// Requests that were done after they were sent to several nodes.
    pub(super) done_after_tries: u64,
    /// Requests that were not done.
    pub(super) refused: u64,
    /// Requests that may have been done.
    pub(super) unknown: u64,
    /// Requests with another answer: no success, no 503 and no 504.
    pub(super) wrong: u64,
}

/// The requests that a node got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct NodeShare {
    /// The requests that clients sent to this node, or wanted to. Each try counts.
    pub(super) requests: u64,
    pub(super) answers: u64,
    /// The answers that came from another node.
    pub(super) forwarded: u64,
}

/// The outcome of the requests of one client, or of all clients.
pub(super) struct BenchOutcome {
    /// The times of the requests that were done, in microseconds. A time includes all tries.
    pub(super) times: Histogram<u64>,
    pub(super) ends: EndCounts,
    /// The numbers of requests that were not done, by the answer.
    pub(super) failed: BTreeMap<String, u64>,
    /// The numbers of tries at the next node, by the reason for the try.
    pub(super) tries_again: BTreeMap<String, u64>,
    pub(super) nodes: BTreeMap<NodeAddress, NodeShare>,
    /// All commands, if the logs are checked.
    pub(super) sent: Vec<SentCommand>,
}

impl BenchOutcome {
    pub(super) fn new() -> Result<BenchOutcome, CommandError> {
        let times = Histogram::new_with_bounds(1, LONGEST, 3);
        let times = times.map_err(|error| CommandError::unfinished(error.to_string()))?;
        let (ends, failed, tries_again, nodes, sent) = Default::default();
        Ok(BenchOutcome { times, ends, failed, tries_again, nodes, sent })
    }

    pub(super) fn add(&mut self, other: BenchOutcome) -> Result<(), CommandError> {
        self.times.add(other.times).map_err(|error| CommandError::unfinished(error.to_string()))?;
        let EndCounts { done_at_first_try, done_after_tries, refused, unknown, wrong } = other.ends;
        self.ends.done_at_first_try += done_at_first_try;
        self.ends.done_after_tries += done_after_tries;
        self.ends.refused += refused;
        self.ends.unknown += unknown;
        self.ends.wrong += wrong;
        let counts = [(&mut self.failed, other.failed), (&mut self.tries_again, other.tries_again)];
        for (all, counts) in counts {
            counts.into_iter().for_each(|(why, count)| *all.entry(why).or_default() += count);
        }
        for (node, NodeShare { requests, answers, forwarded }) in other.nodes {
            let share = self.nodes.entry(node).or_default();
            share.requests += requests;
            share.answers += answers;
            share.forwarded += forwarded;
        }
        self.sent.extend(other.sent);
        Ok(())
    }

    /// Counts a try at a node.
    pub(super) fn note_request(&mut self, node: &NodeAddress) {
        self.nodes.entry(node.clone()).or_default().requests += 1;
    }

    pub(super) fn note_answer(&mut self, node: &NodeAddress, is_of_another_node: bool) {
        let share = self.nodes.entry(node.clone()).or_default();
        share.answers += 1;
        share.forwarded += u64::from(is_of_another_node);
    }

    /// Counts the end of a request, after all its tries.
    pub(super) fn note_end(&mut self, end: &RequestEnd, were_several_tries: bool) {
        let (count, why) = match end {
            RequestEnd::Done if were_several_tries => (&mut self.ends.done_after_tries, None),
            RequestEnd::Done => (&mut self.ends.done_at_first_try, None),
            RequestEnd::Refused(why) => (&mut self.ends.refused, Some(why)),
            RequestEnd::Unknown(why) => (&mut self.ends.unknown, Some(why)),
            RequestEnd::Wrong { why, .. } => (&mut self.ends.wrong, Some(why)),
        };
        *count += 1;
        if let Some(why) = why {
            *self.failed.entry(why.clone()).or_default() += 1;
        }
    }

    /// Returns whether requests were done, and no request failed.
    pub(super) fn is_clean(&self) -> bool {
        self.failed.is_empty() && !self.times.is_empty()
    }
}
