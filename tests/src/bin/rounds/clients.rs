//! Clients that send commands and read, each one request after another.

mod batches;
mod follower;
mod probes;
mod requests;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use fastrand::Rng;
use tokio::task::JoinSet;
use vvm_tests::bench::BenchError;

pub(crate) use self::probes::Silent;
pub(crate) use self::requests::LISTED_AT_MOST;
use self::requests::Sent;
use crate::{
    api::{self, ANSWER_TIMEOUT, HttpRequest},
    history::{Change, Outcome, Request, Version, Written},
    recorder::Recorder,
};

/// The number of documents of a workspace that clients change and read. A few, so that the clients
/// meet each other.
const HOT_DOCUMENTS: usize = 8;

/// The workspaces that get half of the requests.
const HOT_WORKSPACES: usize = 3;

/// A command with an idempotency key is sent again for this long. Most faults are shorter, so that
/// the node that comes back, or the next owner, meets the tries of a command that was done.
const TRIED_FOR: Duration = Duration::from_secs(60);

/// The numbers of a draw, and of one draw in four. A node reserves 100 at a time, so draws meet the
/// end of a range also in a workspace of few draws.
const DRAWN: RangeInclusive<u64> = 1..=3;
const DRAWN_BLOCK: RangeInclusive<u64> = 40..=120;

/// The pause before another try. Each one is longer than the last, up to a limit.
const RETRY_DELAY: Duration = Duration::from_millis(150);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// This many of a hundred commands with a key are sent once more after they were answered.
const REPEATED: u32 = 5;

/// This many of a hundred requests of a client send one of its last commands with a key once more,
/// although it is done. Meanwhile the node may have been started again, or another one may lead.
const REPEATED_LATER: u32 = 2;

/// The last commands with a key that a client remembers.
const REMEMBERED: usize = 64;

/// What all clients share.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) recorder: Arc<Recorder>,
    /// The addresses of the nodes, over the links of the clients.
    pub(crate) nodes: Vec<SocketAddr>,
    pub(crate) workspaces: Vec<u64>,
    known: Mutex<BTreeMap<u64, KnownWorkspace>>,
    stop: AtomicBool,
    /// When the last client had stopped. 0 before.
    clients_end: AtomicU64,
    next_id: AtomicU64,
    /// The pause between two requests of a client, in milliseconds, at most.
    pub(crate) pause_ms: u64,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
struct Sender {
    client: u32,
    /// The time that it waits for an answer.
    patience: Duration,
}

/// The sender of commands before and after the faults.
const SETUP: Sender = Sender { client: 0, patience: ANSWER_TIMEOUT };

/// What clients know of a workspace.
#[derive(Clone, Debug, Default)]
struct KnownWorkspace {
    articles: VecDeque<(u64, Version)>,
    /// The last event that was acknowledged.
    log_end: u64,
    /// When the last one of the commands that are done began. Answers that repeat an older answer
    /// do not count.
    last_begun: Option<u64>,
}

impl KnownWorkspace {
    /// Adds a document that was created, takes one away that was deactivated, and remembers the
    /// version of one that was changed.
    fn learn(&mut self, sent: &Sent, Written { version, ids, .. }: &Written) {
        match (&sent.change, &sent.rows[..], &ids[..]) {
            (Change::Create, [row], [(_, id)]) if row.table == requests::ARTICLE => {
                self.articles.push_front((*id, *version));
                self.articles.truncate(HOT_DOCUMENTS);
            }
            (Change::Update { id, .. }, [row], _) if row.is_active == Some(false) => {
                self.articles.retain(|(known, _)| known != id);
            }
            (Change::Update { id, .. }, ..) => self.saw(*id, *version),
            _ => {}
        }
    }

    /// Remembers a version, so that the next change with If-Match has a chance.
    fn saw(&mut self, id: u64, version: Version) {
        if let Some((_, last)) = self.articles.iter_mut().find(|(known, _)| *known == id) {
            *last = (*last).max(version);
        }
    }
}

