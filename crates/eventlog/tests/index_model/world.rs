//! A partition, its leaders, a storage, and faults between them. One seed is one history.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::{
    decide,
    defect::Defect,
    leader::Leader,
    plan::Plan,
    reader::Reader,
    rows::{Definition, IndexList, Key, LogEntry, Record, RecordId, Value, Version},
    store::{Outcome, Put, Row, RowOrder, Store, Write},
};

/// A promise that a history breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) of: &'static str,
    pub(crate) what: String,
}

pub(crate) type Checked<T = ()> = Result<T, Violation>;

pub(crate) fn violation<T>(of: &'static str, what: String) -> Checked<T> {
    Err(Violation { of, what })
}

/// What was done in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryReport {
    /// The histories of each shape of storage, for each level that they begin with.
    pub(crate) histories: [[u64; 3]; 4],
    pub(crate) leaders: u64,
    pub(crate) commands: u64,
    pub(crate) refused: u64,
    pub(crate) lists: u64,
    pub(crate) builds: u64,
    pub(crate) calls: u64,
    pub(crate) late: u64,
}

impl HistoryReport {
    pub(crate) fn add(&mut self, other: &HistoryReport) {
        let of_others = other.histories.iter().flatten();
        for (sum, more) in self.histories.iter_mut().flatten().zip(of_others) {
            *sum += more;
        }
        self.leaders += other.leaders;
        self.commands += other.commands;
        self.refused += other.refused;
        self.lists += other.lists;
        self.builds += other.builds;
        self.calls += other.calls;
        self.late += other.late;
    }
}

