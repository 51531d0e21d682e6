//! Histories of leaders that crash. Each leader ends at a random call of the storage: before the
//! call, after it without its answer, or while the write is still under way. The next leader
//! recovers, and may crash while it does so.

use std::{
    collections::BTreeMap,
    mem::take,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use clock::Clock;
use eventlog::{RecordId, TrustLevel, WsId};
use processor::{Command, Commands, Done, IdempotencyKey, Refused};
use shop::{
    AnswerLedger, CheckOptions, ShopNodeSettings, article, check_with, create_workspace, cud,
    update,
};
use tck::trial::is_long;
use tokio::task::JoinSet;

use crate::{
    faults::Dice,
    numbers_of_log::LogNumbers,
    scene::{DAY, LEVELS, PARTITION, Scene, invoice, wrong_row},
};

/// The crashes of a history.
const CRASHES: u64 = 25;

/// The number of histories, and the number in a long run: 300 crashes, and 10,500.
const HISTORIES: u64 = 12;
const HISTORIES_OF_A_LONG_RUN: u64 = 420;

const WORKSPACES: [u64; 3] = [1, 11, 21];
const CLIENTS: usize = 8;

/// The knowledge of all clients.
struct Clients {
    dice: Dice,
    clock: Clock,
    ledger: AnswerLedger,
    requests: u64,
    /// The command that each client waits for.
    in_flight: BTreeMap<usize, (String, Command)>,
    /// The commands without a known outcome. A client may send such a command again.
    open: BTreeMap<String, Command>,
    /// The workspace and the id of each acknowledged row.
    rows: Vec<(u64, RecordId)>,
    /// The workspace and the text of each number that a handler returned.
    drawn: Vec<(WsId, String)>,
}

impl Clients {
    /// The next command of a client: a new one, one without a known outcome, or one that another
    /// client waits for.
    fn next(&mut self, client: usize) -> Command {
        let next = match self.dice.below(16) {
            0..4 => self.open.pop_first(),
            4 => self.in_flight.values().next().cloned(),
            _ => None,
        };
        let (request, mut command) = next.unwrap_or_else(|| self.new_command());
        command.deadline = self.deadline();
        self.in_flight.insert(client, (request, command.clone()));
        command
    }

    fn new_command(&mut self) -> (String, Command) {
        self.requests += 1;
        let request = format!("r{}", self.requests);
        let key = IdempotencyKey::new("joe", request.as_bytes(), b"");
        let command = self.command().with_request(&request).with_idempotency_key(key);
        (request, command)
    }

    fn deadline(&self) -> clock::Instant {
        self.clock.now() + Duration::from_millis(20 + self.dice.below(1_000))
    }

    fn command(&self) -> Command {
        let ws = WORKSPACES[usize::try_from(self.dice.below(3)).unwrap()];
        let rows = |rows| cud(ws, rows, self.deadline());
        let draw = |series: &str, rows| {
            let name = shop::qname("shop.Draw");
            let command = Command::new(WsId(ws), name, self.deadline());
            command.with_params(series.to_owned()).with_rows(rows)
        };
        match self.dice.below(16) {
            _ if self.requests < 12 => create_workspace(ws, self.deadline()),
            0..6 => rows(vec![invoice(1)]),
            6..8 => rows(vec![invoice(1), invoice(2)]),
            8 => rows(vec![invoice(1), wrong_row(2)]),
            9..11 => draw("invoice", Vec::new()),
            11 => draw("invoice invoice invoice", Vec::new()),
            12 => draw("invoice invoice", vec![wrong_row(9)]),
            13 => draw("invoice order", Vec::new()),
            14 => rows(article("tea")),
            _ => match self.rows.get(usize::try_from(self.dice.below(9)).unwrap()) {
                Some((ws, id)) => cud(*ws, vec![update(*id, None, "paid")], self.deadline()),
                None => rows(vec![invoice(1)]),
            },
        }
    }

    fn note(&mut self, client: usize, answered: &Result<Done, Refused>) {
        let Some((request, command)) = self.in_flight.remove(&client) else { return };
        self.ledger.note(&request, answered);
        let ws = command.ws;
        match answered {
            Ok(done) => {
                // The ids of rows of operations and of a descriptor are no use for an update.
                let ids = done.answer.ids.iter().filter(|(_, id)| id.0 > 1 << 20);
                self.rows.extend(ids.map(|(_, id)| (ws.0, *id)));
                let drawn = String::from_utf8_lossy(&done.answer.result).into_owned();
                self.drawn.extend(drawn.split_whitespace().map(|text| (ws, text.to_owned())));
                let surplus = self.rows.len().saturating_sub(9);
                self.rows.drain(..surplus);
            }
            Err(Refused::Unknown(_)) => {
                self.open.insert(request, command);
            }
            Err(_) => {}
        }
    }

    /// The leader crashed: the commands that clients wait for may be done or not.
    fn note_crash(&mut self) {
        for (request, command) in take(&mut self.in_flight).into_values() {
            self.ledger.open(&request);
            self.open.insert(request, command);
        }
    }
}

/// Sends commands one after another, until the client is dropped.
async fn send(number: usize, clients: Arc<Mutex<Clients>>, commands: Commands, clock: Clock) {
    loop {
        let command = clients.lock().unwrap().next(number);
        let answered = commands.run(command).await;
        clients.lock().unwrap().note(number, &answered);
        clock.sleep(Duration::from_millis(1)).await;
    }
}

/// Runs a leader until it crashes.
async fn crash(scene: &Scene, clients: &Arc<Mutex<Clients>>) {
    let dice = clients.lock().unwrap().dice.clone();
    if dice.one_in(4) {
        // The next year, or a clock that goes back.
        scene
            .manual
            .step_wall(DAY * [-400, -30, 200, 370][usize::try_from(dice.below(4)).unwrap()]);
    }
    scene.faults.crash_after(dice.below(60), dice.below(3) * 4);
    let node = scene.lead();
    let mut sending = JoinSet::new();
    for client in 0..CLIENTS {
        let (commands, clock) = (node.commands.clone(), scene.shop_db.clock.clone());
        sending.spawn(send(client, Arc::clone(clients), commands, clock));
    }
    let deadline = scene.shop_db.soon();
    while !scene.faults.has_crashed() {
        scene.rest().await;
        scene.manual.advance(Duration::from_millis(1));
        let status = node.commands.status();
        assert!(scene.shop_db.clock.now() < deadline, "no crash comes: {status:?}");
    }
    // Some time may pass before the leader is gone.
    for _ in 0..dice.below(3) {
        scene.rest().await;
    }
    node.kill();
    sending.shutdown().await;
    scene.rest().await;
    // At level 2 the next leader waits until no write is under way.
    if scene.settings.level == TrustLevel::Two || dice.one_in(2) {
        let _landed = scene.faulty.land_late_writes().await;
    }
    clients.lock().unwrap().note_crash();
}

/// Runs a history, and returns how many numbers its log has.
async fn history(seed: u64) -> usize {
    let level = LEVELS[usize::try_from(seed % 3).unwrap()];
    let mut scene = Scene::new(level, seed).await;
    let dice = Dice::of(seed);
    scene.settings.in_view = dice.one_in(2);
    scene.settings.partition.group_commands = usize::try_from(1 + dice.below(8)).unwrap();
    let sequencer = &mut scene.settings.partition.sequencer;
    let unflushed = usize::try_from(1 + dice.below(60)).unwrap();
    sequencer.max_unflushed = NonZeroUsize::new(unflushed).unwrap();
    sequencer.flush_delay = Duration::from_millis(dice.below(20));
    let clients = Clients {
        dice,
        clock: scene.shop_db.clock.clone(),
        ledger: AnswerLedger::default(),
        requests: 0,
        in_flight: BTreeMap::new(),
        open: BTreeMap::new(),
        rows: Vec::new(),
        drawn: Vec::new(),
    };
    let clients = Arc::new(Mutex::new(clients));
    for _ in 0..CRASHES {
        Box::pin(crash(&scene, &clients)).await;
    }
    let _landed = scene.faulty.land_late_writes().await;
    let node =
        scene.shop_db.node(PARTITION, ShopNodeSettings { storage: None, ..scene.settings.clone() });
    scene.in_time(node.ready()).await;
    scene.stop(&node).await;
    let (ledger, drawn) = {
        let clients = &mut *clients.lock().unwrap();
        (take(&mut clients.ledger), take(&mut clients.drawn))
    };
    let options = CheckOptions { in_view: scene.settings.in_view, ..Default::default() };
    let state = check_with(&scene.shop_db, PARTITION, &ledger, options).await;
    let numbers = LogNumbers::check(&state);
    for drawn in &drawn {
        assert!(numbers.all.contains(drawn), "{drawn:?} was acknowledged, and is not in the log");
    }
    numbers.all.len()
}

#[test]
fn no_number_is_missing_and_none_occurs_twice_after_any_crash() {
    let histories = if is_long() { HISTORIES_OF_A_LONG_RUN } else { HISTORIES };
    let mut numbers = 0;
    for seed in 0..histories {
        println!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        numbers += runtime.block_on(Box::pin(history(seed)));
    }
    let crashes = histories * CRASHES;
    println!("{crashes} crashes, {numbers} numbers, 0 missing, 0 twice");
    assert!(numbers as u64 > 2 * crashes, "hardly any number was drawn: {numbers}");
}