/// Running clients.
pub(crate) struct Clients {
    pub(crate) shared: Arc<Shared>,
    tasks: JoinSet<()>,
    followers: JoinSet<()>,
}

impl Shared {
    pub(crate) fn new(
        recorder: Arc<Recorder>,
        clock: Clock,
        nodes: Vec<SocketAddr>,
        workspaces: u64,
        pause_ms: u64,
    ) -> Shared {
        Shared {
            clock,
            recorder,
            nodes,
            workspaces: (1..=workspaces).collect(),
            known: Mutex::default(),
            stop: AtomicBool::new(false),
            clients_end: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
            pause_ms,
        }
    }

    fn known<T>(&self, ws: u64, change: impl FnOnce(&mut KnownWorkspace) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(ws).or_default())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// When the last client had stopped. 0 if one still runs.
    fn clients_end(&self) -> u64 {
        self.clients_end.load(Ordering::SeqCst)
    }

    /// A request id that no other command of the run has.
    fn new_id(&self) -> String {
        format!("c{}", self.next_id.fetch_add(1, Ordering::SeqCst))
    }

    /// When the last one of the commands of a workspace began that are done.
    fn last_begun(&self, ws: u64) -> Option<u64> {
        self.known(ws, |known| known.last_begun)
    }

    /// Creates the workspaces, before the first fault.
    pub(crate) async fn create_workspaces(&self, within: Duration) -> Result<(), BenchError> {
        for ws in &self.workspaces {
            let (sent, id) = requests::workspace(*ws);
            self.write_until_done(*ws, &sent, &id, within).await?;
        }
        Ok(())
    }

    /// Creates a document in a workspace, before the first fault or after the restart.
    pub(crate) async fn create_document(
        &self,
        ws: u64,
        within: Duration,
    ) -> Result<(), BenchError> {
        let (sent, id) = (requests::article(ws, ws), self.new_id());
        self.write_until_done(ws, &sent, &id, within).await
    }

    async fn write_until_done(
        &self,
        ws: u64,
        sent: &Sent,
        id: &str,
        within: Duration,
    ) -> Result<(), BenchError> {
        let deadline = self.clock.now() + within;
        for node in self.nodes.iter().cycle() {
            let outcome = self.write_once(SETUP, *node, ws, sent, (id, true)).await;
            if matches!(outcome, Outcome::Written(_)) {
                return Ok(());
            }
            if self.clock.now() >= deadline {
                break;
            }
            self.clock.sleep(RETRY_DELAY).await;
        }
        Err(format!("workspace {ws} took no command in {within:?}").into())
    }

    /// Sends a command once, and records it.
    async fn write_once(
        &self,
        sender: Sender,
        node: SocketAddr,
        ws: u64,
        sent: &Sent,
        (id, has_key): (&str, bool),
    ) -> Outcome {
        let request = sent.request.clone().with_id(id, has_key);
        let begin = self.recorder.now();
        let outcome = api::ask(&self.clock, node, &request, sender.patience, api::written).await;
        let request = sent.recorded(id, has_key, None);
        self.record((sender.client, node), begin, ws, (sent, request), &outcome);
        outcome
    }

    /// Records a command, and remembers what its answer says.
    fn record(
        &self,
        (client, node): (u32, SocketAddr),
        begin: u64,
        ws: u64,
        (sent, request): (&Sent, Request),
        outcome: &Outcome,
    ) {
        let node = self.nodes.iter().position(|known| *known == node);
        self.recorder.operation_at(node, client, begin, ws, request, outcome.clone());
        let Outcome::Written(written) = outcome else { return };
        self.known(ws, |known| {
            known.log_end = known.log_end.max(written.wlog);
            if !written.repeated {
                known.last_begun = known.last_begun.max(Some(begin));
            }
            known.learn(sent, written);
        });
    }

    /// Sends a request once, and records it. The clients learn nothing from the answer.
    async fn ask_once(
        &self,
        sender: Sender,
        node: SocketAddr,
        ws: u64,
        request: (Request, HttpRequest),
        read: fn(Result<&api::HttpAnswer, String>) -> Outcome,
    ) -> Outcome {
        let begin = self.recorder.now();
        let outcome = api::ask(&self.clock, node, &request.1, sender.patience, read).await;
        self.recorder.operation(sender.client, begin, ws, request.0, outcome.clone());
        outcome
    }
}

