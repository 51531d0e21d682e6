//! Decides whether a lease has expired. A lease is a conditional row with a TTL.
//!
//! **The rule: no date decides.** Each write of a lease stores how long the lease lasts, and a
//! random *version*. A node that reads the row notes the version, and when it first saw the
//! version, on its own monotonic clock. The lease has expired for this node when the node has seen
//! the same version for as long as the lease lasts. The node replaces an expired lease on the
//! condition that the row still has this version.
//!
//! The table lists all cases. The node's wall clock and the dates of the service play no part in
//! any case.
//!
//! | the version | seen for as long as the lease lasts | the lease |
//! |---|---|---|
//! | is the one that was seen | no | lives |
//! | is the one that was seen | yes | has expired |
//! | is new, or the node has just started | - | lives, and is watched from now on |
//! | there is no row | - | is absent; a node may insert one at once |
//!
//! Dates do not decide, not even together with the rule:
//!
//! - *Expired by the date OR by the rule* lets two nodes lead. Leader A renews its lease; the
//!   service's clock steps an hour ahead; node B starts, hears only the new date, and takes the
//!   lease at once. The same happens if the servers that B reaches have a wrong clock.
//! - *Expired by the date AND by the rule* leaves a seat without a leader. The service's clock
//!   steps an hour back, and the leader dies: its lease lives for another hour.
//!
//! The rule is safe. Leader A counts its lease from before it sent the last good renewal. Node B
//! first sees that renewal after it was stored, and starts to count when the answer has come. So B
//! counts from a later time than A. B counts up to when it *sent* the read that shows the version
//! again: an answer may be old when B looks at it, and A may have renewed the lease meanwhile. The
//! rule needs clocks that run equally fast, as elections do anyway. Nothing else about clocks
//! matters:
//!
//! - B stands still, and its clock stops: B waits for longer.
//! - B stands still, and its clock goes on: the time since B sent its read does not count. A read
//!   that B sent after A stopped shows the truth. If A has renewed the lease since that read, the
//!   condition refuses B's write.
//! - A stands still, and its clock goes on: A finds out that its leadership is over before it sends
//!   a write.
//! - B's clock jumps ahead of the time that has passed: B may take the lease of A while A leads.
//!   Monotonic clocks do not jump, and epochs and conditions stop A's writes.
//! - A stands still, and its clock stops: A may believe that it leads while B leads. The same
//!   happens on every storage, and epochs and conditions stop A's writes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use base::locks::lock;
use bytes::Bytes;
use clock::Instant;

/// The most leases that a node watches: more than the greatest possible number of seats, 65,535.
/// Each watched lease takes about 150 bytes.
///
/// Beyond the bound, the node forgets all leases and watches them from the beginning. If a node
/// looked at more leases again and again, it would see none expire, so the number of leases must
/// stay below the bound.
const WATCHED_MAX: usize = 100_000;

/// The part of a lease that each write of the lease stores anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredLease {
    /// A number of this write alone. Never [`NO_VERSION`].
    pub(crate) version: u64,
    pub(crate) lasts: Duration,
}

impl StoredLease {
    /// A lease that lasts for `ttl`, rounded up to the stored unit, a millisecond.
    pub(crate) fn new(version: u64, ttl: Duration) -> StoredLease {
        let millis = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        StoredLease { version, lasts: Duration::from_millis(millis) }
    }
}

/// A version that no lease has.
pub(crate) const NO_VERSION: u64 = 0;

/// The identity of a row: the table, the partition key and the clustering columns.
pub(crate) type RowId = (Arc<str>, Bytes, Bytes);

#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedLease {
    lease: StoredLease,
    /// When the node first saw this version.
    since: Instant,
}

impl WatchedLease {
    /// The time that is left; `None` if the lease has expired.
    pub(crate) fn left(self, now: Instant) -> Option<Duration> {
        let left = (self.since + self.lease.lasts).saturating_since(now);
        (!left.is_zero()).then_some(left)
    }
}

/// The leases that this node has seen.
#[derive(Debug, Default)]
pub(crate) struct LeaseWatch(Mutex<HashMap<RowId, WatchedLease>>);

impl LeaseWatch {
    /// Notes a lease that an answer shows. The answer has come by `now`.
    pub(crate) fn record(&self, row: RowId, lease: StoredLease, now: Instant) -> WatchedLease {
        let mut leases = lock(&self.0);
        let seen = WatchedLease { lease, since: now };
        if let Some(watched) = leases.get_mut(&row) {
            if watched.lease != lease {
                *watched = seen;
            }
            return *watched;
        }
        if leases.len() >= WATCHED_MAX {
            leases.clear();
        }
        leases.insert(row, seen);
        seen
    }

    /// The version of a lease, if the lease has expired for this node; otherwise [`NO_VERSION`].
    pub(crate) fn expired(&self, row: &RowId, now: Instant) -> u64 {
        let watched = lock(&self.0).get(row).copied();
        let expired = watched.filter(|watched| watched.left(now).is_none());
        expired.map_or(NO_VERSION, |watched| watched.lease.version)
    }

    pub(crate) fn forget(&self, row: &RowId) {
        lock(&self.0).remove(row);
    }
}

/// The facts that decide one attempt of a conditional write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptTerms {
    /// A time before the attempt was sent.
    pub(crate) at: Instant,
    /// The version of an expired lease, if the row had one when the node last saw it. A row that
    /// still has this version counts as absent.
    pub(crate) expired: u64,
    /// The lease to store, if the written row expires.
    pub(crate) lease: Option<StoredLease>,
}

#[cfg(test)]
mod tests;
