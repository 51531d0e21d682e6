//! The decisions of a node that takes partitions, works on them and gives them up.
//!
//! The module does no I/O, and has no clock and no task. The host does what [`OwnershipAction`]
//! says, one call at a time, and passes the answer to [`OwnershipEngine::next`]. Meanwhile the host
//! may tell the engine what the node wants, and which partitions have ended. The engine tells the
//! host with [`OwnershipNotice`] which partitions to start and to stop.
//!
//! Invariants:
//!
//! - Every change of a row is conditional on exactly the row that was read, and no epoch falls. So
//!   a row never has the same value twice, and a change that lands late either finds its condition
//!   false or is the one change that happened.
//! - A partition is taken from an owner only if the owner has no lease *after* its row was read. A
//!   simpler version reads the leases first: node B reads the leases; node A gets a lease and takes
//!   the partition; B reads the row, and does not know A's lease. So B would take the partition
//!   while A works. An incarnation in a row was alive before the row was read, and an incarnation
//!   that was alive and has no lease never leads again.
//! - A partition is taken only after a read of leases that shows the lease of this node: a wrong
//!   clock of a server would have expired that lease, too.
//! - A partition starts at most once under an epoch. A simpler version starts each partition whose
//!   row names this node: the node has stopped a partition, and its handover has no answer; the
//!   node reads its own name and starts the partition; the handover lands, and the successor starts
//!   it, too. So after a stop the row must change first.
//! - The row of a partition changes only after the host has reported that the partition sends
//!   nothing more.

mod held;
mod messages;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use ielections::Incarnation;

use self::held::{Held, HeldState, NextOwner};
pub use self::messages::{
    OwnerChange, OwnerRowsView, OwnershipAction, OwnershipAnswer, OwnershipCall, OwnershipNotice,
};
use crate::{GiveUp, Owner, OwnerEpoch, OwnerRow, PartitionId};

/// How often the engine looks at the rows.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause after a call that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The pause between two attempts to change a row that makes no sense.
const ASIDE: Duration = Duration::from_secs(60);

/// The shortest and the longest pause before a partition that ended by itself starts again.
const RESTART_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The decisions of a node about its partitions, during one leadership.
#[derive(Debug)]
pub struct OwnershipEngine {
    me: Owner,
    partitions: BTreeSet<PartitionId>,
    /// The most rows of one change.
    rows_at_once: usize,
    rows: OwnerRowsView,
    held: BTreeMap<PartitionId, Held>,
    /// The highest epoch that each partition was started under here.
    used: BTreeMap<PartitionId, OwnerEpoch>,
    restarts: BTreeMap<PartitionId, Restarts>,
    wanted: BTreeSet<PartitionId>,
    /// The partitions whose rows make no sense.
    aside: BTreeSet<PartitionId>,
    step: Step,
    look_at: Instant,
    /// No call is made before this time.
    rest_until: Instant,
    notices: Vec<OwnershipNotice>,
    is_over: bool,
}

/// The starts of a partition that ended by itself.
#[derive(Clone, Copy, Debug)]
struct Restarts {
    started: Instant,
    pause: Duration,
}

/// The purpose of the call that is under way.
#[derive(Clone, Debug)]
enum Step {
    Idle,
    Looking,
    /// Reads the rows of taken partitions again before they start.
    Confirming,
    /// Reads the rows of wanted partitions before the leases.
    Verifying,
    /// Reads the leases, for these rows.
    Judging(Vec<(PartitionId, OwnerRow)>),
    Taking(Vec<OwnerChange>),
    /// Changes the rows of partitions that have stopped.
    Settling(Vec<OwnerChange>),
}

impl OwnershipEngine {
    /// Makes the engine of a leadership that has just begun. `partitions` are those that this node
    /// can work on, and `rows_at_once` is the most rows that the storage changes at once.
    pub fn new(
        me: Owner,
        partitions: impl IntoIterator<Item = PartitionId>,
        rows_at_once: usize,
        now: Instant,
    ) -> OwnershipEngine {
        OwnershipEngine {
            me,
            partitions: partitions.into_iter().collect(),
            rows_at_once: rows_at_once.max(1),
            rows: OwnerRowsView::new(),
            held: BTreeMap::new(),
            used: BTreeMap::new(),
            restarts: BTreeMap::new(),
            wanted: BTreeSet::new(),
            aside: BTreeSet::new(),
            step: Step::Idle,
            look_at: now,
            rest_until: now,
            notices: Vec::new(),
            is_over: false,
        }
    }

