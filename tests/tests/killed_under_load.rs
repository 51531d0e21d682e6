//! A node that is killed again and again while many commands are under way. Everything that the
//! node answered is stored, exactly as answered.
//!
//! The node is a process of its own: the test binary starts itself again, with a redb file. The
//! process prints, line by line, the commands that it is about to send and their answers. The test
//! reads all lines that were printed before the process was killed.

#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    num::NonZeroU16,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use clock::Clock;
use eventlog::{Epoch, Offset, RecordId, TrustLevel, Version};
use futures::FutureExt;
use istorage::{KeyspaceName, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};
use libtest_mimic::{Arguments, Failed, Trial};
use processor::{Answer, Busy, Done, IdempotencyKey, PartitionEnd, Refused};
use shop::{
    AnswerLedger, ShopDatabase, ShopNode, ShopNodeSettings, TestFence, article, bill, check,
    create_workspace, cud, lose_last_frames, update,
};
use tck::trial::finding_of;
use tokio::{runtime::Runtime, task::JoinSet};

/// The first argument of the process that is killed. Its file and its epoch follow.
const NODE: &str = "node";

const PARTITIONS: u16 = 3;
const WORKSPACES: u64 = 30;
const TASKS: u64 = 64;
const ROUNDS: u64 = 8;

/// The number of idempotency keys. Commands with these keys are sent more than once, by any task
/// and any node.
const KEYED: u64 = 300;

/// A task of the node ends after this many commands, if the node is not killed.
const COMMANDS: u64 = 10_000;

async fn open(file: &Path, clock: &Clock) -> (Arc<RedbDriver>, ShopDatabase) {
    let driver = Arc::new(RedbDriver::open(RedbConfig::new(file), clock.clone()).await.unwrap());
    let keyspace = KeyspaceName::new("killed").unwrap();
    let partitions = NonZeroU16::new(PARTITIONS).unwrap();
    let shop_db =
        ShopDatabase::new(Arc::clone(&driver) as _, keyspace, partitions, clock.clone()).await;
    (driver, shop_db)
}

fn nodes(shop_db: &ShopDatabase, epoch: u64) -> Vec<ShopNode> {
    let node = |partition| {
        let mut settings = ShopNodeSettings::at(TrustLevel::Zero);
        // Numbers are stored often, so that the node is also killed while it stores numbers.
        settings.partition.sequencer.flush_delay = Duration::from_millis(2);
        shop_db.node_of(partition, TestFence::of(epoch), settings)
    };
    (0..PARTITIONS).map(node).collect()
}

/// The part of the process that is killed.
async fn serve(file: &Path, epoch: u64) {
    let clock = Clock::system();
    let (_driver, shop_db) = open(file, &clock).await;
    let nodes = Arc::new(nodes(&shop_db, epoch));
    for node in nodes.iter() {
        node.ready().await;
    }
    println!("leads {epoch}");
    let shop_db = Arc::new(shop_db);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(client(Arc::clone(&shop_db), Arc::clone(&nodes), epoch, task));
    }
    tasks.join_all().await;
}

async fn client(shop_db: Arc<ShopDatabase>, nodes: Arc<Vec<ShopNode>>, epoch: u64, task: u64) {
    let clock = shop_db.clock.clone();
    let below = |end: u64| clock.random() % end;
    let mut known: Vec<(u64, RecordId, Version)> = Vec::new();
    for count in 0..COMMANDS {
        let mut ws = below(WORKSPACES);
        let mut name = format!("{epoch}.{task}.{count}");
        let mut idempotency_key = None;
        let mut command = match below(10) {
            // Most of these workspaces already exist.
            0 => create_workspace(ws, shop_db.soon()),
            1 | 2 => {
                let key = below(KEYED);
                ws = key % WORKSPACES;
                name = format!("key.{key}");
                idempotency_key = Some(IdempotencyKey::new("joe", name.as_bytes(), b"body"));
                cud(ws, article(&name), shop_db.soon())
            }
            3 | 4 => cud(ws, bill(&name), shop_db.soon()),
            5..8 if !known.is_empty() => {
                let index = usize::try_from(below(known.len() as u64)).unwrap();
                let (of, id, version) = known[index];
                ws = of;
                let version = (below(2) == 0).then_some(version);
                cud(ws, vec![update(id, version, &name)], shop_db.soon())
            }
            _ => cud(ws, article(&name), shop_db.soon()),
        };
        let partition = ws % u64::from(PARTITIONS);
        command.request = format!("{partition}.{name}");
        command.idempotency_key = idempotency_key;
        let request = command.request.clone();
        println!("sent {request}");
        let answered = nodes[usize::try_from(partition).unwrap()].commands.run(command).await;
        println!("{}", line_of(&request, &answered));
        if let Ok(done) = answered {
            let (version, ids) = (done.version(), done.answer.ids);
            known.extend(ids.into_iter().take(1).map(|(_, id)| (ws, id, version)));
            // The descriptor of a workspace must not be written again.
            known.retain(|(_, id, _)| id.0 > 100_000);
        }
    }
}

