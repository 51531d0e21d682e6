//! All limits of the requests that a node answers.

use std::sync::Arc;

use clock::Clock;
use http_server::{
    limits::{AnswerMemory, Limit, LimitRules, ShareRules},
    problem::TOO_MANY_FOLLOWERS,
};

use crate::settings::{HttpApiSettings, LARGE_EVENTS_BYTES, NEW_EVENTS_BYTES};

/// How many pages without documents may go on at the same time. Each page holds memory for its
/// answer while it is read. Without this limit, 48 lists that found nothing held all of that memory
/// for seconds, and all other reads waited.
const LONG_PAGES: usize = 8;

/// All limits of a node, in the order that a request takes them.
///
/// A request takes the first three when it arrives, and the memory for its answer before the answer
/// is read. A request that another node answers first takes its memory and its place among the
/// logs, and then the limits of [the way](http_forward::Forwarder). Only its answer waits for
/// memory after these, and only for a moment, because it holds a connection between the nodes.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The memory for bodies, in bytes.
    pub(crate) bodies: Arc<Limit>,
    /// The clients that follow logs through this node, whether or not it owns the partitions. No
    /// request waits for this limit, because followers may stay for days.
    pub(crate) followers: Arc<Limit>,
    /// The logs that are sent once.
    pub(crate) logs: Arc<Limit>,
    /// The memory of events that are too large to be copied, in bytes. An event keeps its memory
    /// until the last client has received it.
    pub(crate) large_events: Arc<Limit>,
    /// The followers that read earlier events. Plain logs never wait for followers.
    pub(crate) earlier_reads: Arc<Limit>,
    /// The memory for answers, in bytes.
    pub(crate) answers: AnswerMemory,
    /// The memory of the reads of new events for followers, in bytes. Answers never wait for these
    /// reads.
    pub(crate) new_events: Arc<Limit>,
    /// The pages of lists that take long to read.
    pub(crate) long_pages: Arc<Limit>,
    /// The reads that compute. Half of the threads are left for commands.
    pub(crate) turns: Arc<Limit>,
}

impl Limits {
    /// The limits of a node whose runtime has this many threads.
    pub(crate) fn new(settings: &HttpApiSettings, threads: usize, clock: &Clock) -> Limits {
        let limit = |rules| Limit::new(rules, clock);
        let plain = |most| limit(LimitRules { most, ..LimitRules::default() });
        let connections = settings.limits.connections;
        // Requests of one principal that wait for memory leave connections to others.
        let waiting = (connections / 4).max(1);
        // A principal can always send one body.
        let of_body = ShareRules { least: settings.limits.body_bytes, waiting };
        let bodies = LimitRules::memory("bodies", settings.bodies_bytes);
        let followers = HttpApiSettings::most_followers(settings.followers, connections);
        Limits {
            bodies: limit(LimitRules { share: Some(of_body), ..bodies }),
            followers: limit(LimitRules {
                shown: Some(metrics::gauge!("httpapi_followers")),
                ..LimitRules::followers(followers, |_, most, of_one| {
                    format!(
                        "at most {most} clients{of_one} follow logs of this node at the same time: \
                         wait until one of them has ended"
                    )
                })
            }),
            logs: limit(LimitRules::logs("this node sends", settings.logs)),
            large_events: limit(LimitRules::memory("large events", LARGE_EVENTS_BYTES)),
            earlier_reads: limit(earlier_reads(settings.logs.div_ceil(4))),
            answers: AnswerMemory::new(settings.answers_bytes, waiting, clock),
            new_events: limit(LimitRules::memory("new events", NEW_EVENTS_BYTES)),
            long_pages: plain(LONG_PAGES),
            turns: plain(threads / 2),
        }
    }
}

/// At most `most` reads of earlier events run at the same time. All followers may wait for their
/// turns, because the number of followers is limited.
pub(crate) fn earlier_reads(most: usize) -> LimitRules {
    LimitRules {
        most,
        share: Some(ShareRules { least: 1, waiting: usize::MAX }),
        code: TOO_MANY_FOLLOWERS,
        reason: |_, most, of_one| {
            format!(
                "at most {most} followers{of_one} read earlier events at the same time: follow the \
                 log again later"
            )
        },
        ..LimitRules::default()
    }
}
