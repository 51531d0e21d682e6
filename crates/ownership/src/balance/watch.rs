//! What a node remembers of the members of its cluster from one read to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use clock::Instant;
use ielections::Incarnation;

use super::ClusterSight;
use crate::{Member, MemberId};

/// How long starts and changes of the incarnation count.
const MEMORY: Duration = Duration::from_secs(600);

/// A node with this many starts or changes is not steady.
const RESTARTS: u32 = 3;

#[derive(Debug)]
pub(super) struct Watch {
    /// A heartbeat is too old after this time.
    fresh: Duration,
    read_at: Option<Instant>,
    heartbeats: BTreeMap<MemberId, Heartbeat>,
    /// The incarnations of each address. A process that starts again has another id, but the same
    /// address.
    incarnations: BTreeMap<SocketAddr, Vec<Seen>>,
    steady: BTreeSet<(MemberId, Incarnation)>,
    steady_since: Option<Instant>,
}

#[derive(Debug)]
struct Heartbeat {
    order: u64,
    rose_at: Instant,
}

#[derive(Debug)]
struct Seen {
    incarnation: Incarnation,
    at: Instant,
    /// Another incarnation of the same address was seen before.
    is_change: bool,
}

impl Watch {
    pub(super) fn new(fresh: Duration) -> Watch {
        Watch {
            fresh,
            read_at: None,
            heartbeats: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            steady: BTreeSet::new(),
            steady_since: None,
        }
    }

    /// Notes what a read shows. A read that was noted already changes nothing.
    ///
    /// A heartbeat that is seen for the first time counts as one that rose. Otherwise a node that
    /// starts would see no other node for seconds, and take all free partitions.
    pub(super) fn observe(&mut self, sight: &ClusterSight<'_>) {
        let read_at = sight.read_at;
        let before = self.read_at.replace(read_at);
        if before == Some(read_at) {
            return;
        }
        if before.is_some_and(|before| read_at.saturating_since(before) > self.fresh) {
            // What happened in between is unknown.
            self.steady_since = None;
        }
        for row in sight.members {
            let new = Heartbeat { order: row.heartbeat, rose_at: read_at };
            let known = self.heartbeats.entry(row.member.id).or_insert(new);
            if row.heartbeat > known.order {
                *known = Heartbeat { order: row.heartbeat, rose_at: read_at };
            }
        }
        let is_there = |id: &MemberId| sight.members.iter().any(|row| row.member.id == *id);
        self.heartbeats
            .retain(|id, known| read_at.saturating_since(known.rose_at) < MEMORY || is_there(id));
        self.observe_incarnations(sight);
    }

    fn observe_incarnations(&mut self, sight: &ClusterSight<'_>) {
        let at = sight.read_at;
        let known: BTreeSet<_> = self.incarnations.keys().copied().collect();
        let there = |member: &Member| Some((member.advertised, member.incarnation?));
        let there: BTreeSet<_> =
            sight.members.iter().filter_map(|row| there(&row.member)).collect();
        for &(address, incarnation) in &there {
            let seen = self.incarnations.entry(address).or_default();
            if !seen.iter().any(|seen| seen.incarnation == incarnation) {
                seen.push(Seen { incarnation, at, is_change: known.contains(&address) });
            }
        }
        self.incarnations.retain(|address, seen| {
            seen.retain(|seen| {
                at.saturating_since(seen.at) < MEMORY
                    || there.contains(&(*address, seen.incarnation))
            });
            !seen.is_empty()
        });
    }

    /// Whether the heartbeat of a member rose within the last 3 seconds before the last read.
    pub(super) fn is_fresh(&self, id: MemberId) -> bool {
        let Some((known, read_at)) = self.heartbeats.get(&id).zip(self.read_at) else {
            return false;
        };
        read_at.saturating_since(known.rose_at) <= self.fresh
    }

    pub(super) fn is_flapping(&self, member: &Member) -> bool {
        let Some(read_at) = self.read_at else { return false };
        let seen = self.incarnations.get(&member.advertised).into_iter().flatten();
        let changes =
            seen.filter(|seen| seen.is_change && read_at.saturating_since(seen.at) < MEMORY);
        member.recent_starts >= RESTARTS || changes.count() >= RESTARTS as usize
    }

    /// Notes the steady candidates.
    pub(super) fn note_steady(&mut self, now: Instant, steady: BTreeSet<(MemberId, Incarnation)>) {
        if steady != self.steady || self.steady_since.is_none() {
            self.steady = steady;
            self.steady_since = Some(now);
        }
    }

    /// How long the steady candidates have been the same.
    pub(super) fn steady_for(&self, now: Instant) -> Duration {
        self.steady_since.map_or(Duration::ZERO, |since| now.saturating_since(since))
    }
}
