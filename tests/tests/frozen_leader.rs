//! A leader that stands still past the end of its lease. When it goes on, another node leads, and
//! the former leader no longer writes.
//!
//! The leader is a process of its own: the test binary starts itself again. For each line that the
//! leader reads, it tries one write, and answers. So when all lines are answered, the leader does
//! not stand between `WorkGuard::may_send` and the sending of a write. Only a condition could stop
//! a write that is sent late from there. The elections assume that no leader stands there for long.

#![allow(clippy::unwrap_used)]

use std::{
    process::{Stdio, exit},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use clock::Clock;
use ielections::{Elections, Epoch, Seat, Timing};
use istorage::{AppStorageExt, Consistency, Key, KeyspaceName};
use libtest_mimic::{Arguments, Completion, Trial};
use sysvvm::System;
use tck::storage::Subject;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::Command,
    runtime::Runtime,
};
use vvm_tests::{
    processes::SuspendedProcesses,
    servers::{CASSANDRA, DYNAMODB, TestServer},
    subjects::{Cassandra, DynamoDb},
};

const LEASE: Duration = Duration::from_secs(4);

/// The timeout of a write.
const WRITE: Duration = Duration::from_millis(500);

/// The number of writes that the leader tries when it goes on.
const TRIES: usize = 20;

/// The longest time for anything that has no bound of its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// The exit code of a leader that its killer ended.
const KILLED: i32 = 86;

/// The first argument of the leader's process. The names of the database and of the keyspace
/// follow.
const LEADER: &str = "leader";

struct Database {
    name: &'static str,
    server: TestServer,
    at: fn(&str) -> Arc<dyn Subject>,
}

const DATABASES: [Database; 2] = [
    Database { name: "cassandra", server: CASSANDRA, at: |node| Arc::new(Cassandra::at(node)) },
    Database { name: "dynamodb", server: DYNAMODB, at: |url| Arc::new(DynamoDb::at(url)) },
];

/// The parts that each of the two processes has for itself.
struct Node {
    system: System,
    elections: Elections,
    clock: Clock,
}

impl Node {
    async fn connect(database: &Database, keyspace: &KeyspaceName, port: u16) -> Node {
        let clock = Clock::system();
        let soon = clock.now() + PATIENCE;
        let driver = (database.at)(&database.server.address().unwrap()).node(0).await.unwrap();
        let system = System::open(driver, keyspace.clone(), clock.clone(), soon).await.unwrap();
        let (store, owner) = (Arc::new(system.elections()), ([127, 0, 0, 1], port).into());
        let elections = Elections::new(store, clock.clone(), owner, Timing::of(LEASE)).unwrap();
        Node { system, elections, clock }
    }

    async fn write(&self, epoch: Epoch, count: u8) {
        let (key, value) = (written_in(epoch), Bytes::copy_from_slice(&[count]));
        self.system.storage().put(key, value, self.clock.now() + WRITE).await.unwrap();
    }

    async fn read(&self, epoch: Epoch) -> u8 {
        let (key, soon) = (written_in(epoch), self.clock.now() + PATIENCE);
        let there = self.system.storage().get(&key, Consistency::Plain, soon).await.unwrap();
        there.unwrap()[0]
    }
}

/// The row that counts the writes of the leader of an epoch. Each epoch has a row of its own, so
/// that no write hides another.
fn written_in(epoch: Epoch) -> Key {
    Key::new("written", epoch.to_string())
}

