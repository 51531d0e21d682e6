//! The world of the simulation: time, faults, and the checks of the promises.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash},
};

use ielections::Incarnation;
use ownership::{MemberState, MoveOrder, OwnerEpoch, PartitionId};

use crate::{
    process::{Event, Process},
    store::Store,
};

/// A step of time, in milliseconds.
pub(crate) const STEP: u64 = 100;
/// How long starts of a node count.
const MEMORY: u64 = 600_000;

/// A mistake of the host or of the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Partitions move at once after a node came or left.
    NoQuiet,
    /// Views and heartbeats count for a minute.
    StaleViews,
    /// A node takes back at once what it gave away.
    BackAtOnce,
    /// An owner gives up partitions that nobody asked for.
    WantsIgnored,
    /// A paused cluster takes no free partitions.
    PauseStopsTakes,
    /// Nodes do not see that moves are paused.
    PauseIgnored,
    /// A node that cannot write its member row takes nothing.
    OwnHeartbeatNeeded,
}

impl Mistake {
    pub(crate) const ALL: [Mistake; 7] = [
        Mistake::NoQuiet,
        Mistake::StaleViews,
        Mistake::BackAtOnce,
        Mistake::WantsIgnored,
        Mistake::PauseStopsTakes,
        Mistake::PauseIgnored,
        Mistake::OwnHeartbeatNeeded,
    ];
}

/// The settings of a history, and its random numbers.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) mistake: Option<Mistake>,
    pub(crate) random: fastrand::Rng,
    pub(crate) partitions: BTreeSet<PartitionId>,
    /// The applications that each node can run.
    pub(crate) apps: Vec<BTreeSet<u32>>,
    /// The share of calls that are slow or have no answer, in percent.
    pub(crate) trouble: u32,
    pub(crate) has_faults: bool,
    /// Partitions fail to start sometimes.
    pub(crate) refuses: bool,
    /// An owner tells the successor after a handover.
    pub(crate) tells: bool,
    pub(crate) told: Vec<(Incarnation, PartitionId, OwnerEpoch)>,
    pub(crate) ordered: BTreeSet<(PartitionId, OwnerEpoch)>,
    /// No member row can be written.
    pub(crate) members_fail: bool,
    /// A partition stops within this time at most.
    pub(crate) longest_stop: u64,
}

impl Settings {
    pub(crate) fn delay(&mut self) -> u64 {
        let longest = if self.random.u32(..100) < self.trouble { 1_200 } else { 80 };
        self.random.u64(..=longest)
    }

    pub(crate) fn is_lost(&mut self) -> bool {
        self.random.u32(..100) < self.trouble / 2
    }

    pub(crate) fn stop_ms(&mut self) -> u64 {
        self.random.u64(self.longest_stop / 3..=self.longest_stop)
    }
}

