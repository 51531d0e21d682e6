//! A history of one partition: leaders that come and go, clients, a database with all kinds of
//! faults, and the checks at the end.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU16,
    sync::Arc,
    time::Duration,
};

use clock::{Clock, ManualClock};
use eventlog::{AppRow, Epoch, Fence, TrustLevel};
use futures::FutureExt;
use istorage::KeyspaceName;
use processor::{Command, Done, PartitionEnd, Refused, Status};
use shop::{
    AnswerLedger, CheckOptions, ShopDatabase, ShopNode, TestFence, check_with, create_workspace,
};
use tokio::task::JoinHandle;

use crate::{
    call_turns::{Dice, Idle},
    clients::{Knowledge, PendingCommand, SentCommand},
    database::{Database, NodeDriver},
    defects::Defect,
    earlier_events, obstacles,
    plan::Plan,
    readers::{Readers, Reading, check_applied},
};

pub(crate) const PARTITION: u16 = 1;
const CLIENTS: usize = 4;

/// The workspace of the last command. It is in the same partition as those of the clients.
const LAST_WORKSPACE: u64 = 41;
const READERS: usize = 2;

/// The time that passes while work waits, and the number of such times after which the work counts
/// as stuck.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_WAIT: u32 = 100_000;

/// The steps after which a beginning that nothing moves is given up, and the tries of its client.
const STEPS_OF_BEGINNING: u32 = 200;
const TRIES_OF_BEGINNING: u32 = 3;

/// The result of a history.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryReport {
    /// A hash of all steps, and of everything that is stored at the end.
    pub(crate) digest: u64,
    pub(crate) schedules: u64,
    pub(crate) done: usize,
    /// The number of reads that were answered.
    pub(crate) read: usize,
    /// The numbers of logs and of lists that were read to their ends.
    pub(crate) logs: usize,
    pub(crate) lists: usize,
    pub(crate) events: usize,
    pub(crate) leaders: u64,
    /// The number of rows that were in the place of a new one at the end.
    pub(crate) obstacles: u64,
    /// The number of calls of the storage, and of those where rows are put and read back.
    pub(crate) calls: u64,
    pub(crate) calls_with_reading_back: u64,
    /// The number of conditional writes of rows that were put and read back.
    pub(crate) odd_writes: u64,
}

impl HistoryReport {
    /// Adds the result of another history.
    pub(crate) fn add(&mut self, other: &HistoryReport) {
        self.schedules += other.schedules;
        self.done += other.done;
        self.read += other.read;
        self.logs += other.logs;
        self.lists += other.lists;
        self.events += other.events;
        self.leaders += other.leaders;
        self.calls += other.calls;
        self.obstacles += other.obstacles;
        self.calls_with_reading_back += other.calls_with_reading_back;
        self.odd_writes += other.odd_writes;
    }
}

struct Leader {
    epoch: u64,
    node: Arc<ShopNode>,
    stops: Option<JoinHandle<PartitionEnd>>,
}

pub(crate) struct History {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    manual: ManualClock,
    pub(crate) clock: Clock,
    idle: Idle,
    pub(crate) database: Arc<Database>,
    /// The shop database without any faults.
    pub(crate) shop_db: ShopDatabase,
    /// The same database, for checks: their reads change nothing.
    observed: ShopDatabase,
    /// The running leaders. Only the last one really leads: the others have not noticed their end
    /// yet.
    leaders: Vec<Leader>,
    pub(crate) epochs: u64,
    clients: [Option<PendingCommand>; CLIENTS],
    knowledge: Knowledge,
    ledger: AnswerLedger,
    reading: [Option<Reading>; READERS],
    readers: Readers,
    digest: DefaultHasher,
    is_verbose: bool,
}

/// Runs the history of a seed. With `tell`, prints its steps.
///
/// # Panics
/// If something is not as it must be.
pub(crate) fn run(seed: u64, defect: Option<Defect>, is_verbose: bool) -> HistoryReport {
    let (runtime, idle) = Idle::runtime();
    runtime.block_on(Box::pin(async {
        let mut history = History::new(seed, defect, idle, is_verbose).await;
        if history.plan.begins_late {
            history.begin_late().await;
        }
        for _ in 0..history.plan.steps {
            history.step().await;
        }
        history.end().await
    }))
}

