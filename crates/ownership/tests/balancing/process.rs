//! A process of the simulation: it reads, beats, plans, and does what its plan says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::Duration,
};

use clock::Instant;
use ielections::Incarnation;
use ownership::{
    BalancePlan, BalanceTimes, Balancer, GiveUp, Member, MemberId, MemberState, Owner, OwnerEpoch,
    OwnerRow, PartitionId,
};

use crate::{
    store::{Store, View},
    world::{Mistake, Settings},
};

/// How long the lease lasts after it was written, and how long the process works, in milliseconds.
pub(crate) const LEASE: u64 = 10_000;
pub(crate) const WORK: u64 = 7_500;
/// How often the process reads, beats and renews.
const EVERY: u64 = 1_000;
/// A partition that could not be started starts again after this time.
const REFUSED_FOR: u64 = 5_000;
/// How often the process plans between two reads.
const PLAN_EVERY: u64 = 500;

/// The instant of a time in milliseconds.
pub(crate) fn at(millis: u64) -> Instant {
    static BEGIN: LazyLock<Instant> = LazyLock::new(|| clock::ManualClock::new(0).clock().now());
    *BEGIN + Duration::from_millis(millis)
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) me: Owner,
    pub(crate) own: Member,
    balancer: Balancer,
    pub(crate) valid_until: u64,
    next_turn: u64,
    is_outdated: bool,
    plan_at: u64,
    read: Option<Read>,
    pub(crate) view: Option<(u64, View)>,
    beat: Option<(u64, Member)>,
    beats: u64,
    pub(crate) ready_at: u64,
    pub(crate) tasks: BTreeMap<PartitionId, Task>,
    used: BTreeMap<PartitionId, OwnerEpoch>,
    taking: Option<(u64, Vec<(PartitionId, OwnerRow)>)>,
    /// The partitions that left, and the time.
    pub(crate) left: BTreeMap<PartitionId, u64>,
    /// The time of the drain, and whether the process ends after it.
    pub(crate) drain: Option<(u64, bool)>,
}

#[derive(Debug)]
struct Read {
    sent: u64,
    done_at: u64,
    answer_at: u64,
    answer: Option<View>,
    is_lost: bool,
}

/// A partition that the process owns.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) epoch: OwnerEpoch,
    pub(crate) ready_at: u64,
    /// When its row changes, and the next owner.
    pub(crate) leaving: Option<(u64, Option<Owner>)>,
    is_move: bool,
    /// The process could not start the partition, and tries again later.
    is_refused: bool,
}

/// What a step of a process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Took(PartitionId),
    /// The partition begins to leave, for the successor, after a view of this age.
    Leaves(PartitionId, Option<Incarnation>, u64),
    /// A move that evens out the loads was done.
    Moved(PartitionId),
    /// The partition left in a drain, by an order, or because it could not start.
    Left(PartitionId),
}

impl Process {
    pub(crate) fn new(now: u64, seat: usize, number: u128, settings: &Settings) -> Process {
        let advertised = ([10, 0, 0, seat as u8], 1).into();
        let me = Owner { incarnation: Incarnation(number), advertised, cluster: None };
        let seed = number as u64;
        // The ids of processes are in no order.
        let id = MemberId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let own = Member {
            incarnation: Some(me.incarnation),
            apps: settings.apps[seat].clone(),
            ..Member::new(id, advertised)
        };
        let mut times = BalanceTimes::default();
        match settings.mistake {
            Some(Mistake::NoQuiet) => times.quiet = Duration::ZERO,
            Some(Mistake::StaleViews) => times.fresh = Duration::from_secs(60),
            Some(Mistake::BackAtOnce) => times.not_back = Duration::ZERO,
            _ => {}
        }
        Process {
            me,
            own,
            balancer: Balancer::new(me, seed).with_times(times),
            valid_until: now + WORK,
            next_turn: now,
            is_outdated: false,
            plan_at: now,
            read: None,
            view: None,
            beat: None,
            beats: 0,
            ready_at: now,
            tasks: BTreeMap::new(),
            used: BTreeMap::new(),
            taking: None,
            left: BTreeMap::new(),
            drain: None,
        }
    }

    pub(crate) fn works_on(&self, now: u64, partition: PartitionId) -> bool {
        let task = self.tasks.get(&partition);
        now < self.valid_until && task.is_some_and(|task| now >= task.ready_at)
    }

    fn is_recovering(&self, now: u64) -> bool {
        self.tasks.values().any(|task| now < task.ready_at && !task.is_refused)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.taking.is_none() && self.tasks.values().all(|task| task.leaving.is_none())
    }