/// A place for a process.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    pub(crate) process: Option<Process>,
    /// The next process starts at this time.
    up_at: Option<u64>,
    /// The next process replaces the lease of the one before.
    comes_back: bool,
    frozen_until: u64,
    cancel_at: Option<u64>,
    pub(crate) starts: Vec<u64>,
    /// The node counts its starts.
    counts_starts: bool,
    /// The node crashes again and again.
    pub(crate) is_flapping: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) now: u64,
    pub(crate) store: Store,
    pub(crate) seats: Vec<Seat>,
    incarnations: u128,
    dead: BTreeMap<Incarnation, u64>,
    paused_since: Option<u64>,
    /// When a node last came, left or changed its state.
    pub(crate) last_change: u64,
    /// The moves that even out the loads.
    pub(crate) moves: Vec<PartitionId>,
    pub(crate) takes: u64,
    pub(crate) digest: DefaultHasher,
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        let seats = settings.apps.iter().map(|_| Seat::default()).collect();
        World {
            settings,
            now: 0,
            store: Store::default(),
            seats,
            incarnations: 0,
            dead: BTreeMap::new(),
            paused_since: None,
            last_change: 0,
            moves: Vec::new(),
            takes: 0,
            digest: DefaultHasher::new(),
        }
    }

    pub(crate) fn count_starts(&mut self, seat: usize) {
        self.seats[seat].counts_starts = true;
    }

    pub(crate) fn start(&mut self, seat: usize, in_ms: u64, comes_back: bool) {
        self.seats[seat].up_at = Some(self.now + in_ms);
        self.seats[seat].comes_back = comes_back;
    }

    pub(crate) fn crash(&mut self, seat: usize) {
        if let Some(process) = self.seats[seat].process.take() {
            self.dead.insert(process.me.incarnation, self.now);
            self.last_change = self.now;
        }
    }

    pub(crate) fn freeze(&mut self, seat: usize, for_ms: u64) {
        self.seats[seat].frozen_until = self.now + for_ms;
    }

    /// Drains a node. The process ends afterwards, or the drain is cancelled after a time.
    pub(crate) fn drain(&mut self, seat: usize, cancel_after: Option<u64>) {
        let Some(process) = &mut self.seats[seat].process else { return };
        if process.drain.is_none() {
            process.drain = Some((self.now, cancel_after.is_none()));
            self.seats[seat].cancel_at = cancel_after.map(|after| self.now + after);
            self.seats[seat].up_at = None;
            self.last_change = self.now;
        }
    }

    pub(crate) fn pause(&mut self, is_paused: bool) {
        self.store.is_paused = is_paused;
        self.paused_since = is_paused.then_some(self.now);
    }

    pub(crate) fn order(&mut self, partition: PartitionId, seat: usize) {
        let Some(to) = self.seats[seat].process.as_ref().map(|process| process.own.id) else {
            return;
        };
        let epoch = self.store.row(partition).epoch;
        self.settings.ordered.insert((partition, epoch));
        self.store.orders.push(MoveOrder { partition, epoch, to });
    }

    pub(crate) fn step(&mut self) -> Result<(), String> {
        for seat in 0..self.seats.len() {
            self.start_process(seat);
            self.end_drain(seat);
            if self.now < self.seats[seat].frozen_until {
                continue;
            }
            let Seat { process, starts, counts_starts, .. } = &mut self.seats[seat];
            let Some(process) = process else { continue };
            if self.now >= process.valid_until {
                self.crash(seat);
                self.start(seat, 2_000, false);
                continue;
            }
            let recent = starts.iter().filter(|at| self.now - **at < MEMORY).count();
            process.own.recent_starts = if *counts_starts { recent as u32 } else { 1 };
            let events = process.step(self.now, seat, &mut self.store, &mut self.settings);
            for event in events {
                (self.now, seat, event).hash(&mut self.digest);
                self.check(seat, event)?;
            }
        }
        self.tell();
        self.now += STEP;
        Ok(())
    }

    fn start_process(&mut self, which: usize) {
        let seat = &mut self.seats[which];
        let is_free = seat.comes_back || self.now >= self.store.lease_end(which);
        if seat.process.is_some() || seat.up_at.is_none_or(|at| self.now < at) || !is_free {
            return;
        }
        self.incarnations += 1;
        let mut process = Process::new(self.now, which, self.incarnations, &self.settings);
        seat.up_at = None;
        seat.starts.push(self.now);
        process.ready_at = self.now + self.settings.random.u64(..1_000);
        self.last_change = process.ready_at;
        seat.process = Some(process);
    }

    fn end_drain(&mut self, which: usize) {
        let now = self.now;
        let is_cancelled = self.seats[which].cancel_at.is_some_and(|at| now >= at);
        let Some(process) = &mut self.seats[which].process else { return };
        let Some((since, ends)) = process.drain else { return };
        if ends {
            let owns = self.store.rows.values().filter_map(|row| row.owner);
            let owns = owns.map(|owner| owner.incarnation).any(|it| it == process.me.incarnation);
            if !owns || now >= since + 30_000 {
                self.crash(which);
                self.store.release(which);
            }
        } else if is_cancelled {
            process.drain = None;
            process.ready_at = now;
            self.last_change = now;
        }
    }

    fn tell(&mut self) {
        for (incarnation, partition, epoch) in std::mem::take(&mut self.settings.told) {
            let now = self.now;
            let seat = self.seats.iter_mut().find(|seat| {
                let process = seat.process.as_ref();
                process.is_some_and(|process| process.me.incarnation == incarnation)
                    && now >= seat.frozen_until
            });
            if let Some(process) = seat.and_then(|seat| seat.process.as_mut()) {
                process.start(now, partition, epoch, &mut self.settings);
            }
        }
    }

    /// Checks what one process did.
    fn check(&mut self, seat: usize, event: Event) -> Result<(), String> {
        let now = self.now;
        match event {
            Event::Took(partition) => {
                self.takes += 1;
                let Some(process) = &self.seats[seat].process else { return Ok(()) };
                let left = process.left.get(&partition);
                if let Some(left) = left.filter(|left| now < **left + 5_000) {
                    return Err(format!("at {now} {seat} took back {partition}, left at {left}"));
                }
            }
            Event::Leaves(partition, Some(to), age) => {
                if age > 3_000 {
                    return Err(format!("at {now} {partition} left by a view of {age} ms"));
                }
                if self.paused_since.is_some_and(|since| now > since + 4_000) {
                    return Err(format!("at {now} {partition} moved although moves are paused"));
                }
                if let Some(dead) = self.dead.get(&to).filter(|dead| now > **dead + 8_000) {
                    return Err(format!("at {now} {partition} moved to a node dead since {dead}"));
                }
                let ready_at = self.processes().find(|process| process.me.incarnation == to);
                let ready_at = ready_at.map_or(0, |process| process.ready_at);
                if now < ready_at + 10_000 {
                    return Err(format!("at {now} {partition} moved to a node new at {ready_at}"));
                }
            }
            Event::Moved(partition) => self.moves.push(partition),
            Event::Leaves(..) | Event::Left(_) => {}
        }
        Ok(())
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.seats.iter().filter_map(|seat| seat.process.as_ref())
    }

    pub(crate) fn load(&self, process: &Process) -> usize {
        let owners = self.store.rows.values().filter_map(|row| row.owner);
        owners.filter(|owner| owner.incarnation == process.me.incarnation).count()
    }

    /// The loads of all processes that are ready and not draining.
    pub(crate) fn loads(&self) -> Vec<usize> {
        let ready = self.processes().filter(|process| process.own.state == MemberState::Ready);
        ready.map(|process| self.load(process)).collect()
    }

    pub(crate) fn all_work(&self) -> bool {
        let works = |id| self.processes().any(|process| process.works_on(self.now, id));
        self.settings.partitions.iter().all(|id| works(*id))
    }

    /// Whether nothing is under way: no process starts or drains, no lease is left over, each row
    /// names a process, and all processes have seen the last change.
    pub(crate) fn is_settled(&self) -> bool {
        let owners: BTreeSet<_> = self.processes().map(|process| process.me.incarnation).collect();
        let is_quiet = |process: &Process| {
            let is_up = process.own.state == MemberState::Ready && self.now < process.valid_until;
            is_up && process.is_idle() && process.drain.is_none()
        };
        let waits = |seat: &Seat| seat.up_at.is_some() && seat.process.is_none();
        self.now >= self.last_change + 5_000
            && self.seats.iter().all(|seat| !waits(seat) && self.now >= seat.frozen_until)
            && self.processes().all(is_quiet)
            && self.store.living(self.now) == owners
            && self.settings.partitions.iter().all(|id| {
                let owner = self.store.row(*id).owner;
                owner.is_some_and(|owner| owners.contains(&owner.incarnation))
            })
    }

    /// Whether a node was started so often that it may count as flapping.
    pub(crate) fn may_flap(&self) -> bool {
        let recent =
            |seat: &Seat| seat.starts.iter().filter(|at| self.now - **at < MEMORY + 5_000).count();
        self.seats.iter().any(|seat| seat.process.is_some() && recent(seat) >= 3)
    }

    /// A move that would still help, if there is one.
    pub(crate) fn useful_move(&self) -> Option<String> {
        for from in self.processes() {
            for to in self.processes() {
                let (high, low) = (self.load(from), self.load(to));
                if high <= low + 1 {
                    continue;
                }
                let can_move = |id: &&PartitionId| {
                    let owner = self.store.row(**id).owner;
                    owner.is_some_and(|owner| owner.incarnation == from.me.incarnation)
                        && to.apps().contains(&id.app)
                        && !to.own.refused.contains(id)
                };
                if let Some(id) = self.settings.partitions.iter().find(can_move) {
                    return Some(format!("{id} of a node with {high} to one with {low}"));
                }
            }
        }
        None
    }

    /// The fewest moves that even out these loads.
    pub(crate) fn fewest_moves(&self) -> usize {
        let loads = self.loads();
        let total: usize = loads.iter().sum();
        let (low, high) = (total / loads.len(), total.div_ceil(loads.len()));
        let surplus: usize = loads.iter().map(|load| load.saturating_sub(high)).sum();
        let missing: usize = loads.iter().map(|load| low.saturating_sub(*load)).sum();
        surplus.max(missing)
    }
}