impl History {
    async fn new(seed: u64, defect: Option<Defect>, idle: Idle, is_verbose: bool) -> History {
        let (dice, manual) = (Dice::of(seed), ManualClock::new(0));
        let (plan, clock) = (Plan::of(seed, &dice, defect), manual.clock());
        let defect = defect.filter(|defect| *defect != Defect::TwoLead);
        let database = Database::new(clock.clone(), dice.number(), &plan, defect);
        let shop_db = open(Arc::clone(&database.inner), &clock).await;
        let observed = open(Arc::clone(&database.observed), &clock).await;
        let mut history = History {
            plan,
            dice,
            manual,
            clock,
            idle,
            database,
            shop_db,
            observed,
            leaders: Vec::new(),
            epochs: 0,
            clients: Default::default(),
            knowledge: Knowledge::of(defect),
            ledger: AnswerLedger::default(),
            reading: Default::default(),
            readers: Readers::default(),
            digest: DefaultHasher::new(),
            is_verbose,
        };
        if is_verbose {
            println!("{:#?}", history.plan);
        }
        if let Some(left) = history.plan.past {
            let History { shop_db, plan, ledger, .. } = &mut history;
            earlier_events::write(shop_db, PARTITION, &plan.settings, left, ledger).await;
            history.epochs = 1;
            // A leader recovers these events, and stores their numbers.
            history.clean_lead().await;
        }
        history
    }

    /// Leads without any faults, and stops.
    async fn clean_lead(&mut self) {
        self.epochs += 1;
        let fence = TestFence::of(self.epochs);
        let node = self.shop_db.node_of(PARTITION, fence, self.plan.settings.clone());
        self.in_time(node.ready()).await;
        assert_eq!(self.in_time(node.stop()).await, PartitionEnd::Stopped);
    }

    /// Leads without any faults, does a command, and stops.
    ///
    /// The event of that command ends the log. Without it an event of a former leader, which only
    /// one replica has, may stand past the end that this leader knows. One read of the log finds
    /// it, and the next one does not.
    async fn last_lead(&mut self) {
        self.epochs += 1;
        let fence = TestFence::of(self.epochs);
        let node = self.shop_db.node_of(PARTITION, fence, self.plan.settings.clone());
        loop {
            self.in_time(node.ready()).await;
            let command = create_workspace(LAST_WORKSPACE, self.shop_db.soon());
            let command = Command { request: "the last".to_owned(), ..command };
            self.ledger.sent("the last");
            let answered = self.in_time(node.commands.run(command)).await;
            self.ledger.note("the last", &answered);
            match answered {
                Ok(_) => break,
                // The log has an event that was not read before.
                Err(Refused::Busy(_)) => {}
                Err(refused) => panic!("the last command was refused: {refused}"),
            }
        }
        assert_eq!(self.in_time(node.stop()).await, PartitionEnd::Stopped);
    }

    pub(crate) fn note(&mut self, what: &str) {
        what.hash(&mut self.digest);
        self.print(|| what.to_owned());
    }

    fn print(&self, what: impl FnOnce() -> String) {
        if self.is_verbose {
            println!("{}", what());
        }
    }

    /// Begins with a group that makes a workspace, and writes into it. The write of the group gets
    /// no answer, and its leader is killed. The client sends the second command again, which is
    /// the first command of the next leader. Then the write may land.
    ///
    /// Other histories seldom have all of this: the next leader mostly writes an event first.
    async fn begin_late(&mut self) {
        self.lead().await;
        self.until(History::is_ready).await;
        self.database.make_next_write_late();
        self.knowledge.pair().into_iter().for_each(|sent| self.send_command(sent));
        self.until(|history| !history.database.awaits_late_write()).await;
        self.kill(0).await;
        self.rest().await;
        self.lead().await;
        for _ in 0..TRIES_OF_BEGINNING {
            self.until(History::is_ready).await;
            let Some(sent) = self.knowledge.take_unsettled() else { break };
            self.send_command(sent);
            self.until(|history| history.clients.iter().all(Option::is_none)).await;
        }
        if self.dice.one_in(2) {
            let landed = self.database.land_late_writes().await;
            self.note(&format!("{landed} land"));
        }
    }

    fn is_ready(&self) -> bool {
        self.leaders.last().is_some_and(|last| last.node.commands.status() == Status::Ready)
    }

    /// Lets calls go, and time pass, until something has happened or the steps are over.
    async fn until(&mut self, has_happened: impl Fn(&History) -> bool) {
        for _ in 0..STEPS_OF_BEGINNING {
            if has_happened(self) {
                return;
            }
            match self.database.turns.waiting() {
                0 => self.pass(PAUSE).await,
                waiting => self.let_go(self.dice.below(waiting as u64)),
            }
            self.rest().await;
        }
    }

    fn let_go(&mut self, which: u64) {
        let (who, what) = self.database.turns.let_go(which);
        self.note(&format!("{who} {what}"));
    }