    pub(crate) fn step(
        &mut self,
        now: u64,
        seat: usize,
        store: &mut Store,
        settings: &mut Settings,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if now >= self.next_turn {
            self.next_turn = now + EVERY;
            self.begin_turn(now, seat, store, settings);
        }
        if let Some((done_at, member)) = self.beat.take_if(|(done_at, _)| now >= *done_at) {
            let _ = done_at;
            self.beats += 1;
            store.beat(now, self.beats, member);
        }
        self.finish_take(now, store, settings, &mut events);
        self.finish_leaving(now, store, settings, &mut events);
        // A partition came or left, so the next plan needs a new view.
        if settings.tells && std::mem::take(&mut self.is_outdated) {
            self.begin_read(now, settings);
        }
        let is_new = self.finish_read(now, store, settings);
        if is_new {
            self.start_own_rows(now, settings);
        }
        if is_new || now >= self.plan_at {
            self.plan_at = now + PLAN_EVERY;
            self.plan(now, settings, &mut events);
        }
        events
    }

    /// Renews the lease, sends a read, and writes the member row.
    fn begin_turn(&mut self, now: u64, seat: usize, store: &mut Store, settings: &mut Settings) {
        if !settings.is_lost() || now + 3 * EVERY > self.valid_until {
            store.put_lease(seat, self.me.incarnation, now + LEASE);
            self.valid_until = now + WORK;
        }
        self.begin_read(now, settings);
        self.begin_beat(now, settings);
    }

    fn begin_read(&mut self, now: u64, settings: &mut Settings) {
        if self.read.is_none() {
            let done_at = now + settings.delay();
            let answer_at = done_at + settings.delay();
            let is_lost = settings.is_lost();
            self.read = Some(Read { sent: now, done_at, answer_at, answer: None, is_lost });
        }
    }

    fn begin_beat(&mut self, now: u64, settings: &mut Settings) {
        if self.beat.is_none() && !settings.is_lost() && !settings.members_fail {
            self.own.is_recovering = self.is_recovering(now);
            self.beat = Some((now + settings.delay(), self.own.clone()));
        }
    }

    fn finish_read(&mut self, now: u64, store: &Store, settings: &mut Settings) -> bool {
        let Some(read) = &mut self.read else { return false };
        if now >= read.done_at && read.answer.is_none() {
            read.answer = Some(store.view(now, &mut settings.random));
        }
        if now < read.answer_at {
            return false;
        }
        let Some(Read { sent, answer, is_lost, .. }) = self.read.take() else { return false };
        if let Some(mut view) = answer.filter(|_| !is_lost) {
            // Like the engine: a plain read may show a former row.
            for (id, known) in self.view.iter().flat_map(|(_, view)| &view.rows) {
                let row = view.rows.entry(*id).or_default();
                if row.epoch < known.epoch {
                    *row = *known;
                }
            }
            self.view = Some((sent, view));
        }
        !is_lost
    }

    fn plan(&mut self, now: u64, settings: &mut Settings, events: &mut Vec<Event>) {
        self.own.state = match self.drain {
            Some((since, _)) => {
                if now >= since + 15_000 {
                    self.balancer.hurry();
                }
                MemberState::Draining
            }
            None if now >= self.ready_at => MemberState::Ready,
            None => MemberState::Starting,
        };
        let was_recovering = self.own.is_recovering;
        self.own.is_recovering = self.is_recovering(now);
        let Some((read_at, view)) = &self.view else { return };
        let age = now - read_at;
        let mut changed = None;
        if settings.mistake == Some(Mistake::WantsIgnored) {
            let view = changed.insert(view.clone());
            let wants: BTreeMap<_, _> =
                view.rows.iter().map(|(id, row)| (*id, row.epoch)).collect();
            view.members.iter_mut().for_each(|row| row.member.wants = wants.clone());
        }
        let shown = changed.as_ref().unwrap_or(view);
        let mut own = self.own.clone();
        if settings.mistake == Some(Mistake::OwnHeartbeatNeeded) && settings.members_fail {
            own.state = MemberState::Starting;
        }
        let giving: Vec<_> = self.giving().collect();
        let can_run = |id: &&PartitionId| own.apps.contains(&id.app);
        let partitions = settings.partitions.iter().filter(can_run).copied().collect();
        let mut sight = shown.sight(at(*read_at), &partitions, &giving);
        sight.is_paused &= settings.mistake != Some(Mistake::PauseIgnored);
        let plan = self.balancer.plan(at(now), &sight, &own);
        let BalancePlan { mut take, wants, give_up } = plan;
        if settings.mistake == Some(Mistake::PauseStopsTakes) && sight.is_paused {
            take.clear();
        }
        // The member row is written once a second, and at once if it says something else.
        if self.own.wants != wants || self.own.is_recovering != was_recovering {
            self.own.wants = wants;
            self.begin_beat(now, settings);
        }
        if self.taking.is_none() && !take.is_empty() {
            let rows = &self.view.as_ref().map(|(_, view)| &view.rows);
            let row = |id| rows.and_then(|rows| rows.get(&id)).copied().unwrap_or_default();
            let taken = take.into_iter().map(|id| (id, row(id))).collect();
            self.taking = Some((now + settings.delay() + settings.delay(), taken));
        }
        for step in give_up {
            self.give_up(now, age, step, settings, events);
        }
    }

