//! Whether a lease has expired. A lease is a conditional row with a TTL.
//!
//! No date decides. Each write of a lease stores how long the lease lasts, and a random *version*.
//! A node that reads the row notes the version, and when the node first saw it, on its own monotonic
//! clock. The lease has expired for this node when the node has seen the same version for as long as
//! the lease lasts. The node replaces an expired lease on the condition that the row still has this
//! version.
//!
//! | the version | seen for as long as the lease lasts | the node's calendar, the dates of the service | the lease |
//! |---|---|---|---|
//! | is the one that was seen | no | any | lives |
//! | is the one that was seen | yes | any | has expired |
//! | is another one, or the node has just started | - | any | lives, and is watched from now on |
//! | there is no row | - | any | is absent; a node may insert one at once |
//!
//! Why dates do not decide, not even beside the rule:
//!
//! - *Expired by the date OR by the rule* lets two nodes lead. Leader A renews its lease; the
//!   service's clock steps an hour ahead; node B starts, hears the new date only, and takes the lease
//!   at once. The same happens if the servers that B reaches have a wrong clock.
//! - *Expired by the date AND by the rule* leaves a slot without a leader. The service's clock steps
//!   an hour back, and the leader dies: its lease lives for another hour.
//!
//! Why the rule is safe: leader A counts its lease from before it sent the last good renewal. Node B
//! first sees that renewal after it was stored, and starts to count when the answer has come. So B
//! counts later than A. B needs all clocks to run equally fast, as elections do anyway. Nothing else
//! about clocks matters:
//!
//! | clock | what happens |
//! |---|---|
//! | B stands still, and its clock stops | B waits for longer |
//! | B stands still, and its clock goes on | B believes that it has seen the version all the while. If A has renewed the lease, the condition refuses B's write |
//! | A stands still, and its clock goes on | A finds out that its lead is over before it sends a write |
//! | B's clock jumps ahead of the time that has passed | B may take the lease of A while A leads. Monotonic clocks do not jump; epochs and conditions stop A's writes |
//! | A stands still, and its clock stops | A may believe that it leads beside B. So it is on every storage; epochs and conditions stop A's writes |

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use istorage::{Conditional, Error, Result};

use crate::{
    layout::{Item, Stored},
    table::Table,
    time::ServiceTime,
};

/// How many leases are watched: more than there can be slots, 65,535. Each has about 150 bytes.
///
/// If there are more, all are watched anew. A node that looked at all of them again and again would
/// see none expire, so the number of leases must stay below the bound.
const WATCHED_MAX: usize = 100_000;

/// What a write of a lease stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Of this write alone. Never [`NO_VERSION`].
    pub(crate) version: u64,
    pub(crate) lasts: Duration,
}

impl Lease {
    /// Rounded up to a millisecond, as it is stored.
    fn new(version: u64, ttl: Duration) -> Lease {
        let millis = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Lease { version, lasts: Duration::from_millis(millis) }
    }
}

/// What no lease has.
pub(crate) const NO_VERSION: u64 = 0;

/// A row of a table.
type RowId = (Arc<str>, Bytes, Bytes);

#[derive(Clone, Copy, Debug)]
struct Watched {
    lease: Lease,
    /// When the node first saw this version.
    since: Instant,
}

impl Watched {
    /// What is left; nothing if the lease has expired.
    fn left(self, now: Instant) -> Option<Duration> {
        let left = (self.since + self.lease.lasts).saturating_since(now);
        (!left.is_zero()).then_some(left)
    }
}

/// The leases that this node has seen.
#[derive(Debug, Default)]
pub(crate) struct Watch(Mutex<HashMap<RowId, Watched>>);

impl Watch {
    fn leases(&self) -> MutexGuard<'_, HashMap<RowId, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what an answer shows that has come by now.
    fn see(&self, row: RowId, lease: Lease, now: Instant) -> Watched {
        let mut leases = self.leases();
        let seen = Watched { lease, since: now };
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

    /// The version of a lease that has expired; [`NO_VERSION`] if none has.
    fn expired(&self, row: &RowId, now: Instant) -> u64 {
        let watched = self.leases().get(row).copied();
        let expired = watched.filter(|watched| watched.left(now).is_none());
        expired.map_or(NO_VERSION, |watched| watched.lease.version)
    }

    fn forget(&self, row: &RowId) {
        self.leases().remove(row);
    }
}

/// What is left of a row's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Gone,
    Left(Duration),
    /// The row does not expire.
    Forever,
}