    async fn step(&mut self) {
        if self.leaders.is_empty() {
            self.lead().await;
        }
        let waiting = self.database.turns.waiting();
        match self.dice.below(100) {
            0..60 if waiting > 0 => {
                let draws = if self.plan.old_wait { 4 } else { 1 };
                let which = (0..draws).map(|_| self.dice.below(waiting as u64)).max().unwrap();
                self.let_go(which);
            }
            0..74 => self.send(),
            74..80 => self.read(),
            80..91 => {
                let by = Duration::from_nanos(1 + self.dice.below(40_000_000));
                return self.pass(by).await;
            }
            91..93 => self.give_up(),
            93..95 => {
                let landed = self.database.land_late_writes().await;
                self.note(&format!("{landed} land"));
            }
            95 | 96 if self.plan.has_repairs && self.plan.settings.level == TrustLevel::Zero => {
                self.repair().await;
            }
            _ if self.dice.one_in(self.plan.calm) => self.change().await,
            _ => self.send(),
        }
        self.rest().await;
    }

    /// Lets everything run as far as it can, and takes the answers.
    async fn rest(&mut self) {
        self.idle.reached().await;
        let newest = self.epochs;
        for client in 0..CLIENTS {
            let Some(flight) = &mut self.clients[client] else { continue };
            let Some(answered) = (&mut flight.task).now_or_never() else { continue };
            let flight = self.clients[client].take().unwrap();
            self.hear(flight, &answered.unwrap(), newest).await;
        }
        self.hear_readers();
        for Leader { node, .. } in &self.leaders {
            let status = node.commands.status();
            let is_violated = matches!(status, Status::Violation(_));
            assert!(self.plan.may_lose || !is_violated, "{status:?}");
        }
        if let Some(Leader { stops: Some(stops), .. }) = self.leaders.last_mut()
            && let Some(ended) = stops.now_or_never()
        {
            self.note(&format!("{ended:?}"));
            self.kill(self.leaders.len() - 1).await;
        }
    }

    async fn hear(
        &mut self,
        flight: PendingCommand,
        answered: &Result<Done, Refused>,
        newest: u64,
    ) {
        let PendingCommand { sent, epoch, fence, .. } = flight;
        self.print(|| format!("{}: {answered:?}", sent.request));
        // The reason of a refusal depends on the task that first notices the deadline, so the
        // reason is not part of the digest.
        let done = answered.as_ref().ok().map(|done| (done.plog, done.wlog));
        (&sent.request, done).hash(&mut self.digest);
        match answered {
            Ok(done) => {
                if !self.plan.may_lose {
                    let written = check_applied(&self.observed, sent.ws(), done).await;
                    // The next leader finds only later the events of a leader that has not noticed
                    // its end yet.
                    if epoch == newest {
                        self.readers.acknowledged(sent.ws(), done, written.into_iter());
                    }
                }
                self.knowledge.learn(&sent, done);
            }
            Err(Refused::Rejected(why)) if !self.plan.may_lose => {
                self.knowledge.learn_why(&sent, why);
            }
            Err(Refused::Unknown(_)) => self.knowledge.learn_unsettled(&sent, true),
            Err(Refused::Busy(_)) => self.knowledge.learn_unsettled(&sent, false),
            Err(_) => {}
        }
        // An answer from before the loss of the leadership would have been taken at that time. So
        // the node gave this answer afterwards, and it must not do that without its leadership.
        let is_reported = matches!(answered, Ok(_) | Err(Refused::Rejected(_)));
        assert!(
            !is_reported || fence.lost().is_none(),
            "{} without leadership: {answered:?}",
            sent.request
        );
        // The answer comes from a leader that has lost its leadership, or repeats the answer of
        // such a leader. The event of the command may be lost.
        let is_repeated = matches!(answered, Ok(done) if done.is_repeated);
        if self.plan.may_lose && (epoch != newest || is_repeated) {
            self.ledger.open(&sent.request);
        } else {
            self.ledger.note(&sent.request, answered);
            // A leader that has not noticed its end rejects by the events that it knows. The next
            // leader may have an earlier copy under way.
            if epoch != newest {
                self.ledger.open(&sent.request);
            }
        }
    }

    fn send(&mut self) {
        if self.clients.iter().all(Option::is_some) {
            return;
        }
        let sent = self.knowledge.next(&self.dice);
        self.send_command(sent);
        // Both commands are then in one group.
        if self.knowledge.follows() {
            self.send();
        }
    }