    /// The rows as the engine saw them last, including those of partitions that this node cannot
    /// work on.
    pub fn rows(&self) -> &OwnerRowsView {
        &self.rows
    }

    /// The row of a partition as the engine saw it last.
    pub fn row(&self, partition: PartitionId) -> OwnerRow {
        self.rows.get(&partition).copied().unwrap_or_default()
    }

    /// Returns the notices since the last call of this method, in their order.
    #[must_use]
    pub fn notices(&mut self) -> Vec<OwnershipNotice> {
        std::mem::take(&mut self.notices)
    }

    /// Looks at the rows at once: another node may have given a partition to this one.
    pub fn look_soon(&mut self, now: Instant) {
        self.look_at = now;
    }

    /// Tells which partitions the node wants to take. The wish holds until the engine has tried
    /// once. A partition is taken only if it has no owner, or its owner has no lease.
    pub fn want(&mut self, partitions: impl IntoIterator<Item = PartitionId>) {
        let partitions = partitions.into_iter().filter(|id| self.partitions.contains(id));
        self.wanted = partitions.filter(|id| !self.held.contains_key(id)).collect();
    }

    /// Tells that the node wants to give up a partition: to another node, or to nobody. Does
    /// nothing unless the partition works under this epoch, or has ended and waits for its restart.
    pub fn give_up(&mut self, now: Instant, GiveUp { partition, epoch, to }: GiveUp) {
        let next = to.map_or(NextOwner::Release, NextOwner::HandOver);
        let Some(held) = self.held.get_mut(&partition) else { return };
        if held.epoch != epoch || self.is_over {
            return;
        }
        match held.state {
            HeldState::Working => {
                held.state = HeldState::Stopping(next);
                self.notices.push(OwnershipNotice::Stop(partition, epoch));
            }
            // The restart was not sent yet.
            HeldState::Stopped(NextOwner::Restart { safe_at, .. }, at) if now < at => {
                held.state = HeldState::Stopped(next, safe_at);
            }
            _ => {}
        }
    }

    /// Returns the partitions that the node has begun to give up and whose rows have not changed.
    /// Neither the node nor another one can stop a partition from leaving.
    pub fn giving(&self) -> Vec<GiveUp> {
        let held = self.held.iter().filter(|(partition, _)| !self.aside.contains(partition));
        let giving = held.filter_map(|(&partition, &Held { epoch, state })| {
            let to = match state {
                HeldState::Stopping(next) | HeldState::Stopped(next, _) => next.successor()?,
                HeldState::Taken | HeldState::Working => return None,
            };
            Some(GiveUp { partition, epoch, to })
        });
        giving.collect()
    }

    /// Tells that a partition sends nothing more: from `safe_at` on, a later epoch fences every
    /// write of this epoch that may still land. If the partition ended by itself, it starts again
    /// after a pause, under an epoch that is higher than `log_epoch`, the highest epoch that the
    /// partition found in its log.
    pub fn ended(
        &mut self,
        now: Instant,
        partition: PartitionId,
        epoch: OwnerEpoch,
        safe_at: Instant,
        log_epoch: OwnerEpoch,
    ) {
        let Some(held) = self.held.get(&partition).filter(|held| held.epoch == epoch) else {
            return;
        };
        let state = match held.state {
            HeldState::Working => {
                let again_at = now + self.next_pause(now, partition);
                let restart = NextOwner::Restart { above: log_epoch, safe_at };
                HeldState::Stopped(restart, safe_at.max(again_at))
            }
            HeldState::Stopping(next) => HeldState::Stopped(next, safe_at),
            HeldState::Taken | HeldState::Stopped(..) => return,
        };
        self.held.insert(partition, Held { epoch, state });
    }

    /// Tells that the row of a partition makes no sense. One call changes the rows of several
    /// partitions, or none of them. So the engine tries to change this row only once a minute, and
    /// [`giving`](OwnershipEngine::giving) does not name the partition.
    pub fn set_aside(&mut self, now: Instant, partition: PartitionId) {
        self.wanted.remove(&partition);
        if let Some(held) = self.held.get_mut(&partition)
            && let HeldState::Stopped(next, _) = held.state
        {
            held.state = HeldState::Stopped(next, now + ASIDE);
            self.aside.insert(partition);
        }
    }