    fn giving(&self) -> impl Iterator<Item = GiveUp> {
        let leaving = |(&partition, task): (&PartitionId, &Task)| {
            let (_, to) = task.leaving?;
            Some(GiveUp { partition, epoch: task.epoch, to })
        };
        self.tasks.iter().filter_map(leaving)
    }

    fn give_up(
        &mut self,
        now: u64,
        age: u64,
        step: GiveUp,
        settings: &mut Settings,
        events: &mut Vec<Event>,
    ) {
        let GiveUp { partition, epoch, to } = step;
        let Some(task) = self.tasks.get_mut(&partition) else { return };
        if task.epoch != epoch || task.leaving.is_some() {
            return;
        }
        let is_order = settings.ordered.contains(&(partition, epoch));
        let is_refused = self.own.refused.contains(&partition);
        task.is_move = self.drain.is_none() && !is_order && !is_refused;
        task.leaving = Some((now + settings.stop_ms() + settings.delay(), to));
        let to = to.map(|to| to.incarnation);
        events.push(Event::Leaves(partition, to.filter(|_| task.is_move), age));
    }

    /// Takes the partitions that are still as they were seen, if their owners have no lease.
    fn finish_take(
        &mut self,
        now: u64,
        store: &mut Store,
        settings: &mut Settings,
        events: &mut Vec<Event>,
    ) {
        let Some((_, taken)) = self.taking.take_if(|(done_at, _)| now >= *done_at) else { return };
        let living = store.living(now);
        for (partition, from) in taken {
            if from.owner.is_some_and(|owner| living.contains(&owner.incarnation)) {
                continue;
            }
            let Some(epoch) = from.epoch.next() else { continue };
            let to = OwnerRow { epoch, owner: Some(self.me) };
            if store.change(now, partition, from, to) {
                events.push(Event::Took(partition));
                self.start(now, partition, epoch, settings);
            }
        }
    }

    fn start_own_rows(&mut self, now: u64, settings: &mut Settings) {
        let Some((_, view)) = &self.view else { return };
        let is_mine = |row: &OwnerRow| {
            row.owner.is_some_and(|owner| owner.incarnation == self.me.incarnation)
        };
        let mine = view.rows.iter().filter(|(_, row)| is_mine(row));
        let mine: Vec<_> = mine.map(|(id, row)| (*id, row.epoch)).collect();
        for (partition, epoch) in mine {
            self.start(now, partition, epoch, settings);
        }
    }

    /// Starts a partition under an epoch that was not used here, or refuses it.
    pub(crate) fn start(
        &mut self,
        now: u64,
        partition: PartitionId,
        epoch: OwnerEpoch,
        settings: &mut Settings,
    ) {
        if self.used.get(&partition).is_some_and(|used| *used >= epoch) {
            return;
        }
        self.used.insert(partition, epoch);
        if settings.has_faults && settings.refuses && settings.random.u8(..10) == 0 {
            self.own.refused.insert(partition);
            self.learn(partition, OwnerRow { epoch, owner: Some(self.me) });
            let ready_at = now + REFUSED_FOR;
            let task = Task { epoch, ready_at, leaving: None, is_move: false, is_refused: true };
            self.tasks.insert(partition, task);
            return;
        }
        let ready_at = now + settings.random.u64(100..=600);
        self.is_outdated = true;
        self.learn(partition, OwnerRow { epoch, owner: Some(self.me) });
        let task = Task { epoch, ready_at, leaving: None, is_move: false, is_refused: false };
        self.tasks.insert(partition, task);
    }

    fn learn(&mut self, partition: PartitionId, row: OwnerRow) {
        if let Some((_, view)) = &mut self.view {
            view.rows.insert(partition, row);
        }
    }

    fn finish_leaving(
        &mut self,
        now: u64,
        store: &mut Store,
        settings: &mut Settings,
        events: &mut Vec<Event>,
    ) {
        let due = |task: &Task| task.leaving.filter(|(done_at, _)| now >= *done_at);
        let due: Vec<_> =
            self.tasks.iter().filter_map(|(id, task)| Some((*id, due(task)?.1))).collect();
        for (partition, to) in due {
            let Some(task) = self.tasks.remove(&partition) else { continue };
            let from = OwnerRow { epoch: task.epoch, owner: Some(self.me) };
            let epoch = task.epoch.next().filter(|_| to.is_some()).unwrap_or(task.epoch);
            if store.change(now, partition, from, OwnerRow { epoch, owner: to }) {
                self.learn(partition, OwnerRow { epoch, owner: to });
                self.left.insert(partition, now);
                self.is_outdated = true;
                events.push(match (task.is_move, to) {
                    (true, Some(_)) => Event::Moved(partition),
                    _ => Event::Left(partition),
                });
                if let (Some(to), true) = (to, settings.tells) {
                    settings.told.push((to.incarnation, partition, epoch));
                }
            }
        }
    }

    /// The applications of the process.
    pub(crate) fn apps(&self) -> &BTreeSet<u32> {
        &self.own.apps
    }
}