/// What the sender of a call learns.
pub(crate) enum Sent {
    Answered(Outcome),
    /// The call has no answer. Its sender sends it again.
    Unanswered,
    /// The process of the sender has ended.
    Crashed,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) defect: Option<Defect>,
    pub(crate) store: Store,
    /// The writes without an answer that have not landed yet.
    pub(crate) pool: Vec<Write>,
    pub(crate) leader: Option<Leader>,
    pub(crate) reader: Option<Reader>,
    pub(crate) epoch: u32,
    /// The epochs before this one may be of level 2, whatever the level is now.
    pub(crate) stray_before: u32,
    /// The list of indexes that each node has read when it started.
    pub(crate) list_of_node: [IndexList; 2],
    /// The entries of the log whose commands were answered.
    pub(crate) acknowledged: Vec<LogEntry>,
    /// The records when no command was under way.
    pub(crate) settled: BTreeMap<RecordId, Record>,
    /// The indexes with rows of another program. Only a new number helps.
    pub(crate) tainted: BTreeSet<u32>,
    /// The damaged row, with what it held before.
    pub(crate) damaged: Option<(Key, Option<Row>)>,
    pub(crate) backup: Option<(Store, Vec<LogEntry>, BTreeSet<u32>)>,
    /// Whether the unique field was complete, and nothing has made it unusable since then.
    pub(crate) is_promised: bool,
    pub(crate) is_calm: bool,
    /// The writes of the storage when lists were judged last.
    pub(crate) judged_writes: u64,
    pub(crate) report: HistoryReport,
    /// The steps of the history, if they are wanted.
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, defect: Option<Defect>) -> World {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::of(&mut rng, defect);
        let mut store = Store::default();
        store.expired_rows_reject = plan.expired_rows_reject;
        let mut world = World {
            rng,
            plan,
            defect,
            store,
            pool: Vec::new(),
            leader: None,
            reader: None,
            epoch: 0,
            stray_before: 0,
            list_of_node: Default::default(),
            acknowledged: Vec::new(),
            settled: BTreeMap::new(),
            tainted: BTreeSet::new(),
            damaged: None,
            backup: None,
            is_promised: false,
            is_calm: false,
            judged_writes: 0,
            report: HistoryReport::default(),
            trace: None,
        };
        if !plan.deploys_later {
            world.declare();
        }
        world.list_of_node = [world.store.list(), world.store.list()];
        world
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// True in this many of a thousand cases, while faults happen.
    pub(crate) fn chance(&mut self, of_thousand: u32) -> bool {
        !self.is_calm && self.rng.u32(0..1000) < of_thousand
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    /// Adds the definitions to the stored list, as the start of a node does whose program declares
    /// them.
    pub(crate) fn declare(&mut self) {
        let mut list = self.store.list();
        decide::declare(&mut list, &Definition::ALL);
        if list != self.store.list() {
            self.note(|| format!("declares {list:?}"));
            self.store.force(Key::Deployment, Value::List(list));
        }
    }

    /// Whether a leader of level 2 may have written under an epoch.
    pub(crate) fn is_epoch_of_level_2(&self, epoch: u32) -> bool {
        self.plan.level == 2 || epoch < self.stray_before
    }

    /// Runs the history to its end.
    pub(crate) fn run(mut self) -> Checked<HistoryReport> {
        self.play()?;
        Ok(self.report)
    }

    /// Runs the history, and returns its steps and what came of it.
    pub(crate) fn traced(mut self) -> (Vec<String>, Checked<HistoryReport>) {
        self.trace = Some(vec![format!("{:?}", self.plan)]);
        let played = self.play();
        (self.trace.take().unwrap_or_default(), played.map(|()| self.report))
    }

    fn play(&mut self) -> Checked {
        self.report.histories[self.plan.shape as usize][usize::from(self.plan.level)] += 1;
        for _ in 0..self.plan.steps {
            self.tick()?;
        }
        self.calm()
    }

    pub(crate) fn tick(&mut self) -> Checked {
        let lands = 4 + self.pool.len().min(6) as u32;
        let reads = lands + self.plan.reader_share;
        let builds = reads + self.build_share();
        match self.rng.u32(0..100) {
            at if at < 4 && !self.is_calm => self.fault()?,
            at if at < lands => self.land_one(),
            at if at < reads => self.step_reader()?,
            at if at < builds => self.step_build()?,
            _ if self.leader.is_none() => self.take_over(),
            _ => self.step_leader()?,
        }
        self.observe();
        match self.store.breach.take() {
            Some(breach) => violation("contract", breach),
            None => Ok(()),
        }
    }

    fn build_share(&self) -> u32 {
        if self.is_calm { 45 } else { self.plan.build_share }
    }

    /// Ends the faults, and lets everything that was begun end.
    fn calm(&mut self) -> Checked {
        self.is_calm = true;
        self.note(|| "-- calm --".to_owned());
        self.heal();
        self.replace_unusable();
        self.list_of_node = [self.store.list(), self.store.list()];
        self.take_over();
        self.free_duplicates()?;
        self.until_complete()?;
        let commands = self.report.commands + 12;
        for _ in 0..1500 {
            self.tick()?;
            if self.report.commands >= commands {
                break;
            }
        }
        let pool = std::mem::take(&mut self.pool);
        pool.into_iter().for_each(|write| self.land(write));
        self.until_complete()?;
        self.judge_at_rest()
    }

    /// Goes on until the leader is idle and every index that is on is complete.
    fn until_complete(&mut self) -> Checked {
        for _ in 0..6000 {
            if self.leader.as_ref().is_some_and(Leader::is_complete) {
                return Ok(());
            }
            self.tick()?;
        }
        let progress = self.leader.as_ref().map(|leader| leader.progress.clone());
        violation("liveness", format!("the builds do not end: {progress:?}"))
    }

    /// Sends a call, perhaps into a fault.
    pub(crate) fn send(&mut self, write: &Write) -> Sent {
        self.report.calls += 1;
        let plan = self.plan;
        if self.chance(plan.crash) {
            self.crash_at(write);
            return Sent::Crashed;
        }
        if plan.shape.lands_late() && self.chance(plan.late) {
            self.note(|| format!("late {write:?}"));
            self.delay(write);
            return Sent::Unanswered;
        }
        let outcome = self.land_now(write);
        if self.chance(plan.lost) {
            self.note(|| format!("lost answer {write:?}: {outcome:?}"));
            return Sent::Unanswered;
        }
        self.note(|| format!("write {write:?}: {outcome:?}"));
        Sent::Answered(outcome)
    }

    /// The process ends before, in or after a call.
    fn crash_at(&mut self, write: &Write) {
        let how = self.rng.u32(0..4);
        let parts = write.entries.len();
        match how {
            0 => self.note(|| format!("crash before {write:?}")),
            1 => {
                self.note(|| format!("crash after {write:?}"));
                self.land_now(write);
            }
            2 if parts > 1 && !self.plan.shape.writes_groups_atomically() => {
                let some = self.rng.usize(1..parts);
                let entries = write.entries[..some].to_vec();
                self.note(|| format!("crash after {some} of {write:?}"));
                self.land_now(&Write { entries, ..write.clone() });
            }
            _ => {
                self.note(|| format!("crash, and perhaps late: {write:?}"));
                self.delay(write);
            }
        }
    }

    fn land_now(&mut self, write: &Write) -> Outcome {
        let outcome = self.store.apply(write);
        self.observe();
        outcome
    }

    /// Keeps a write that its sender has given up. It may land at any time.
    pub(crate) fn delay(&mut self, write: &Write) {
        if self.plan.shape.lands_late() {
            self.report.late += 1;
            self.pool.push(write.clone());
        }
    }

    pub(crate) fn land(&mut self, write: Write) {
        let outcome = self.land_now(&write);
        self.note(|| format!("lands {write:?}: {outcome:?}"));
        if outcome == Outcome::Done && !write.unchecked.is_empty() {
            // A sender that does not look at its lease goes on.
            self.land_now(&Write::of(write.unchecked));
        }
    }

    fn land_one(&mut self) {
        if !self.pool.is_empty() && !self.is_calm {
            let at = self.rng.usize(0..self.pool.len());
            let write = self.pool.swap_remove(at);
            self.land(write);
        }
    }

    /// The order of a row that follows from an event.
    pub(crate) fn order_of(version: Version) -> RowOrder {
        (version.epoch, version.plog)
    }

    /// Ends the leader. What it was about to send may land later, because a thread may stand still
    /// after its look at the lease.
    pub(crate) fn end_leader(&mut self, may_stall: bool) {
        let Some(leader) = self.leader.take() else { return };
        self.reader = None;
        if may_stall && self.plan.shape.lands_late() {
            for write in leader.about_to_send() {
                if self.rng.bool() {
                    self.note(|| format!("stalls at {write:?}"));
                    self.delay(&write);
                }
            }
        }
        // At level 2 the lease lasts until the events have landed.
        if self.plan.level == 2 && !self.plan.stalls_at_level_2 {
            self.settle_events();
        }
    }

    /// Each write of events in the pool lands, or never will.
    fn settle_events(&mut self) {
        let (of_log, others) = self.pool.drain(..).partition(Write::is_of_log);
        self.pool = others;
        for write in of_log {
            if self.rng.bool() {
                self.land(write);
            }
        }
    }

    /// All writes of the pool but those of progress land, or never will.
    pub(crate) fn settle_rows(&mut self) {
        let is_progress =
            |write: &Write| write.puts.iter().any(|put| matches!(put.key, Key::Progress(_)));
        let (of_progress, others) = self.pool.drain(..).partition(is_progress);
        self.pool = of_progress;
        for write in others {
            if self.rng.bool() {
                self.land(write);
            }
        }
    }

    /// A leader begins under the next epoch.
    pub(crate) fn take_over(&mut self) {
        self.end_leader(true);
        self.epoch += 1;
        self.report.leaders += 1;
        let node = self.rng.usize(0..2);
        let declares = node == 0 || !self.plan.two_programs;
        if declares && !self.store.list().is_empty() {
            // Indexes that were dropped get new numbers at the next start of a node.
            self.declare();
        }
        if self.rng.u32(0..3) == 0 {
            self.list_of_node[node] = self.store.list();
        }
        let epoch = self.epoch;
        self.note(|| format!("node {node} takes over, epoch {epoch}"));
        self.leader = Some(Leader::new(self.epoch, node, declares));
    }

    /// The row of a progress. Its order is above those of all former leaders.
    pub(crate) fn progress_put(&self, leader: &mut Leader, number: u32) -> Put {
        leader.progress_writes += 1;
        let progress = leader.progress[&number];
        let order = (leader.epoch, leader.progress_writes);
        let put = Put::ordered(Key::Progress(number), Value::Progress(progress), order);
        match self.has(Defect::PlainProgress) {
            true => Put { order: None, ..put },
            false => put,
        }
    }
}
