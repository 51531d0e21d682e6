//! A partition with earlier events, and commands for it: one scene for each thing that can go
//! wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, Mutex},
    time::Duration,
};

use eventlog::{Epoch, Offset, RecordId, TrustLevel};
use futures::{
    FutureExt, StreamExt,
    future::{join, join_all},
    stream,
};
use istorage::SharedStorage;
use processor::{Command, Done, IdempotencyKey, PartitionEnd, Refused};
use shop::{
    AnswerLedger, Batch, CheckOptions, NarrowStorage, ShopNode, ShopNodeSettings, StallPoint,
    StallingStorage, WriteSteps, article, bill, check_with, create_workspace, cud, update,
};
use tck::trial::is_long;

use crate::fixture::{CommandsFixture, PARTITIONS, named};

/// The number of scenes that are played at once.
const SIDE_BY_SIDE: usize = 8;

/// How the rows of an application are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteSetup {
    pub(crate) level: TrustLevel,
    /// The steps of writing a group. `None` leaves the storage as it is.
    pub(crate) narrow: Option<WriteSteps>,
}

pub(crate) const LEVELS: [TrustLevel; 3] = [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two];

/// All ways to try. Steps are only tried where a call costs little.
pub(crate) fn write_setups(fixture: &CommandsFixture) -> Vec<WriteSetup> {
    let narrow: &[_] = match fixture.is_embedded {
        true => &[
            None,
            Some(WriteSteps::Of(3)),
            Some(WriteSteps::OneByOne(2)),
            Some(WriteSteps::BeyondAtomic(3)),
        ],
        false => &[None],
    };
    let at = |level| narrow.iter().map(move |narrow| WriteSetup { level, narrow: *narrow });
    LEVELS.into_iter().flat_map(at).collect()
}

/// The cases that are played: all where a call costs little. On a server a fixed third of them,
/// unless the long rounds are wanted.
pub(crate) fn sample<C>(fixture: &CommandsFixture, mut cases: Vec<C>) -> Vec<C> {
    if !fixture.is_embedded && !is_long() {
        fastrand::Rng::with_seed(1).shuffle(&mut cases);
        cases.truncate(cases.len().div_ceil(3));
    }
    cases
}

/// Plays a scene for each of the cases, each in a partition of its own, and names the case that
/// failed.
pub(crate) async fn play<C, F>(cases: Vec<C>, first: u16, scene: impl Fn(u16, C) -> F)
where
    C: std::fmt::Debug + Clone,
    F: Future<Output = ()>,
{
    let scenes = cases.into_iter().zip(first..).map(|(case, partition)| {
        let played = AssertUnwindSafe(Box::pin(scene(partition, case.clone()))).catch_unwind();
        async move {
            if let Err(panic) = played.await {
                eprintln!("the case that failed, in partition {partition}: {case:?}");
                resume_unwind(panic);
            }
        }
    });
    stream::iter(scenes).buffer_unordered(SIDE_BY_SIDE).collect::<()>().await;
}

/// A partition with two workspaces, and an article in the first one.
pub(crate) struct Scene<'s> {
    pub(crate) fixture: &'s CommandsFixture,
    pub(crate) partition: u16,
    pub(crate) setup: WriteSetup,
    /// The epoch below which level 2 wrote; 0 if it never did.
    pub(crate) stray_before: Epoch,
    pub(crate) ws: u64,
    pub(crate) other: u64,
    pub(crate) article: RecordId,
    answered: Mutex<AnswerNotes>,
}

#[derive(Default)]
struct AnswerNotes {
    asked: BTreeSet<String>,
    ledger: AnswerLedger,
    /// The last answer to each request.
    answers: BTreeMap<String, Result<Done, Refused>>,
}