/// The part of the leader's process. While the leader waits for a line, it blocks the only thread
/// of its runtime. So when the leader goes on, no task has told it about the end of its leadership:
/// only the clock can.
fn lead(database: &Database, keyspace: &KeyspaceName) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut node = runtime.block_on(Node::connect(database, keyspace, 1));
    let until = node.clock.now() + PATIENCE;
    // The killer waits until the work has tried all writes. An earlier kill would hide a write that
    // the work must not send.
    let tries = Arc::new(Mutex::new(()));
    let tried = Arc::clone(&tries);
    #[expect(clippy::disallowed_methods, reason = "this is the process that is to be killed")]
    let kill = move |_: &str| {
        drop(tried.lock());
        exit(KILLED)
    };
    node.elections = node.elections.with_killer(Arc::new(kill));

    let trying = tries.lock().unwrap();
    let leadership = runtime.block_on(node.elections.acquire(Seat::FIRST, until)).unwrap();
    let work = leadership.work().unwrap();
    println!("leads {}", work.epoch());
    for (count, _) in (1..).zip(std::io::stdin().lines()) {
        match work.may_send(WRITE) {
            Ok(()) => {
                runtime.block_on(node.write(work.epoch(), count));
                println!("wrote {}", work.epoch());
            }
            Err(why) => println!("lost {}", why.name()),
        }
    }
    drop(trying);
    // The work does not end by itself, so the killer has to end the process.
    runtime.block_on(node.clock.sleep(LEASE));
}

async fn stands_still(database: &Database) {
    let clock = Clock::system();
    let soon = || clock.now() + PATIENCE;
    let keyspace = KeyspaceName::new(format!("frozen_{:016x}", clock.random())).unwrap();
    let node = Node::connect(database, &keyspace, 2).await;
    let timing = node.elections.budget().timing();

    let mut leader = Command::new(std::env::current_exe().unwrap())
        .args([LEADER, database.name, &keyspace.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut asks = leader.stdin.take().unwrap();
    let mut answers = BufReader::new(leader.stdout.take().unwrap());
    let mut answer = async || {
        let mut line = String::new();
        clock.timeout_at(soon(), answers.read_line(&mut line)).await.unwrap().unwrap();
        line
    };
    let leads = answer().await;
    let epoch = Epoch(leads.trim().strip_prefix("leads ").unwrap().parse().unwrap());
    let asked = clock.now();
    asks.write_all(b"write\n").await.unwrap();
    assert_eq!(answer().await, format!("wrote {epoch}\n"));

    let stopped = SuspendedProcesses::process(leader.id().unwrap()).unwrap();
    let stood = clock.now();
    let next = node.elections.acquire(Seat::FIRST, soon()).await.unwrap();
    let took = clock.now() - stood;
    assert!(took <= node.elections.budget().failover_bound(), "it took {took:?}");
    // The write of the leader was allowed. So when the leader was asked, its leadership lasted for
    // at least the time of the write, and its lease for longer.
    let lease_left = WRITE + LEASE - timing.renew_every - timing.retry_for;
    assert!(clock.now() >= asked + lease_left, "two had the lease: it took {took:?}");
    assert!(next.epoch() > epoch);
    let work = next.work().unwrap();
    work.may_send(WRITE).unwrap();
    node.write(next.epoch(), 1).await;

    // All lines can be read when the leader goes on.
    asks.write_all("write\n".repeat(TRIES).as_bytes()).await.unwrap();
    drop(asks);
    drop(stopped);
    let mut last = String::new();
    clock.timeout_at(soon(), answers.read_to_string(&mut last)).await.unwrap().unwrap();
    let status = clock.timeout_at(soon(), leader.wait()).await.unwrap().unwrap();
    assert_eq!(last, "lost expired\n".repeat(TRIES));
    assert_eq!(status.code(), Some(KILLED));
    assert_eq!(node.read(epoch).await, 1, "it wrote while another one led");
    assert_eq!(node.read(next.epoch()).await, 1);
    drop(work);
    node.system.driver().drop_keyspace(&keyspace, soon()).await.unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, name, keyspace] = &arguments[..]
        && first == LEADER
    {
        let database = DATABASES.iter().find(|database| database.name == name).unwrap();
        return lead(database, &KeyspaceName::new(keyspace).unwrap());
    }

    let runtime = Runtime::new().unwrap();
    let trials = DATABASES.iter().map(|database| {
        let name = "a_leader_that_was_suspended_past_its_lease_does_not_write_afterwards";
        let handle = runtime.handle().clone();
        Trial::ignorable_test(format!("{}::{name}", database.name), move || {
            if database.server.address().is_none() {
                return Ok(Completion::ignored_with(database.server.ignored_because));
            }
            handle.block_on(stands_still(database));
            Ok(Completion::Completed)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
