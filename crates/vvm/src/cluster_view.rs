//! The cluster, as the storage reported it last: the owners of partitions, the leases of seats and
//! the members.
//!
//! Invariant: only [`ClusterView::watch`] reads, one round of reads at a time, and only
//! [`ClusterView::announce`] writes the member row of the node, both on the runtime of elections.
//! Requests and `/status` read the last answer. They wait for a fresh answer only for a short time
//! of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base::with_causes;
use clock::{Clock, Instant};
use ielections::{Incarnation, Leaders, Observer};
use istorage::Consistency;
use sysvvm::{
    MemberRows, OperatorOrder, OrderId, OwnerRows, SeenMember, System,
    ownership::{
        FRESH as HEARTBEAT_FRESH, Member, MemberId, MemberRow, OwnerRow, OwnerRowsView, PartitionId,
    },
};
use tokio::sync::{Notify, watch};
use tracing::debug;

use crate::{
    App, Node,
    membership::{self, MEMBER_TTL, UrgentFields},
};

/// How often the view is read again.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(1);

/// The time between two writes of the member row, a bit less than between two rounds.
const WRITE_EVERY: Duration = Duration::from_millis(900);

/// How long an answer of the storage is fresh. A reader that wants a fresh answer causes a read at
/// most this often.
const FRESH: Duration = Duration::from_millis(100);

/// The longest time that a reader waits while nothing is known.
const FIRST_WITHIN: Duration = Duration::from_millis(500);

/// The last report of the storage about the cluster.
#[derive(Debug)]
pub(crate) struct ClusterView {
    clock: Clock,
    source: OnceLock<ViewSource>,
    is_wanted: Notify,
    is_changed: Notify,
    /// Whether the next round begins even if the last answer is still fresh.
    is_urgent: AtomicBool,
    last: watch::Sender<ClusterReport>,
}

/// The rows that a view reads.
#[derive(Debug)]
struct ViewSource {
    system: Arc<System>,
    owners: OwnerRows,
    members: MemberRows,
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
    /// When the reads were sent.
    pub(crate) sent: Instant,
    pub(crate) owners: OwnerRowsView,
    pub(crate) leaders: Leaders,
    pub(crate) living: BTreeSet<Incarnation>,
    pub(crate) members: Vec<MemberRow>,
    /// Whether an operator has paused the moves that even out the loads.
    pub(crate) is_paused: bool,
    pub(crate) orders: Vec<(OrderId, OperatorOrder)>,
    /// The heartbeat of each member, and the time of the read that showed it first.
    heartbeats: BTreeMap<MemberId, (u64, Instant)>,
}

impl ClusterSeen {
    /// The row of a partition. An owner whose lease is gone counts as absent.
    pub(crate) fn owner(&self, partition: PartitionId) -> OwnerRow {
        let OwnerRow { epoch, owner } = self.owners.get(&partition).copied().unwrap_or_default();
        OwnerRow { epoch, owner: owner.filter(|owner| self.living.contains(&owner.incarnation)) }
    }

    /// Whether the heartbeat of a member rose within the last 3 seconds before the read.
    pub(crate) fn is_fresh(&self, id: MemberId) -> bool {
        let rose = self.heartbeats.get(&id);
        rose.is_some_and(|(_, at)| self.sent.saturating_since(*at) <= HEARTBEAT_FRESH)
    }

    /// Notes which heartbeats rose since the read before.
    fn note_heartbeats(&mut self, before: Option<&ClusterSeen>) {
        for MemberRow { heartbeat, member } in &self.members {
            let known = before.and_then(|before| before.heartbeats.get(&member.id));
            let rose =
                known.filter(|(known, _)| known == heartbeat).map_or(self.sent, |(_, at)| *at);
            self.heartbeats.insert(member.id, (*heartbeat, rose));
        }
    }
}

impl ClusterView {
    pub(crate) fn new(clock: Clock) -> ClusterView {
        ClusterView {
            clock,
            source: OnceLock::new(),
            is_wanted: Notify::new(),
            is_changed: Notify::new(),
            is_urgent: AtomicBool::new(false),
            last: watch::Sender::new(ClusterReport::default()),
        }
    }