/// The moment at which an answer came: all its rows are judged by it.
#[derive(Debug)]
pub(crate) struct Look {
    table: Table,
    now: Instant,
    time: ServiceTime,
}

impl Look {
    pub(crate) fn life(&self, pkey: &Bytes, ccols: &Bytes, stored: &Stored) -> Life {
        let left = match stored.lease {
            Some(lease) => {
                let row = self.table.row(pkey, ccols);
                self.table.connection.watch().see(row, lease, self.now).left(self.now)
            }
            None if stored.expires.is_none() => return Life::Forever,
            None => stored.left(self.time),
        };
        left.map_or(Life::Gone, Life::Left)
    }

    /// The value of a row, if it lives.
    pub(crate) fn live_value(
        &self,
        pkey: &Bytes,
        ccols: &Bytes,
        item: Option<Item>,
    ) -> Result<Option<Bytes>> {
        let Some(mut item) = item else { return Ok(None) };
        let stored = Stored::read(&mut item)?;
        Ok((self.life(pkey, ccols, &stored) != Life::Gone).then_some(stored.value))
    }
}

/// What one attempt of a conditional write goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Before the attempt was sent.
    at: Instant,
    /// The version of an expired lease that the row may have: such a row is absent.
    pub(crate) expired: u64,
    /// What is stored, if the written row expires.
    pub(crate) lease: Option<Lease>,
}

impl Table {
    fn row(&self, pkey: &Bytes, ccols: &Bytes) -> RowId {
        (Arc::clone(&self.name), pkey.clone(), ccols.clone())
    }

    /// To judge the rows of an answer that has come.
    pub(crate) fn look(&self) -> Result<Look> {
        let (now, time) = (self.connection.clock().now(), self.connection.service_time()?);
        Ok(Look { table: self.clone(), now, time })
    }

    /// For one attempt of a conditional write.
    pub(crate) fn terms(&self, pkey: &Bytes, op: &Conditional) -> Terms {
        let clock = self.connection.clock();
        let at = clock.now();
        let expired = self.connection.watch().expired(&self.row(pkey, op.ccols()), at);
        let lease = op.ttl().map(|ttl| Lease::new(clock.random().max(1), ttl));
        Terms { at, expired, lease }
    }

    /// Notes that an attempt was applied.
    pub(crate) fn was_applied(&self, pkey: &Bytes, op: &Conditional, terms: Terms) {
        let (row, watch) = (self.row(pkey, op.ccols()), self.connection.watch());
        match terms.lease {
            Some(lease) => drop(watch.see(row, lease, self.connection.clock().now())),
            None => watch.forget(&row),
        }
    }

    /// The row whose item kept an attempt from being applied; `None` if there is no row.
    ///
    /// # Errors
    /// `Unavailable` if an insert was refused and nothing is there: no condition of an insert says
    /// that.
    pub(crate) fn what_is_there(
        &self,
        pkey: &Bytes,
        op: &Conditional,
        item: Option<Item>,
        terms: Terms,
    ) -> Result<Option<Bytes>> {
        let stored = item.map(|mut item| Stored::read(&mut item)).transpose()?;
        let row = self.row(pkey, op.ccols());
        let lives = |stored: &Stored| {
            let Some(lease) = stored.lease else { return true };
            let now = self.connection.clock().now();
            self.connection.watch().see(row, lease, now).left(terms.at).is_some()
        };
        let there = stored.filter(lives).map(|stored| stored.value);
        match (op.expected(), &there) {
            (None, None) => Err(refused_by_nothing()),
            _ => Ok(there),
        }
    }
}

/// The service refused a write because of an item, and did not show the item.
pub(crate) fn refused_by_nothing() -> Error {
    Error::unavailable("DynamoDB refused a write because of a row that it did not show")
}

#[cfg(test)]
mod tests;