fn line_of(request: &str, answered: &Result<Done, Refused>) -> String {
    match answered {
        Ok(Done { epoch, plog, wlog, answer, .. }) => {
            let ids = answer.ids.iter().map(|(raw, id)| format!(" {} {}", raw.0, id.0));
            let ids = ids.collect::<String>();
            format!("done {request} {} {} {}{ids}", epoch.0, plog.0, wlog.0)
        }
        Err(Refused::NotApplied { plog, .. }) => format!("late {request} {}", plog.0),
        Err(Refused::Unknown(_)) => format!("open {request}"),
        Err(Refused::Busy(_) | Refused::Rejected(_)) => format!("refused {request}"),
    }
}

/// Everything that the process printed, for each partition.
#[derive(Default)]
struct Heard {
    ledgers: HashMap<u64, AnswerLedger>,
    /// The number of times that each command was sent and is not answered yet.
    sent: HashMap<String, u64>,
    leads: u64,
}

impl Heard {
    fn line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (what, request) = (words.next().unwrap(), words.next().unwrap());
        if what == "leads" {
            self.leads += 1;
            return;
        }
        if what == "sent" {
            *self.sent.entry(request.to_owned()).or_default() += 1;
            return;
        }
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
        let answered = match (what, &numbers[..]) {
            ("done", [epoch, plog, wlog, ids @ ..]) => {
                let ids = ids.chunks(2).map(|pair| (RecordId(pair[0]), RecordId(pair[1])));
                let answer = Answer { ids: ids.collect(), ..Answer::default() };
                let (epoch, plog, wlog) = (Epoch(*epoch), Offset(*plog), Offset(*wlog));
                Ok(Done { epoch, plog, wlog, answer, is_repeated: false })
            }
            ("late", [plog]) => {
                Err(Refused::NotApplied { plog: Offset(*plog), why: String::new() })
            }
            ("open", []) => Err(Refused::Unknown(String::new())),
            ("refused", []) => Err(Refused::Busy(Busy::Stopping)),
            _ => panic!("unexpected line `{line}`"),
        };
        *self.sent.get_mut(request).unwrap() -= 1;
        self.ledger(request).note(request, &answered);
    }

    fn ledger(&mut self, request: &str) -> &mut AnswerLedger {
        let (partition, _) = request.split_once('.').unwrap();
        self.ledgers.entry(partition.parse().unwrap()).or_default()
    }

    /// Notes that the process was killed: the commands that were sent may be done or not.
    fn killed(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        for (request, _) in sent.into_iter().filter(|(_, times)| *times > 0) {
            self.ledger(&request).open(&request);
        }
    }
}

/// Runs the process until it has printed a number of lines, and kills it.
fn round(file: &Path, epoch: u64, lines: u64, heard: &mut Heard) {
    let mut node = Command::new(std::env::current_exe().unwrap())
        .arg(NODE)
        .args([file.as_os_str(), epoch.to_string().as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(node.stdout.take().unwrap()).lines();
    let mut count = 0;
    for line in output {
        heard.line(&line.unwrap());
        count += 1;
        if count == lines {
            node.kill().unwrap();
        }
    }
    let status = node.wait().unwrap();
    assert!(count >= lines, "it ended by itself: {status}");
    heard.killed();
}

/// Rounds of a node that is killed after this many lines, and the check of everything that it
/// answered. `crash` happens to the files after each kill.
fn killed_under_load(
    rounds: impl IntoIterator<Item = u64>,
    crash: impl Fn(&Path),
) -> Result<(), Failed> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let file = folder.path().join("killed.redb");
    let clock = Clock::system();
    let mut heard = Heard::default();
    let mut last = 0;
    for (epoch, lines) in (1..).zip(rounds) {
        round(&file, epoch, lines, &mut heard);
        crash(&file);
        last = epoch;
    }
    assert_eq!(heard.leads, last);
    Runtime::new()?.block_on(async {
        let (driver, shop_db) = open(&file, &clock).await;
        for (partition, node) in (0..PARTITIONS).zip(nodes(&shop_db, last + 1)) {
            node.ready().await;
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
            let ledger = &heard.ledgers[&u64::from(partition)];
            let state = check(&shop_db, partition, ledger).await;
            println!("{} events, {} were answered", state.events.len(), ledger.done());
            assert!(ledger.done() > 100, "hardly anything was done");
        }
        driver.close().await;
    });
    Ok(())
}

/// Every fourth node is killed with its first commands, right after its recovery.
fn rounds() -> impl Iterator<Item = u64> {
    let clock = Clock::system();
    (1..=ROUNDS).map(move |round| match round.is_multiple_of(4) {
        true => 2,
        false => 200 + clock.random() % 3_000,
    })
}

/// The same with a driver that answers a write before it is in the log: a kill loses the last
/// frames of the log.
fn late_writes_are_found() -> Result<(), Failed> {
    let trial = async { killed_under_load([1_000], |file| lose_last_frames(file, 20)).unwrap() };
    let found = finding_of(trial).now_or_never().expect("the trial has a runtime of its own");
    let found = found.ok_or("a driver that answers too early was not found")?;
    let is_right = found.contains("is lost");
    if is_right { Ok(()) } else { Err(found.into()) }
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, file, epoch] = &arguments[..]
        && first == NODE
    {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(serve(Path::new(file), epoch.parse().unwrap()));
        return std::process::ExitCode::SUCCESS;
    }
    let right = "redb::whatever_a_killed_node_answered_is_there";
    let wrong = "redb::answers_before_the_log_has_them_are_found";
    let trials = vec![
        Trial::test(right, || killed_under_load(rounds(), |_| {})),
        Trial::test(wrong, late_writes_are_found),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
