//! The world of the simulation: time, faults, and the checks of the promises.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use ownership::{GiveUp, OwnerEpoch, OwnershipAnswer, OwnershipCall, OwnershipNotice, PartitionId};

use crate::{
    node::{LEASE, Node, RENEW_EVERY, Task, WORK, Work, at},
    store::Store,
};

/// A step of time, in milliseconds.
const STEP: u64 = 25;
/// Faults happen until this time.
const FAULTS: u64 = 40_000;
/// After the faults every partition works within this time.
const BOUND: u64 = 12_000;
/// The longest pause before the restart of a partition that failed.
const RESTART_PAUSE: u64 = 60_000;
/// A call without an answer is given up after this time.
const CALL_TIMEOUT: u64 = 1_000;

/// A mistake of the host or of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The leases are read before the rows.
    LeasesBeforeRows,
    /// The rows are read with a plain read before a start.
    OutdatedRows,
    /// The end of a partition is reported while the partition still sends.
    ReportedTooEarly,
    /// A lease counts from the answer to its renewal.
    LeaseFromAnswer,
    /// A change that is refused is answered as made.
    RefusedAsMade,
}

impl Mistake {
    pub(crate) const ALL: [Mistake; 5] = [
        Mistake::LeasesBeforeRows,
        Mistake::OutdatedRows,
        Mistake::ReportedTooEarly,
        Mistake::LeaseFromAnswer,
        Mistake::RefusedAsMade,
    ];
}

#[derive(Debug)]
pub(crate) struct World {
    random: fastrand::Rng,
    mistake: Option<Mistake>,
    now: u64,
    store: Store,
    nodes: Vec<Node>,
    partitions: Vec<PartitionId>,
    /// Changes that are under way although their sender has given them up.
    late: Vec<(u64, OwnershipCall)>,
    /// The share of calls that are slow or have no answer, in percent.
    trouble: u32,
    /// The partitions whose task failed.
    failed: BTreeSet<PartitionId>,
    /// The epoch of the last start of each partition.
    started: BTreeMap<PartitionId, OwnerEpoch>,
    starts: u64,
    hand_overs: u64,
    incarnations: u128,
    digest: DefaultHasher,
}

