//! The limits of the way between nodes, in the order that a request takes them.
//!
//! First a request takes its place among the logs of the peer, or the memory for the numbers that
//! it draws. Then it takes the limits of the way, all together: the requests and bytes of its
//! partition, those of the peer, a try of its partition, and a connection to the peer.
//!
//! A request that finds no owner waits with a try of its partition, without a connection. It keeps
//! its permits of the partition over all its tries.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use base::locks::lock;
use clock::Clock;
use http_server::limits::{Limit, LimitRules, Permit, ShareRules};

use crate::settings::ClusterSettings;

/// How many requests of a partition may be on their way to its owner, or be tried again, at the
/// same time: half of the connections. A slow partition must leave connections to the other
/// partitions of its owner. And if a thousand waiting requests asked the owner again and again, it
/// would recover the partition late.
const TRIES: usize = 32;

/// The connections for requests. One more is for questions.
const CONNECTIONS: usize = ClusterSettings::REQUESTS_PER_PEER - 1;

/// The most logs that one peer sends to this node at the same time. Each needs a connection.
const LOGS_PER_PEER: usize = 8;

/// The most requests and bytes that may wait for one partition, or be at another node for it. A
/// peer may have twice as much, so that one slow partition leaves room for the others.
#[derive(Clone, Copy, Debug)]
pub struct MostWaiting {
    /// The number of requests.
    pub requests: usize,
    /// The number of bytes of the bodies of these requests.
    pub bytes: usize,
}

/// The limits of the requests for one partition.
#[derive(Debug)]
pub(crate) struct PartitionLimits {
    /// The requests that wait for the partition, or that another node does.
    pub(crate) requests: Arc<Limit>,
    /// The bytes of their bodies. A single body has room, however large it is.
    pub(crate) bytes: Arc<Limit>,
    /// The requests that are tried now. The reads of one principal get at most half of them: a read
    /// whose answer waits for memory holds a connection, and its own principal may have used up the
    /// memory.
    pub(crate) tries: Arc<Limit>,
}

/// The limits of the requests that one peer does.
#[derive(Debug)]
pub(crate) struct PeerLimits {
    pub(crate) followers: Arc<Limit>,
    pub(crate) logs: Arc<Limit>,
    pub(crate) requests: Arc<Limit>,
    pub(crate) bytes: Arc<Limit>,
    /// A request holds one of them while it uses a connection. Followers of logs stay long, and
    /// have connections of their own.
    pub(crate) connections: Arc<Limit>,
    /// Questions of this node itself, which never wait for requests.
    pub(crate) questions: Arc<Limit>,
}

/// The reason of a refused read. Only reads have principals here.
fn reads_of(of: &str, most: usize, of_one: &str) -> String {
    format!(
        "this node does at most {most} reads{of_one} {of} at the same time: send the request again \
         later"
    )
}

/// The limits of all partitions, by the number of the application and of the partition.
#[derive(Debug)]
pub(crate) struct AllPartitions {
    most: MostWaiting,
    clock: Clock,
    partitions: Mutex<HashMap<(usize, u16), Arc<PartitionLimits>>>,
}

/// What a request holds of the limits of its partition, over all its tries.
#[derive(Debug, Default)]
pub(crate) struct HeldOfPartition {
    pub(crate) requests: Option<Permit>,
    pub(crate) bytes: Option<Permit>,
    pub(crate) tries: Option<Permit>,
}

/// What one try of a request holds of the limits of the peer.
#[derive(Debug, Default)]
pub(crate) struct HeldOfPeer {
    pub(crate) requests: Option<Permit>,
    pub(crate) bytes: Option<Permit>,
    /// The right to a connection.
    pub(crate) connection: Option<Permit>,
}

impl AllPartitions {
    pub(crate) fn new(most: MostWaiting, clock: Clock) -> AllPartitions {
        AllPartitions { most, clock, partitions: Mutex::default() }
    }

    pub(crate) fn of(&self, app: usize, partition: u16) -> Arc<PartitionLimits> {
        let mut all = lock(&self.partitions);
        let new = || Arc::new(PartitionLimits::new(self.most, &self.clock));
        Arc::clone(all.entry((app, partition)).or_insert_with(new))
    }
}

impl PartitionLimits {
    fn new(most: MostWaiting, clock: &Clock) -> PartitionLimits {
        let at_once = |most| {
            let reason = |_: &str, _, _: &str| {
                "too many requests wait for this partition already".to_owned()
            };
            Limit::new(LimitRules::at_once(most, "partition_busy", reason), clock)
        };
        let tries = LimitRules {
            most: TRIES,
            share: Some(ShareRules { least: 1, waiting: most.requests }),
            code: "partition_busy",
            of: "of this partition",
            reason: reads_of,
            ..LimitRules::default()
        };
        PartitionLimits {
            requests: at_once(most.requests),
            bytes: at_once(most.bytes),
            tries: Limit::new(tries, clock),
        }
    }
}

impl PeerLimits {
    pub(crate) fn new(most: MostWaiting, clock: &Clock) -> PeerLimits {
        let limit = |rules| Limit::new(rules, clock);
        let at_once = |most| {
            let reason =
                |_: &str, _, _: &str| "too many requests wait for the owner already".to_owned();
            limit(LimitRules::at_once(most, "peer_busy", reason))
        };
        let followers = |_: &str, most, of_one: &str| {
            format!(
                "at most {most} clients{of_one} follow logs of the owner through this node: follow \
                 the log at the owner itself"
            )
        };
        PeerLimits {
            followers: limit(LimitRules::followers(ClusterSettings::FOLLOWERS_PER_PEER, followers)),
            logs: limit(LimitRules::logs("through this node, the owner sends", LOGS_PER_PEER)),
            requests: at_once(2 * most.requests),
            bytes: at_once(2 * most.bytes),
            connections: limit(LimitRules {
                most: CONNECTIONS,
                share: Some(ShareRules { least: 1, waiting: 2 * most.requests }),
                code: "peer_busy",
                of: "at the owner of this partition",
                reason: reads_of,
                ..LimitRules::default()
            }),
            questions: limit(LimitRules::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_bytes_are_bounded_and_given_back() {
        let most = MostWaiting { requests: 2, bytes: 10 };
        let limits = PartitionLimits::new(most, &Clock::system());
        let take = |bytes| {
            let request = limits.requests.try_take(None, 1).ok()?;
            Some((request, limits.bytes.try_take(None, bytes).ok()?))
        };
        let large = take(100).unwrap();
        assert!(take(1).is_none(), "the bytes are used up");
        drop(large);
        let first = take(9).unwrap();
        assert!(take(2).is_none(), "the bytes are used up");
        let second = take(1).unwrap();
        assert!(take(0).is_none(), "the requests are used up");
        drop((first, second));
        assert!(take(10).is_some());
    }
}