    /// The pause before a partition that ended by itself starts again. It doubles as long as the
    /// partition ends soon after its starts.
    fn next_pause(&mut self, now: Instant, partition: PartitionId) -> Duration {
        let [shortest, longest] = RESTART_PAUSES;
        let Some(restarts) = self.restarts.get_mut(&partition) else { return shortest };
        let worked = now.saturating_since(restarts.started);
        let pause = if worked >= longest { shortest } else { restarts.pause };
        restarts.pause = (pause * 2).min(longest);
        pause
    }

    /// Returns the next thing to do after an answer.
    pub fn next(&mut self, now: Instant, answer: OwnershipAnswer) -> OwnershipAction {
        let step = std::mem::replace(&mut self.step, Step::Idle);
        match (step, answer) {
            (Step::Idle, _) => {}
            (Step::Looking, OwnershipAnswer::Rows(rows)) => self.see(rows, false),
            (Step::Confirming, OwnershipAnswer::Rows(rows)) => {
                self.see(rows, true);
                self.start(now);
            }
            (Step::Verifying, OwnershipAnswer::Rows(rows)) => {
                self.see(rows, true);
                if let Some(call) = self.judge() {
                    return call;
                }
            }
            (Step::Judging(seen), OwnershipAnswer::Leases(living)) => {
                if let Some(call) = self.take(seen, &living) {
                    return call;
                }
            }
            (Step::Taking(changes) | Step::Settling(changes), OwnershipAnswer::Changed) => {
                for OwnerChange { partition, to, .. } in changes {
                    self.learn(partition, to, true);
                }
            }
            (Step::Taking(_) | Step::Settling(_), OwnershipAnswer::Refused(there)) => {
                for (partition, row) in there {
                    self.learn(partition, row, true);
                }
            }
            // A change without an answer is settled by the next look, or by the same change. The
            // engine forgets a wish: the host decides again from newer rows.
            (_, _) => {
                self.wanted.clear();
                self.rest_until = now + RETRY_PAUSE;
            }
        }
        self.choose(now)
    }