impl Clients {
    pub(crate) fn start(shared: Shared, count: u32, followers: u32, seed: u64) -> Clients {
        let shared = Arc::new(shared);
        let (mut tasks, mut running) = (JoinSet::new(), JoinSet::new());
        for number in 1..=count {
            let mut rng = Rng::with_seed(seed.wrapping_add(u64::from(number)));
            // Clients give up at different times, even while the node still works.
            let patience = Duration::from_millis(rng.u64(1_500..15_000));
            let sender = Sender { client: number, patience };
            let (shared, done) = (Arc::clone(&shared), VecDeque::new());
            tasks.spawn(Client { shared, sender, rng, done }.run());
        }
        for number in 1..=followers {
            let rng = Rng::with_seed(seed.wrapping_sub(u64::from(number)));
            running.spawn(follower::run(Arc::clone(&shared), number, rng));
        }
        Clients { shared, tasks, followers: running }
    }

    /// Stops the clients, and waits for their last answers. Then the followers get the last events.
    pub(crate) async fn stop(mut self) -> Result<Arc<Shared>, BenchError> {
        self.shared.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        self.shared.clients_end.store(self.shared.recorder.now().max(1), Ordering::SeqCst);
        while let Some(ended) = self.followers.join_next().await {
            ended?;
        }
        Ok(self.shared)
    }
}

/// Whether a command need not be sent again.
fn is_end(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Written(_) => true,
        Outcome::Refused { status, .. } => *status != 503,
        _ => false,
    }
}

/// The pauses between the tries of a command.
struct Pauses {
    deadline: Instant,
    next: Duration,
}

impl Pauses {
    fn new(clock: &Clock) -> Pauses {
        Pauses { deadline: clock.now() + TRIED_FOR, next: RETRY_DELAY }
    }

    /// Waits until the next try. Returns whether there is one.
    async fn wait(&mut self, clock: &Clock) -> bool {
        if clock.now() >= self.deadline {
            return false;
        }
        clock.sleep(self.next).await;
        self.next = (self.next * 2).min(MAX_RETRY_DELAY);
        true
    }
}

/// A client.
struct Client {
    shared: Arc<Shared>,
    sender: Sender,
    rng: Rng,
    /// The last commands with a key that are done, with their workspaces and keys.
    done: VecDeque<(u64, String, Sent)>,
}

impl Client {
    async fn run(mut self) {
        while !self.shared.is_stopped() {
            self.one().await;
            let pause = Duration::from_millis(self.rng.u64(0..=self.shared.pause_ms));
            self.shared.clock.sleep(pause).await;
        }
    }

    async fn one(&mut self) {
        if self.rng.u32(0..100) < REPEATED_LATER && !self.done.is_empty() {
            return self.repeat_old().await;
        }
        // Half of the requests meet in few workspaces.
        let all = self.shared.workspaces.len();
        let count = if self.rng.bool() { all.min(HOT_WORKSPACES) } else { all };
        let ws = self.shared.workspaces[self.rng.usize(..count)];
        let articles = self.shared.known(ws, |known| known.articles.clone());
        let hot = articles.get(self.rng.usize(..HOT_DOCUMENTS)).copied();
        match (self.rng.u32(0..100), hot) {
            (0..25, _) | (25..75, None) => self.create(ws).await,
            (25..45, Some((id, version))) => self.change(ws, id, version).await,
            (45..50, Some(_)) => self.batch(ws, &articles).await,
            (50..70, Some((id, _))) => self.read(ws, id, false).await,
            (70..75, Some((id, _))) => self.read(ws, id, true).await,
            (75..80, _) => self.bill(ws).await,
            (80..85, _) => self.draw(ws).await,
            (85..92, _) => self.list(ws).await,
            _ => self.read_log(ws).await,
        }
    }