    /// Sets the storage when it is open.
    pub(crate) fn set_source(&self, system: &Arc<System>, leases: Observer, timeout: Duration) {
        let (owners, members) = (system.owners(), system.members());
        let system = Arc::clone(system);
        let source = ViewSource { system, owners, members, leases, call_timeout: timeout };
        // The source is set only once.
        if self.source.set(source).is_ok() {
            self.ask_now();
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

    /// Causes a read at once, although the last answer may be fresh. If the member row has changed,
    /// it is written at once, too.
    pub(crate) fn ask_now(&self) {
        self.is_urgent.store(true, Ordering::Relaxed);
        self.is_wanted.notify_one();
        self.is_changed.notify_one();
    }

    /// The rows of members, once the storage is open.
    pub(crate) fn member_rows(&self) -> Option<&MemberRows> {
        self.source.get().map(|source| &source.members)
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
    pub(crate) async fn watch(&self, node: &Node) -> Infallible {
        loop {
            let tick = self.clock.now() + READ_EVERY;
            // Either event causes a round.
            let _ = self.clock.timeout_at(tick, self.is_wanted.notified()).await;
            let Some(source) = self.source.get() else { continue };
            let fresh_until = self.last.borrow().ended.map(|ended| ended + FRESH);
            while !self.is_urgent.swap(false, Ordering::Relaxed)
                && let Some(until) = fresh_until.filter(|until| self.clock.now() < *until)
            {
                let _ = self.clock.timeout_at(until, self.is_wanted.notified()).await;
            }
            let seen = source.read(&self.clock).await;
            source.find_numbers(node.apps()).await;
            if let Ok(seen) = &seen {
                node.obey(&seen.orders);
            }
            let now = self.clock.now();
            self.last.send_modify(|report| report.note_answer(now, seen));
        }
    }

    /// Writes the member row of the node each second, and at once if other nodes must learn of a
    /// change. A write that hangs does not delay the reads.
    pub(crate) async fn announce(&self, node: &Node) -> Infallible {
        let mut written = None;
        loop {
            let tick = self.clock.now() + READ_EVERY;
            // Either event causes a write.
            let _ = self.clock.timeout_at(tick, self.is_changed.notified()).await;
            if let Some(source) = self.source.get() {
                source.write_member(node, &self.clock, &mut written).await;
            }
        }
    }

    fn is_fresh(&self, seen: &ClusterReport) -> bool {
        seen.ended.is_some_and(|ended| self.clock.now() < ended + FRESH)
    }
}

impl ViewSource {
    /// Reads owners, leases and members at the same time.
    async fn read(&self, clock: &Clock) -> Result<ClusterSeen, String> {
        let sent = clock.now();
        let deadline = sent + self.call_timeout;
        let rows = async {
            let owners = self.owners.read(Consistency::Plain, deadline);
            tokio::try_join!(owners, self.members.read(deadline))
        };
        let (rows, leaders) = tokio::join!(clock.timeout_at(deadline, rows), self.leases.leaders());
        let rows = rows.map_err(|late| with_causes(&late))?;
        let (owners, members) = rows.map_err(|error| with_causes(&error))?;
        let leaders = leaders.map_err(|error| with_causes(&error))?;
        let living = leaders.values().map(|lease| lease.incarnation).collect();
        let member = |seen: &SeenMember| {
            // A row that this program cannot read belongs to no candidate.
            let member = Member::from_bytes(&seen.bytes)?;
            (member.id.0 == seen.id).then_some(MemberRow { heartbeat: seen.heartbeat, member })
        };
        Ok(ClusterSeen {
            sent,
            owners: owners.rows,
            leaders,
            living,
            is_paused: members.pause.is_some_and(|pause| pause.paused),
            members: members.members.iter().filter_map(member).collect(),
            orders: members.orders,
            heartbeats: BTreeMap::new(),
        })
    }

    /// Writes the member row of the node, if a second has passed or other nodes must learn of a
    /// change. A write that fails is tried again in the next round.
    async fn write_member(
        &self,
        node: &Node,
        clock: &Clock,
        written: &mut Option<(Instant, UrgentFields)>,
    ) {
        let (now, member) = (clock.now(), node.own_member());
        let urgent = membership::urgent(&member);
        let is_written = written
            .as_ref()
            .is_some_and(|(at, fields)| now < *at + WRITE_EVERY && *fields == urgent);
        if is_written {
            return;
        }
        let (deadline, heartbeat) = (now + self.call_timeout, node.membership().next_heartbeat());
        let bytes = member.to_bytes();
        let put = self.members.put_member(member.id.0, heartbeat, &bytes, MEMBER_TTL, deadline);
        match clock.timeout_at(deadline, put).await {
            Ok(Ok(())) => *written = Some((now, urgent)),
            Ok(Err(error)) => debug!(error = %with_causes(&error), "member row not written"),
            Err(_) => debug!("member row not written in time"),
        }
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
            Ok(mut seen) => {
                seen.note_heartbeats(self.answer.as_deref());
                (self.answer, self.last_error) = (Some(Arc::new(seen)), None);
            }
            Err(error) => self.last_error = Some(error),
        }
    }
}