impl World {
    pub(crate) fn new(seed: u64, mistake: Option<Mistake>) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.usize(2..=4);
        let count = random.u16(1..=5);
        let trouble = [0, 3, 15][random.usize(..3)];
        let node = |seat| Node { seat, up_at: 0, frozen_until: 0, process: None };
        World {
            random,
            mistake,
            now: 0,
            store: Store::default(),
            nodes: (0..nodes).map(node).collect(),
            partitions: (0..count).map(|partition| PartitionId { app: 1, partition }).collect(),
            late: Vec::new(),
            trouble,
            failed: BTreeSet::new(),
            started: BTreeMap::new(),
            starts: 0,
            hand_overs: 0,
            incarnations: 0,
            digest: DefaultHasher::new(),
        }
    }

    pub(crate) fn starts(&self) -> u64 {
        self.starts
    }

    pub(crate) fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    pub(crate) fn run(mut self) -> Result<World, String> {
        while self.now < FAULTS + BOUND {
            if self.now >= FAULTS {
                self.trouble = 0;
            }
            self.step()?;
        }
        // A partition that failed may have to wait for its restart.
        while self.idle().any(|partition| self.failed.contains(&partition))
            && self.now < FAULTS + BOUND + RESTART_PAUSE
        {
            self.step()?;
        }
        if let Some(partition) = self.idle().next() {
            let row = self.store.row(partition);
            return Err(format!("at {} nobody works on {partition}: {row:?}", self.now));
        }
        Ok(self)
    }

    fn step(&mut self) -> Result<(), String> {
        self.land_late_changes();
        for node in 0..self.nodes.len() {
            self.run_node(node)?;
        }
        self.check_owners()?;
        self.now += STEP;
        Ok(())
    }

    /// The partitions that no node works on.
    fn idle(&self) -> impl Iterator<Item = PartitionId> {
        let sending: Vec<_> = self.nodes.iter().flat_map(|node| node.sending(self.now)).collect();
        let is_idle = move |id: &PartitionId| !sending.iter().any(|(sent, _)| sent == id);
        self.partitions.iter().copied().filter(is_idle)
    }

    /// At most one node may send writes for a partition.
    fn check_owners(&self) -> Result<(), String> {
        let mut owners = BTreeMap::new();
        for node in &self.nodes {
            for (partition, epoch) in node.sending(self.now) {
                if let Some(other) = owners.insert(partition, (node.seat, epoch)) {
                    return Err(format!(
                        "at {} two nodes work on {partition}: {other:?} and {:?}",
                        self.now,
                        (node.seat, epoch)
                    ));
                }
            }
        }
        Ok(())
    }

    fn land_late_changes(&mut self) {
        let now = self.now;
        let (due, later) = self.late.drain(..).partition(|(at, _)| *at <= now);
        self.late = later;
        let due: Vec<(u64, OwnershipCall)> = due;
        for (_, call) in due {
            if let OwnershipCall::Change(changes) = call {
                let _ = self.store.change(now, &changes);
            }
        }
    }

    fn run_node(&mut self, which: usize) -> Result<(), String> {
        let now = self.now;
        let has_faults = now < FAULTS;
        let node = &mut self.nodes[which];
        if node.is_frozen(now) {
            return Ok(());
        }
        if has_faults && self.random.u32(..800) == 0 {
            node.frozen_until = now + self.random.u64(..7_000);
            return Ok(());
        }
        if node.process.is_none() {
            if now >= node.up_at {
                self.incarnations += 1;
                let me = node.start(now, self.incarnations, &self.partitions);
                self.store.take_lease(which, me.incarnation, now + LEASE);
            }
            return Ok(());
        }
        let is_killed = has_faults && self.random.u32(..1_000) == 0;
        if is_killed || !self.renew(which) {
            self.end_process(which, is_killed);
            return Ok(());
        }
        self.wish(which);
        self.end_tasks(which);
        self.step_engine(which);
        self.take_notices(which)
    }

    /// Renews the lease when it is time; returns false if the lease is over.
    fn renew(&mut self, which: usize) -> bool {
        let (now, trouble) = (self.now, self.trouble);
        let Some(process) = &mut self.nodes[which].process else { return true };
        if now >= process.valid_until {
            return false;
        }
        if now < process.renew_at {
            return true;
        }
        process.renew_at = now + RENEW_EVERY;
        if self.random.u32(..100) < trouble * 2 {
            return true;
        }
        // The renewal reaches the store at once, and its answer comes a while later. The node
        // counts the lease from the sending.
        let is_there = self.store.renew(which, process.me.incarnation, now, now + LEASE);
        if is_there {
            let late = if self.mistake == Some(Mistake::LeaseFromAnswer) { 1_500 } else { 0 };
            process.valid_until = now + WORK + late;
        }
        is_there
    }

    fn end_process(&mut self, which: usize, is_killed: bool) {
        let node = &mut self.nodes[which];
        if let Some(process) = node.process.take()
            && let Work::Call { call, done_at, answer: None, .. } = process.work
        {
            self.late.push((done_at, call));
        }
        // A process that ends in order releases its lease; one that is killed may come back at
        // once.
        if !is_killed && self.random.bool() {
            self.store.release(which);
        }
        node.up_at = self.now + self.random.u64(..6_000);
    }

    /// The node wants to take and to give up partitions, even some that it cannot have.
    fn wish(&mut self, which: usize) {
        let has_faults = self.now < FAULTS;
        let others: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|node| node.process.as_ref())
            .map(|other| other.me)
            .collect();
        let Some(process) = &mut self.nodes[which].process else { return };
        if self.random.u8(..20) == 0 {
            let random = &mut self.random;
            let wanted: Vec<_> =
                self.partitions.iter().filter(|_| random.bool()).copied().collect();
            process.engine.want(wanted);
        }
        if has_faults && self.random.u8(..40) == 0 {
            let at = self.random.usize(..self.partitions.len());
            let to = self.random.usize(..=others.len());
            let to = others.get(to).copied().filter(|to| *to != process.me);
            if let Some(task) = process.tasks.get(&self.partitions[at]) {
                let (partition, epoch) = (self.partitions[at], task.epoch);
                let now = crate::node::at(self.now);
                process.engine.give_up(now, GiveUp { partition, epoch, to });
            }
        }
    }

    /// Ends the tasks that stop, and some that fail by themselves, and reports the ends.
    fn end_tasks(&mut self, which: usize) {
        let (now, random) = (self.now, &mut self.random);
        let Some(process) = &mut self.nodes[which].process else { return };
        for (partition, task) in &mut process.tasks {
            if now < FAULTS && task.stops_at.is_none() && random.u32(..2_000) == 0 {
                task.stops_at = Some(now);
                self.failed.insert(*partition);
            }
            let early = if self.mistake == Some(Mistake::ReportedTooEarly) { 400 } else { 0 };
            if task.stops_at.is_some_and(|at| now + early >= at) && !task.is_reported {
                task.is_reported = true;
                process.engine.ended(at(now), *partition, task.epoch, at(now), OwnerEpoch(0));
            }
        }
    }

    fn step_engine(&mut self, which: usize) {
        let (now, mistake) = (self.now, self.mistake);
        let Some(process) = &mut self.nodes[which].process else { return };
        let answer = match &mut process.work {
            Work::Wait => OwnershipAnswer::None,
            Work::Call { call, sent, done_at, answer_at, answer, is_lost } => {
                if *call == OwnershipCall::ReadRows
                    && now < *done_at
                    && process.leases_before.is_none()
                {
                    process.leases_before = Some(self.store.living(now));
                }
                if now >= *done_at && answer.is_none() {
                    *answer =
                        Some(answer_to(&mut self.store, call, now, mistake, &mut self.random));
                }
                let writes = matches!(call, OwnershipCall::Change(_));
                let is_late = now >= *sent + CALL_TIMEOUT;
                if !is_late && (now < *answer_at || answer.is_none()) {
                    return;
                }
                if answer.is_none() {
                    self.late.push((*done_at, call.clone()));
                }
                match answer.take() {
                    Some(answer) if !*is_lost && !is_late => answer,
                    _ if writes => OwnershipAnswer::Unknown,
                    _ => OwnershipAnswer::Unavailable,
                }
            }
        };
        let answer = match (answer, mistake) {
            (OwnershipAnswer::Leases(_), Some(Mistake::LeasesBeforeRows)) => {
                OwnershipAnswer::Leases(process.leases_before.take().unwrap_or_default())
            }
            (answer, _) => answer,
        };
        let action = process.engine.next(at(now), answer);
        process.wait_or_call(action, now, &mut self.random, self.trouble);
    }

    fn take_notices(&mut self, which: usize) -> Result<(), String> {
        let now = self.now;
        let Some(process) = &mut self.nodes[which].process else { return Ok(()) };
        for notice in process.engine.notices() {
            (now, which, format!("{notice:?}")).hash(&mut self.digest);
            match notice {
                OwnershipNotice::Start(partition, epoch) => {
                    if let Some(before) = self.started.insert(partition, epoch)
                        && before >= epoch
                    {
                        return Err(format!("{partition} started at {epoch} after {before}"));
                    }
                    self.starts += 1;
                    let task = Task { epoch, stops_at: None, is_reported: false };
                    process.tasks.insert(partition, task);
                }
                OwnershipNotice::Stop(partition, _) => {
                    let ends = now + self.random.u64(..800);
                    let task = process.tasks.get_mut(&partition).ok_or("no task to stop")?;
                    task.stops_at.get_or_insert(ends);
                }
                OwnershipNotice::Left(partition) => {
                    let left = process.tasks.remove(&partition);
                    if left.is_none_or(|task| !task.is_reported) {
                        return Err(format!("{partition} left before its end"));
                    }
                    self.hand_overs += u64::from(self.store.row(partition).owner.is_some());
                }
                OwnershipNotice::Foreign(partition, row) => {
                    // A node whose lease is over may rightly learn this late.
                    let lives = self.store.living(now).contains(&process.me.incarnation);
                    if lives {
                        return Err(format!("at {now} {which} lost {partition} to {row:?}"));
                    }
                }
                OwnershipNotice::NoEpochLeft(partition) => {
                    return Err(format!("no epoch left for {partition}"));
                }
            }
        }
        Ok(())
    }
}

/// The answer of the store to a call that is done at this time.
fn answer_to(
    store: &mut Store,
    call: &OwnershipCall,
    now: u64,
    mistake: Option<Mistake>,
    random: &mut fastrand::Rng,
) -> OwnershipAnswer {
    match call {
        OwnershipCall::LookAtRows => OwnershipAnswer::Rows(store.outdated_rows(now, random)),
        OwnershipCall::ReadRows if mistake == Some(Mistake::OutdatedRows) => {
            OwnershipAnswer::Rows(store.outdated_rows(now, random))
        }
        OwnershipCall::ReadRows => OwnershipAnswer::Rows(store.rows()),
        OwnershipCall::ReadLeases => OwnershipAnswer::Leases(store.living(now)),
        OwnershipCall::Change(changes) => match store.change(now, changes) {
            Ok(()) => OwnershipAnswer::Changed,
            Err(_) if mistake == Some(Mistake::RefusedAsMade) => OwnershipAnswer::Changed,
            Err(there) => OwnershipAnswer::Refused(there),
        },
    }
}