    fn node(&mut self) -> SocketAddr {
        self.shared.nodes[self.rng.usize(..self.shared.nodes.len())]
    }

    fn repeats(&mut self) -> bool {
        self.rng.u32(0..100) < REPEATED
    }

    /// Sends a command, and sends it again if it has a key and its outcome is not known.
    async fn write(&mut self, ws: u64, sent: Sent) {
        let (id, has_key) = (self.shared.new_id(), self.rng.u32(0..100) < 60);
        let mut pauses = Pauses::new(&self.shared.clock);
        loop {
            let node = self.node();
            let outcome =
                self.shared.write_once(self.sender, node, ws, &sent, (&id, has_key)).await;
            let is_done = matches!(outcome, Outcome::Written(_));
            if is_done && has_key && self.repeats() {
                let node = self.node();
                self.shared.write_once(self.sender, node, ws, &sent, (&id, true)).await;
            }
            if is_done && has_key {
                self.done.push_back((ws, id, sent));
                self.done.drain(..self.done.len().saturating_sub(REMEMBERED));
                return;
            }
            let is_over = is_end(&outcome) || !has_key || self.shared.is_stopped();
            if is_over || !pauses.wait(&self.shared.clock).await {
                return;
            }
        }
    }

    /// Sends a command once more that was done a while ago.
    async fn repeat_old(&mut self) {
        let node = self.node();
        let place = self.rng.usize(..self.done.len());
        let (ws, id, sent) = &self.done[place];
        let request = (sent.recorded(id, true, None), sent.request.clone().with_id(id, true));
        self.shared.ask_once(self.sender, node, *ws, request, api::written).await;
    }

    async fn create(&mut self, ws: u64) {
        let sent = requests::article(ws, self.rng.u64(..));
        self.write(ws, sent).await;
    }

    async fn change(&mut self, ws: u64, id: u64, version: Version) {
        let if_match = (self.rng.u32(0..100) < 50).then_some(version);
        let sent = match self.rng.u32(0..100) < 4 {
            true => requests::deactivated(ws, id, if_match),
            false => requests::changed(ws, id, if_match, self.rng.u64(..)),
        };
        self.write(ws, sent).await;
    }

    /// Creates a bill, which gets a gapless number, or a delivery, which gets one of a sequence.
    async fn bill(&mut self, ws: u64) {
        let sent = match self.rng.bool() {
            true => requests::bill(ws, self.rng.u64(..)),
            false => requests::delivery(ws, self.rng.u64(..)),
        };
        self.write(ws, sent).await;
    }

    async fn read(&mut self, ws: u64, id: u64, eventual: bool) {
        let (node, request) = (self.node(), requests::document(ws, id, eventual));
        let outcome = self.shared.ask_once(self.sender, node, ws, request, api::document).await;
        if let Outcome::Document { record: Some(record), says_eventual: false } = outcome {
            self.shared.known(ws, |known| known.saw(id, record.version));
        }
    }

    async fn draw(&mut self, ws: u64) {
        let count = if self.rng.u32(0..4) == 0 { DRAWN_BLOCK } else { DRAWN };
        let count = self.rng.u64(count);
        let (node, request) = (self.node(), requests::draw(ws, count));
        self.shared.ask_once(self.sender, node, ws, request, api::drawn).await;
    }

    async fn list(&mut self, ws: u64) {
        let articles = self.shared.known(ws, |known| known.articles.clone());
        // Most lists begin near the documents that change.
        let first = articles.iter().map(|(id, _)| *id).min().unwrap_or(1);
        let after = if self.rng.u32(0..4) == 0 { 0 } else { first - 1 };
        let (node, request) = (self.node(), requests::list(ws, after));
        self.shared.ask_once(self.sender, node, ws, request, api::listed).await;
    }

    async fn read_log(&mut self, ws: u64) {
        let end = self.shared.known(ws, |known| known.log_end);
        let from = end.saturating_sub(self.rng.u64(0..20)).max(1);
        let (node, request) = (self.node(), requests::log(ws, from));
        self.shared.ask_once(self.sender, node, ws, request, api::log).await;
    }
}
