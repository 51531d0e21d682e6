//! The cluster, as the storage reported it last: the owners of partitions and the leases of seats.
//!
//! Invariant: only [`ClusterView::watch`] asks the storage, one round of reads at a time, on the
//! runtime of elections. Requests and `/status` read the last answer. They wait for a fresh answer
//! only for a short time of their own.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use causes::with_causes;
use clock::{Clock, Instant};
use ielections::{Incarnation, Leaders, Observer};
use istorage::Consistency;
use sysvvm::{
    OwnerRows, System,
    ownership::{OwnerRow, OwnerRowsView, PartitionId},
};
use tokio::sync::{Notify, watch};

use crate::App;

/// The interval at which the view is read again.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The time for which an answer of the storage is fresh. A reader that wants a fresh answer causes
/// a read at most this often.
const FRESH: Duration = Duration::from_millis(100);

/// The longest time that a reader waits while nothing is known.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// The last report of the storage about the cluster.
#[derive(Debug)]
pub(crate) struct ClusterView {
    clock: Clock,
    source: OnceLock<ViewSource>,
    is_wanted: Notify,
    last: watch::Sender<ClusterReport>,
}

/// The rows that a view reads.
#[derive(Debug)]
struct ViewSource {
    system: Arc<System>,
    owners: OwnerRows,
    leases: Observer,
    call_timeout: Duration,
}

/// A report of the storage.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterReport {
    /// The last answer.
    pub(crate) answer: Option<Arc<ClusterSeen>>,
    /// The error of the last round of reads, if it failed.
    pub(crate) last_error: Option<String>,
    /// The end of the last round.
    ended: Option<Instant>,
}

/// The rows of the cluster that one round of reads has found. The reads are plain: they may be
/// slightly outdated.
#[derive(Debug)]
pub(crate) struct ClusterSeen {
    /// The time at which the reads were sent.
    pub(crate) sent: Instant,
    pub(crate) owners: OwnerRowsView,
    pub(crate) leaders: Leaders,
    pub(crate) living: BTreeSet<Incarnation>,
}

impl ClusterSeen {
    /// The row of a partition. An owner whose lease is gone counts as absent.
    pub(crate) fn owner(&self, partition: PartitionId) -> OwnerRow {
        let OwnerRow { epoch, owner } = self.owners.get(&partition).copied().unwrap_or_default();
        OwnerRow { epoch, owner: owner.filter(|owner| self.living.contains(&owner.incarnation)) }
    }
}

impl ClusterView {
    pub(crate) fn new(clock: Clock) -> ClusterView {
        ClusterView {
            clock,
            source: OnceLock::new(),
            is_wanted: Notify::new(),
            last: watch::Sender::new(ClusterReport::default()),
        }
    }

    /// Sets the storage when it is open.
    pub(crate) fn set_source(&self, system: &Arc<System>, leases: Observer, timeout: Duration) {
        let (system, owners) = (Arc::clone(system), system.owners());
        let source = ViewSource { system, owners, leases, call_timeout: timeout };
        // The source is set only once.
        if self.source.set(source).is_ok() {
            self.is_wanted.notify_one();
        }
    }

    /// The last report.
    pub(crate) fn last(&self) -> ClusterReport {
        self.last.borrow().clone()
    }

    /// The last report, and each later one.
    pub(crate) fn reports(&self) -> watch::Receiver<ClusterReport> {
        self.last.subscribe()
    }

    /// Causes a read, unless the last answer is fresh.
    pub(crate) fn ask(&self) {
        if !self.is_fresh(&self.last.borrow()) {
            self.is_wanted.notify_one();
        }
    }

    /// The last report, after a fresh read if that read ends within this time. While nothing is
    /// known, this method waits longer.
    pub(crate) async fn get(&self, within: Duration) -> ClusterReport {
        let mut last = self.reports();
        if self.source.get().is_some() && !self.is_fresh(&last.borrow()) {
            self.is_wanted.notify_one();
            let within = if last.borrow().ended.is_none() { FIRST_WITHIN } else { within };
            let fresh = last.wait_for(|seen| self.is_fresh(seen));
            // If the read does not end in time, the last answer is used.
            let _ = self.clock.timeout_at(self.clock.now() + within, fresh).await;
        }
        self.last()
    }

    /// Reads the rows each second, and each time that a reader wants a fresh answer.
    pub(crate) async fn watch(&self, apps: &[App]) -> Infallible {
        loop {
            let tick = self.clock.now() + READ_EVERY;
            // Either event causes a read.
            let _ = self.clock.timeout_at(tick, self.is_wanted.notified()).await;
            let Some(source) = self.source.get() else { continue };
            if self.is_fresh(&self.last.borrow()) {
                continue;
            }
            let seen = source.read(&self.clock).await;
            source.find_numbers(apps).await;
            let now = self.clock.now();
            self.last.send_modify(|report| report.note_answer(now, seen));
        }
    }

    fn is_fresh(&self, seen: &ClusterReport) -> bool {
        seen.ended.is_some_and(|ended| self.clock.now() < ended + FRESH)
    }
}

impl ViewSource {
    /// Reads owners and leases at the same time.
    async fn read(&self, clock: &Clock) -> Result<ClusterSeen, String> {
        let sent = clock.now();
        let deadline = sent + self.call_timeout;
        let owners = clock.timeout_at(deadline, self.owners.read(Consistency::Plain, deadline));
        let (owners, leaders) = tokio::join!(owners, self.leases.leaders());
        let owners = owners.map_err(|late| with_causes(&late))?;
        let owners = owners.map_err(|error| with_causes(&error))?.rows;
        let leaders = leaders.map_err(|error| with_causes(&error))?;
        let living = leaders.values().map(|lease| lease.incarnation).collect();
        Ok(ClusterSeen { sent, owners, leaders, living })
    }

    /// Finds the numbers of applications that this node has not opened. A standby needs them to
    /// find owners.
    async fn find_numbers(&self, apps: &[App]) {
        if apps.iter().all(|app| app.number().is_some()) {
            return;
        }
        // After a failure the next round tries again.
        for (name, entry) in self.system.apps(self.call_timeout).await.unwrap_or_default() {
            if let Some(app) = apps.iter().find(|app| *app.name() == name) {
                app.set_number(entry.number);
            }
        }
    }
}

impl ClusterReport {
    /// Notes the result of a round of reads. A round that fails leaves the last answer as it is.
    fn note_answer(&mut self, now: Instant, seen: Result<ClusterSeen, String>) {
        self.ended = Some(now);
        match seen {
            Ok(seen) => (self.answer, self.last_error) = (Some(Arc::new(seen)), None),
            Err(error) => self.last_error = Some(error),
        }
    }
}