    /// Lets a client that waits for nothing send a command.
    fn send_command(&mut self, sent: SentCommand) {
        let free = (0..CLIENTS).find(|client| self.clients[*client].is_none());
        let Some(client) = free else { return };
        let anybody = self.dice.of_slice(&self.leaders);
        let leader = anybody.filter(|_| self.dice.one_in(4)).or(self.leaders.last());
        let Some(Leader { epoch, node, .. }) = leader else { return };
        // No two deadlines are equal, so their order follows from the seed.
        let patience = Duration::from_millis(10 + self.dice.below(2_000));
        let deadline =
            self.clock.now() + patience + Duration::from_nanos(self.knowledge.requests());
        let (epoch, fence, commands) = (*epoch, Arc::clone(&node.fence), node.commands.clone());
        let command = sent.command(deadline);
        let what = format!("{client} asks {epoch} for {command:?}");
        #[expect(clippy::disallowed_methods, reason = "clients are heard one by one, or give up")]
        let task = tokio::spawn(async move { commands.run(command).await });
        self.note(&what);
        self.ledger.sent(&sent.request);
        self.clients[client] = Some(PendingCommand { sent, deadline, epoch, fence, task });
    }

    /// Lets a client read. If the history may lose events, clients know of no log and nothing is
    /// read, because nothing is promised.
    fn read(&mut self) {
        let Some(free) = (0..READERS).find(|reader| self.reading[*reader].is_none()) else {
            return;
        };
        let anybody = self.dice.of_slice(&self.leaders);
        let leader = anybody.filter(|_| self.dice.one_in(4)).or(self.leaders.last());
        let Some(Leader { epoch, node, .. }) = leader else { return };
        let reading = self.readers.begin(&self.dice, node, *epoch, self.epochs);
        if let Some(Reading { wanted, epoch, .. }) = &reading {
            self.note(&format!("somebody reads {wanted:?} of {epoch}"));
        }
        self.reading[free] = reading;
    }

    fn hear_readers(&mut self) {
        for reader in 0..READERS {
            let Some(reading) = &mut self.reading[reader] else { continue };
            let Some(found) = (&mut reading.task).now_or_never() else { continue };
            let reading = self.reading[reader].take().unwrap();
            let found = found.unwrap();
            self.print(|| format!("{:?} of {}: {found:?}", reading.wanted, reading.epoch));
            if let Some(found) = found {
                let is_lost = reading.node.fence.lost();
                assert_eq!(is_lost, None, "{:?} was answered without leadership", reading.wanted);
                self.readers.hear(&reading, found, reading.epoch == self.epochs);
            }
        }
    }

    fn give_up(&mut self) {
        let client = usize::try_from(self.dice.below(CLIENTS as u64)).unwrap();
        if let Some(PendingCommand { sent, task, .. }) = self.clients[client].take() {
            task.abort();
            self.note(&format!("{} is given up", sent.request));
            self.ledger.open(&sent.request);
        }
    }

    /// Lets time pass. Clients at their deadlines are told one by one.
    async fn pass(&mut self, by: Duration) {
        let until = self.clock.now() + by;
        self.note(&format!("{by:?} pass"));
        const MOMENT: Duration = Duration::from_nanos(1);
        loop {
            let now = self.clock.now();
            let deadlines = self.clients.iter().flatten().map(|flight| flight.deadline);
            let next = deadlines.filter(|next| *next > now && *next <= until).min();
            self.manual.advance(next.map_or(until, |next| next - MOMENT) - now);
            self.rest().await;
            if next.is_none() {
                return;
            }
            self.manual.advance(MOMENT);
            self.rest().await;
        }
    }

    /// Starts another leader, or ends one.
    async fn change(&mut self) {
        let last = self.leaders.len() - 1;
        match self.dice.below(8) {
            0 | 1 => self.kill(last).await,
            2 if self.leaders[last].stops.is_none() => {
                let node = Arc::clone(&self.leaders[last].node);
                #[expect(clippy::disallowed_methods, reason = "the leader owns it")]
                let stops = tokio::spawn(async move { node.stop().await });
                self.leaders[last].stops = Some(stops);
                let epoch = self.leaders[last].epoch;
                self.note(&format!("{epoch} is stopped"));
            }
            3..6 if self.plan.overlaps => {
                if self.dice.one_in(2) {
                    self.leaders[last].node.fence.lose();
                }
                self.lead().await;
            }
            6 if last > 0 => {
                let which = usize::try_from(self.dice.below(last as u64)).unwrap();
                self.leaders[which].node.fence.lose();
                let epoch = self.leaders[which].epoch;
                self.note(&format!("{epoch} notices"));
            }
            7 if last > 0 => self.kill(0).await,
            _ => {}
        }
    }