    /// Chooses what to do while no call is under way.
    fn choose(&mut self, now: Instant) -> OwnershipAction {
        if self.is_over {
            return OwnershipAction::Wait(Instant::FAR_FUTURE);
        }
        if now < self.rest_until {
            return OwnershipAction::Wait(self.rest_until);
        }
        // The look comes first, because changes that fail again and again must not keep the node
        // from seeing that it has lost a partition.
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            return self.call(Step::Looking, OwnershipCall::LookAtRows);
        }
        if let Some(call) = self.settle(now) {
            return call;
        }
        if self.held.values().any(|held| held.state == HeldState::Taken) {
            return self.call(Step::Confirming, OwnershipCall::ReadRows);
        }
        if !self.wanted.is_empty() {
            return self.call(Step::Verifying, OwnershipCall::ReadRows);
        }
        let due = self.held.values().filter_map(|held| match held.state {
            HeldState::Stopped(_, at) => Some(at),
            _ => None,
        });
        OwnershipAction::Wait(due.fold(self.look_at, Instant::min))
    }

    fn call(&mut self, step: Step, call: OwnershipCall) -> OwnershipAction {
        self.step = step;
        OwnershipAction::Call(call)
    }

    /// Changes the rows of partitions that have stopped.
    fn settle(&mut self, now: Instant) -> Option<OwnershipAction> {
        let mut changes = Vec::new();
        for (&partition, held) in &mut self.held {
            let HeldState::Stopped(next, at) = held.state else { continue };
            if now < at || changes.len() >= self.rows_at_once {
                continue;
            }
            let from = OwnerRow { epoch: held.epoch, owner: Some(self.me) };
            match next.row(self.me, held.epoch) {
                Some(to) => changes.push(OwnerChange { partition, from, to }),
                None => {
                    held.state = HeldState::Stopped(next, Instant::FAR_FUTURE);
                    self.notices.push(OwnershipNotice::NoEpochLeft(partition));
                }
            }
        }
        let call = OwnershipCall::Change(changes.clone());
        (!changes.is_empty()).then(|| self.call(Step::Settling(changes), call))
    }

    /// Reads the leases, if the rows show wanted partitions that this node does not own.
    fn judge(&mut self) -> Option<OwnershipAction> {
        let wanted = std::mem::take(&mut self.wanted);
        let free = wanted.into_iter().filter(|id| !self.held.contains_key(id));
        let seen: Vec<_> = free.map(|id| (id, self.row(id))).collect();
        (!seen.is_empty()).then(|| self.call(Step::Judging(seen), OwnershipCall::ReadLeases))
    }

    /// Takes the partitions whose owner has no lease, if this node has one.
    fn take(
        &mut self,
        seen: Vec<(PartitionId, OwnerRow)>,
        living: &BTreeSet<Incarnation>,
    ) -> Option<OwnershipAction> {
        if !living.contains(&self.me.incarnation) {
            return None;
        }
        let mut changes = Vec::new();
        for (partition, from) in seen {
            if from.owner.is_some_and(|owner| living.contains(&owner.incarnation)) {
                continue;
            }
            match from.epoch.next() {
                Some(epoch) => {
                    let to = OwnerRow { epoch, owner: Some(self.me) };
                    changes.push(OwnerChange { partition, from, to });
                }
                None => self.notices.push(OwnershipNotice::NoEpochLeft(partition)),
            }
        }
        // The host asks again for those that do not fit.
        changes.truncate(self.rows_at_once);
        let call = OwnershipCall::Change(changes.clone());
        (!changes.is_empty()).then(|| self.call(Step::Taking(changes), call))
    }

    /// Starts the partitions whose rows were just read again.
    fn start(&mut self, now: Instant) {
        if self.is_over {
            return;
        }
        for (&partition, held) in &mut self.held {
            if held.state == HeldState::Taken {
                held.state = HeldState::Working;
                self.used.insert(partition, held.epoch);
                let pause = RESTART_PAUSES[0];
                let restarts = Restarts { started: now, pause };
                self.restarts.entry(partition).or_insert(restarts).started = now;
                self.notices.push(OwnershipNotice::Start(partition, held.epoch));
            }
        }
    }

    fn see(&mut self, rows: OwnerRowsView, is_linearizable: bool) {
        for partition in self.partitions.clone() {
            match rows.get(&partition) {
                Some(row) => self.learn(partition, *row, is_linearizable),
                // No row is ever removed, so a missing row is one that cannot be read. A partition
                // that works goes on under its epoch: nobody can take it without a change of its
                // row.
                None if self.works(partition) => {}
                None => self.learn(partition, OwnerRow::default(), is_linearizable),
            }
        }
        // The loads of the owners include the other partitions.
        for (partition, row) in rows {
            if !self.partitions.contains(&partition) && row.epoch >= self.row(partition).epoch {
                self.rows.insert(partition, row);
            }
        }
    }

    /// Whether a partition was started here and has not left.
    fn works(&self, partition: PartitionId) -> bool {
        self.held.get(&partition).is_some_and(|held| held.state != HeldState::Taken)
    }

    /// Learns what the row of a partition holds. A plain read may show a former value.
    fn learn(&mut self, partition: PartitionId, row: OwnerRow, is_linearizable: bool) {
        if !is_linearizable && row.epoch < self.row(partition).epoch {
            return;
        }
        self.rows.insert(partition, row);
        self.aside.remove(&partition);
        let is_mine = row.owner.is_some_and(|owner| owner.incarnation == self.me.incarnation);
        let is_unused = self.used.get(&partition).is_none_or(|used| row.epoch > *used);
        let Some(held) = self.held.get(&partition).copied() else {
            if is_mine && is_unused {
                self.hold(partition, row.epoch);
            }
            return;
        };
        if is_mine && row.epoch == held.epoch {
            return;
        }
        match held.state {
            HeldState::Stopped(NextOwner::Restart { .. }, _) if is_mine && is_unused => {
                self.hold(partition, row.epoch);
            }
            // The change was made, and the next owner may have changed the row since.
            HeldState::Stopped(NextOwner::HandOver(_) | NextOwner::Release, _) => {
                self.held.remove(&partition);
                self.notices.push(OwnershipNotice::Left(partition));
            }
            _ => {
                self.is_over = true;
                self.notices.push(OwnershipNotice::Foreign(partition, row));
            }
        }
    }

    fn hold(&mut self, partition: PartitionId, epoch: OwnerEpoch) {
        self.held.insert(partition, Held { epoch, state: HeldState::Taken });
    }
}