impl<'s> Scene<'s> {
    pub(crate) async fn new(
        fixture: &'s CommandsFixture,
        partition: u16,
        setup: WriteSetup,
    ) -> Scene<'s> {
        let ws = u64::from(PARTITIONS) + u64::from(partition);
        let (other, answered) = (ws + u64::from(PARTITIONS), Mutex::default());
        let mut scene = Scene {
            fixture,
            partition,
            setup,
            stray_before: Epoch(0),
            ws,
            other,
            article: RecordId(0),
            answered,
        };
        let node = fixture.shop_db.node(partition, scene.settings(scene.storage()));
        node.ready().await;
        for (request, ws) in [("create", ws), ("create other", other)] {
            let command = create_workspace(ws, fixture.shop_db.soon());
            scene.run(&node, named(request, command)).await.unwrap();
        }
        let first = scene.command("first", ws, article("old"));
        scene.article = scene.run(&node, first).await.unwrap().answer.ids[0].1;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        scene
    }

    /// The storage as a node sees it, without faults.
    pub(crate) fn storage(&self) -> SharedStorage {
        let storage = Arc::clone(&self.fixture.shop_db.app.storage);
        match self.setup.narrow {
            Some(steps) => steps.of(storage),
            None => storage,
        }
    }

    /// The settings of a node on a storage. Numbers are in the application's keyspace, so that a
    /// fault of that storage also concerns the numbers.
    pub(crate) fn settings(&self, storage: SharedStorage) -> ShopNodeSettings {
        let mut settings = ShopNodeSettings::at(self.setup.level);
        settings.stray_before = self.stray_before;
        (settings.in_view, settings.storage) = (true, Some(storage));
        settings.partition.sequencer.flush_delay = Duration::ZERO;
        // All commands that a test sends together form one group, also on a slow machine.
        settings.partition.group_time = Duration::from_secs(60);
        settings
    }

    /// Starts the next leader, without faults, and waits until it is ready.
    pub(crate) async fn next(&self) -> ShopNode {
        self.next_at(self.setup.level).await
    }

    /// Starts the next leader at another level.
    pub(crate) async fn next_at(&self, level: TrustLevel) -> ShopNode {
        let settings = ShopNodeSettings { level, ..self.settings(self.storage()) };
        let node = self.fixture.shop_db.node(self.partition, settings);
        node.ready().await;
        node
    }

    /// Lets a leader write its first event, in a workspace. At level 2 the leader inserts its first
    /// events, and puts the later ones.
    pub(crate) async fn begin_work(&self, node: &ShopNode, ws: u64) {
        let request = format!("first of epoch {}", node.log.fence().epoch().0);
        self.run(node, self.command(&request, ws, article("first"))).await.unwrap();
    }

    pub(crate) fn command(&self, request: &str, ws: u64, rows: Batch) -> Command {
        named(request, cud(ws, rows, self.fixture.shop_db.soon()))
    }

    /// A command that may be sent again. The command makes a new article, and changes the old one.
    pub(crate) fn repeatable(&self) -> Command {
        let mut rows = article("new");
        rows.push(update(self.article, None, "repeatable"));
        let repeat = Some(IdempotencyKey::new("joe", b"key", b"body"));
        Command { idempotency_key: repeat, ..self.command("repeatable", self.ws, rows) }
    }

    /// Commands over two workspaces. One changes a record that another one makes, two are the same,
    /// and three change one record.
    pub(crate) fn group(&self) -> Vec<Command> {
        let new = RecordId(self.article.0 + 3);
        let mut twice = article("newest");
        twice.push(update(self.article, None, "twice"));
        vec![
            self.repeatable(),
            self.command("new", self.ws, vec![update(new, None, "newer")]),
            self.command("old", self.ws, vec![update(self.article, None, "newer")]),
            self.command("bill", self.other, bill("bill")),
            self.repeatable(),
            self.command("twice", self.ws, twice),
        ]
    }

    /// A command that changes the old article, and makes a new one. Two leaders side by side give
    /// the new records the same numbers.
    pub(crate) fn changes(&self, request: &str) -> Command {
        let mut rows = article(request);
        rows.push(update(self.article, None, request));
        self.command(request, self.ws, rows)
    }

    /// Sends a command until it is done. The command may be refused before, because of an event of
    /// another leader, or because the storage is not available.
    pub(crate) async fn until_done(&self, node: &ShopNode, command: impl Fn() -> Command) -> Done {
        loop {
            node.ready().await;
            match self.run(node, command()).await {
                Ok(done) => return done,
                Err(Refused::Busy(_)) => {}
                Err(refused) => panic!("{refused:?}"),
            }
        }
    }

    /// Waits until a leader that begins now would begin after this event.
    pub(crate) async fn until_stored(&self, plog: Offset) {
        let shop_db = &self.fixture.shop_db;
        let numbers =
            seqstorage::numbers_in_view(self.storage(), shop_db.clock.clone(), self.partition);
        while numbers.next_offset(self.partition, shop_db.soon()).await.unwrap() <= Some(plog.0) {
            shop_db.clock.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Sends a command, and notes the answer.
    pub(crate) async fn run(&self, node: &ShopNode, command: Command) -> Result<Done, Refused> {
        let request = command.request.clone();
        {
            let mut answered = self.answered.lock().unwrap();
            answered.asked.insert(request.clone());
            answered.ledger.sent(&request);
        }
        let answer = node.commands.run(command).await;
        let mut answered = self.answered.lock().unwrap();
        answered.ledger.note(&request, &answer);
        answered.answers.insert(request, answer.clone());
        answer
    }

    /// Sends commands so that they are one group. The first command is one that may be sent again:
    /// the rows that it needs are read before anything else. The others are sent during that read,
    /// so the calls of the group do not depend on how fast the commands are sent.
    pub(crate) async fn run_group(
        &self,
        node: &ShopNode,
        hold: &StallingStorage,
        commands: Vec<Command>,
    ) {
        hold.arm(StallPoint::Before(1));
        let mut commands = commands.into_iter();
        let first = join_all(commands.next().map(|command| self.run(node, command)));
        let others = async {
            hold.until_still().await;
            let sent = join_all(commands.map(|command| self.run(node, command)));
            // All other commands wait in the queue when the first one goes on.
            join(sent, async { hold.go_on() }).await;
        };
        join(first, others).await;
    }

    /// Changes the trust level. No node works at this moment. `last` is the epoch of the last
    /// leader.
    pub(crate) fn set_level(&mut self, level: TrustLevel, last: Epoch) {
        if self.setup.level == TrustLevel::Two {
            self.stray_before = Epoch(last.0 + 1);
        }
        self.setup.level = level;
    }

    /// Leaves the event of a command in the PLog, and nothing else of it. The event is in the PLog
    /// after this number of writes. Returns the epoch of the event.
    pub(crate) async fn leave_an_event(&self, command: Command, writes: usize) -> Epoch {
        let inner = Arc::clone(&self.fixture.shop_db.app.storage);
        let dies = StallingStorage::new(NarrowStorage::of(inner, 3, true));
        let mut settings = self.settings(Arc::new(dies.clone()));
        // Nothing else is written meanwhile.
        settings.partition.sequencer.flush_delay = Duration::from_secs(600);
        let node = self.fixture.shop_db.node(self.partition, settings);
        node.ready().await;
        dies.arm(StallPoint::AfterWrite(writes));
        tokio::select! {
            answer = self.run(&node, command) => panic!("the command was answered: {answer:?}"),
            () = dies.until_still() => {}
        }
        node.kill();
        node.log.fence().epoch()
    }

    /// Leaves events in the PLog, and applies nothing of them.
    pub(crate) async fn leave_a_tail(&self) {
        let dies = StallingStorage::new(NarrowStorage::of(
            Arc::clone(&self.fixture.shop_db.app.storage),
            3,
            true,
        ));
        let hold = StallingStorage::new(Arc::new(dies.clone()));
        let mut settings = self.settings(Arc::new(hold.clone()));
        // Nothing else is written meanwhile.
        settings.partition.sequencer.flush_delay = Duration::from_secs(600);
        let node = self.fixture.shop_db.node(self.partition, settings);
        node.ready().await;
        dies.arm(StallPoint::AfterWrite(2));
        tokio::select! {
            () = self.run_group(&node, &hold, self.group()) => panic!("a command was answered"),
            () = dies.until_still() => {}
        }
        node.kill();
    }

    /// The last answer to a request.
    pub(crate) fn answer(&self, request: &str) -> Option<Result<Done, Refused>> {
        self.answered.lock().unwrap().answers.get(request).cloned()
    }

    /// The offset after the last event that was acknowledged.
    pub(crate) fn end(&self) -> Offset {
        let answered = self.answered.lock().unwrap();
        let done = answered.answers.values().flatten().map(|done| done.plog.next());
        done.max().unwrap_or(Offset::FIRST)
    }

    /// Gives up the promises to these commands: their events may be lost.
    pub(crate) fn forget(&self, requests: impl IntoIterator<Item = &'static str>) {
        let mut answered = self.answered.lock().unwrap();
        for request in requests {
            answered.ledger.forget(request);
        }
    }

    /// Checks everything that is stored. The partition must be at rest.
    pub(crate) async fn check(&self, since: Option<Epoch>) {
        let ledger = {
            let mut answered = self.answered.lock().unwrap();
            let AnswerNotes { asked, mut ledger, answers } = std::mem::take(&mut *answered);
            for request in asked.iter().filter(|asked| !answers.contains_key(*asked)) {
                ledger.open(request);
            }
            ledger
        };
        let options = CheckOptions { in_view: true, since, has_lost_puts: false };
        check_with(&self.fixture.shop_db, self.partition, &ledger, options).await;
    }
}