    /// Lets an operator write the row of a record again. At level 0 this may happen at any moment.
    /// At the other levels it may happen only while no node works.
    async fn repair(&mut self) {
        if let Some((ws, id)) = self.knowledge.record(&self.dice) {
            let was_there = self.database.repair(&AppRow::Record(ws, id).key()).await;
            self.note(&format!("record {} of {ws:?} is repaired: {was_there}", id.0));
        }
    }

    async fn lead(&mut self) {
        let Plan { has_repairs, may_lose, .. } = self.plan;
        if self.leaders.is_empty() && has_repairs && !may_lose && self.dice.one_in(2) {
            let landed = self.database.land_late_writes().await;
            self.note(&format!("{landed} land while no node works"));
            self.repair().await;
        }
        if !self.plan.lease_left.is_zero() {
            self.pass(self.plan.lease_left).await;
            let landed = self.database.land_late_writes().await;
            self.note(&format!("{landed} land in time"));
        }
        self.epochs += 1;
        let driver = NodeDriver::new(&self.database, self.epochs);
        let shop_db = open(Arc::new(driver.clone()), &self.clock).await;
        driver.works();
        let fence = TestFence::of(self.epochs);
        let node = Arc::new(shop_db.node_of(PARTITION, fence, self.plan.settings.clone()));
        self.note(&format!("{} leads", self.epochs));
        self.leaders.push(Leader { epoch: self.epochs, node, stops: None });
    }

    async fn kill(&mut self, which: usize) {
        let Leader { epoch, node, stops } = self.leaders.remove(which);
        self.note(&format!("{epoch} is killed"));
        if let Some(stops) = stops {
            stops.abort();
        }
        node.kill();
        // A killed leader gives no answers.
        for reading in &mut self.reading {
            reading.take_if(|reading| reading.epoch == epoch);
        }
        self.idle.reached().await;
    }

    /// Ends all faults, and checks everything that is stored.
    async fn end(mut self) -> HistoryReport {
        for client in 0..CLIENTS {
            if let Some(PendingCommand { sent, task, .. }) = self.clients[client].take() {
                task.abort();
                self.ledger.open(&sent.request);
            }
        }
        while !self.leaders.is_empty() {
            self.kill(0).await;
        }
        self.database.turns.open();
        self.idle.reached().await;
        let _landed = self.database.land_late_writes().await;
        let (leaders, calls) = (self.epochs, self.database.turns.sent());
        let odd_writes = self.database.turns.conditional();
        let reads_back = self.plan.reads_back();
        self.last_lead().await;
        let options = CheckOptions {
            in_view: self.plan.settings.in_view,
            since: self.plan.may_lose.then_some(Epoch(self.epochs)),
            has_lost_puts: self.plan.settings.level == TrustLevel::Two
                && self.plan.replicas_lose_one_in.is_some(),
        };
        let state = check_with(&self.observed, PARTITION, &self.ledger, options).await;
        self.readers.check(&state);
        for singleton in &self.knowledge.singletons {
            assert!(state.records.contains_key(singleton), "{singleton:?} was said to be there");
        }
        format!("{:?}{:?}{:?}", state.events, state.wlogs, state.numbers).hash(&mut self.digest);
        let obstacles = match self.plan.has_obstacle {
            true => obstacles::meet(&mut self, &state).await,
            false => 0,
        };
        HistoryReport {
            digest: self.digest.finish(),
            schedules: 1,
            done: self.ledger.done(),
            read: self.readers.answered,
            logs: self.readers.logs,
            lists: self.readers.lists,
            events: state.events.len(),
            leaders,
            calls,
            obstacles,
            calls_with_reading_back: if reads_back { calls } else { 0 },
            odd_writes: if reads_back { odd_writes } else { 0 },
        }
    }

    /// Does some work, and lets time pass whenever the work cannot go on otherwise.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        in_time(&self.idle, &self.manual, work).await
    }
}

/// Does some work, and lets time pass whenever the work cannot go on otherwise.
pub(crate) async fn in_time<T>(
    idle: &Idle,
    manual: &ManualClock,
    work: impl Future<Output = T>,
) -> T {
    let time = async {
        for _ in 0..LONGEST_WAIT {
            idle.reached().await;
            manual.advance(PAUSE);
        }
        panic!("the work does not end");
    };
    tokio::select! {
        biased;
        done = work => done,
        () = time => unreachable!("it panics"),
    }
}

pub(crate) async fn open(driver: Arc<dyn istorage::StorageDriver>, clock: &Clock) -> ShopDatabase {
    let keyspace = KeyspaceName::new("simulated").unwrap();
    ShopDatabase::new(driver, keyspace, NonZeroU16::new(10).unwrap(), clock.clone()).await
}
