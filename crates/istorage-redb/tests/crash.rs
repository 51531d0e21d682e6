//! Tests with other processes: some are killed while they write, and one keeps the file open.
//!
//! The test binary starts itself again as the other process. The environment names the file that
//! the other process works on.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the suite of the log needs more of it")]
#[path = "log/frames.rs"]
mod frames;

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, TryStreamExt};
use istorage::{
    AppStorage, AppStorageExt, Conditional, Consistency, ErrorKind, Key, KeyspaceName, Order,
    OrderedPut, Outcome, Put, Range, SharedStorage, StorageDriver,
};
use istorage_redb::{RedbConfig, RedbDriver};
use tck::trial::finding_of;

const FILE: &str = "ISTORAGE_REDB_TEST_FILE";
const TASKS: usize = 12;
const GROUP: u64 = 5;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn open(path: &Path) -> (RedbDriver, SharedStorage) {
    let driver = RedbDriver::open(RedbConfig::new(path), Clock::system()).await.unwrap();
    let name = KeyspaceName::new("crash").unwrap();
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    (driver, storage)
}

fn number(n: u64) -> Bytes {
    Bytes::copy_from_slice(&n.to_be_bytes())
}

fn of(bytes: &Bytes) -> u64 {
    u64::from_be_bytes(bytes[..].try_into().unwrap())
}

fn pkey(kind: &str, task: usize) -> Bytes {
    Bytes::from(format!("{kind} {task}"))
}

/// The acknowledged writes of the other process: the kind and the task, with the last number that
/// was written.
type Acknowledged = HashMap<(String, usize), u64>;

#[test]
#[ignore = "the other process; the tests below start it"]
fn child() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the tests tell the process they start what to do"
    )]
    let path = std::env::var(FILE).unwrap();
    runtime().block_on(async {
        let (_driver, storage) = open(Path::new(&path)).await;
        println!("open");
        let tasks = (0..TASKS).map(|task| {
            let storage = Arc::clone(&storage);
            #[expect(clippy::disallowed_methods, reason = "they write until the process is killed")]
            tokio::spawn(async move {
                match task % 4 {
                    0 => put_rows(&*storage, task).await,
                    1 => insert_groups(&*storage, task).await,
                    2 => raise_a_counter(&*storage, task).await,
                    _ => put_ordered(&*storage, task).await,
                }
            })
        });
        futures::future::join_all(tasks).await;
    });
}

/// The first number that this task has not written yet.
async fn next(storage: &dyn AppStorage, pkey: &Bytes, rows_each: u64) -> u64 {
    let rows = storage.read(pkey.clone(), Range::all(), Consistency::Plain, Duration::MAX);
    rows.count().await as u64 / rows_each
}

async fn put_rows(storage: &dyn AppStorage, task: usize) {
    let pkey = pkey("put", task);
    for n in next(storage, &pkey, 1).await.. {
        let key = Key::new(pkey.clone(), number(n));
        storage.put(key, number(n), Instant::FAR_FUTURE).await.unwrap();
        println!("put {task} {n}");
    }
}

async fn insert_groups(storage: &dyn AppStorage, task: usize) {
    let pkey = pkey("group", task);
    for n in next(storage, &pkey, GROUP).await.. {
        let insert = |row| Conditional::Insert {
            ccols: number(n * GROUP + row),
            value: number(n),
            ttl: None,
        };
        let group = (0..GROUP).map(insert).collect();
        let outcome = storage.write_if(pkey.clone(), group, Instant::FAR_FUTURE).await.unwrap();
        assert_eq!(outcome, Outcome::Applied);
        println!("group {task} {n}");
    }
}

async fn raise_a_counter(storage: &dyn AppStorage, task: usize) {
    let key = Key::new(pkey("counter", task), Bytes::new());
    let first = storage.insert_if_not_exists(key.clone(), number(0), None, Instant::FAR_FUTURE);
    let mut n = match first.await.unwrap() {
        Outcome::Applied => 0,
        Outcome::NotApplied(conflicts) => of(conflicts[0].actual.as_ref().unwrap()),
    };
    loop {
        let swap = storage.compare_and_swap(
            key.clone(),
            number(n),
            number(n + 1),
            None,
            Instant::FAR_FUTURE,
        );
        assert_eq!(swap.await.unwrap(), Outcome::Applied);
        n += 1;
        println!("counter {task} {n}");
    }
}

async fn put_ordered(storage: &dyn AppStorage, task: usize) {
    let key = Key::new(pkey("ordered", task), Bytes::new());
    let there = storage.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap();
    for n in there.map_or(1, |bytes| of(&bytes) + 1).. {
        let order = Order::new(n).unwrap();
        let put = OrderedPut { key: key.clone(), value: number(n), order, ttl: None };
        storage.put_ordered(vec![put], Instant::FAR_FUTURE).await.unwrap();
        println!("ordered {task} {n}");
    }
}

/// The other process.
struct Other {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Other {
    fn spawn(path: &Path) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--ignored", "--nocapture"]);
        let mut child = command.env(FILE, path).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Other { child, lines }
    }

    /// Starts the process and waits until it has opened the file.
    fn start(path: &Path) -> Other {
        let mut other = Other::spawn(path);
        let mut line = String::new();
        while !line.ends_with("open\n") {
            line.clear();
            assert_ne!(other.lines.read_line(&mut line).unwrap(), 0, "it must open the file");
        }
        other
    }

    /// Kills the process after it has printed `lines` lines. Returns all writes that were
    /// acknowledged to it.
    fn kill_after(mut self, lines: usize) -> Acknowledged {
        let mut acknowledged = Acknowledged::new();
        let mut line = String::new();
        for at in 0.. {
            if at == lines {
                self.child.kill().unwrap();
            }
            line.clear();
            self.lines.read_line(&mut line).unwrap();
            // The last line may be cut off, because the process was killed.
            let Some(whole) = line.strip_suffix('\n') else { break };
            let mut words = whole.split(' ');
            let kind = words.next().unwrap().to_owned();
            let task = words.next().unwrap().parse().unwrap();
            let n: u64 = words.next().unwrap().parse().unwrap();
            let last = acknowledged.entry((kind, task)).or_default();
            *last = n.max(*last);
        }
        self.child.wait().unwrap();
        acknowledged
    }
}

/// Checks that every acknowledged write is there, and that each other write is there whole or not
/// at all.
async fn check(storage: &dyn AppStorage, acknowledged: &Acknowledged) {
    for task in 0..TASKS {
        let last = |kind: &str| acknowledged.get(&(kind.to_owned(), task)).copied();
        let rows = |kind: &str| {
            let rows =
                storage.read(pkey(kind, task), Range::all(), Consistency::Plain, Duration::MAX);
            rows.map_ok(|row| (row.ccols, of(&row.value))).try_collect::<Vec<_>>()
        };

        let puts = rows("put").await.unwrap();
        for (n, (ccols, value)) in (0..).zip(&puts) {
            assert!(of(ccols) == n && *value == n, "task {task}: row {n} is wrong");
        }
        assert!(puts.len() as u64 >= last("put").map_or(0, |n| n + 1), "task {task}: lost puts");

        let groups = rows("group").await.unwrap();
        assert_eq!(groups.len() as u64 % GROUP, 0, "task {task}: half of a group");
        for (row, (ccols, value)) in (0..).zip(&groups) {
            assert!(of(ccols) == row && *value == row / GROUP, "task {task}: row {row} is wrong");
        }
        assert!(
            groups.len() as u64 / GROUP >= last("group").map_or(0, |n| n + 1),
            "task {task}: lost groups"
        );

        for kind in ["counter", "ordered"] {
            let there = rows(kind).await.unwrap().first().map(|(_, value)| *value);
            assert!(
                there >= last(kind),
                "task {task}: {kind} fell back from {:?} to {there:?}",
                last(kind)
            );
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    let lines = || 1 + Clock::system().random() as usize % 4_000;
    killed_in_rounds((0..8).map(|_| lines()), |_| {});
}

/// A driver that answers a write before it is in the log: a kill loses the last frames of the log.
#[test]
fn answers_before_the_log_has_them_are_found() {
    let lose = |folder: &Path| frames::lose_frames_from(folder, |count| count - 10);
    let trial = async { killed_in_rounds([2_000].into_iter(), lose) };
    let found = finding_of(trial).now_or_never().flatten();
    assert!(found.as_ref().is_some_and(|found| found.contains("lost puts")), "{found:?}");
}

/// Kills a process in each round, after this many answers. `crash` happens to its folder after each
/// kill.
fn killed_in_rounds(rounds: impl Iterator<Item = usize>, crash: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(frames::NAMES[0]);
    let mut acknowledged = Acknowledged::new();
    for (round, lines) in rounds.enumerate() {
        acknowledged.extend(Other::start(&path).kill_after(lines));
        crash(folder.path());
        needs_no_repair(&path);
        runtime().block_on(async {
            let (driver, storage) = open(&path).await;
            check(&*storage, &acknowledged).await;
            println!("round {round}: killed after {lines} answers");
            driver.close().await;
        });
    }
}

/// Checks that the file opens without a repair. A repair reads the whole file, so its time grows
/// with the size of the file.
fn needs_no_repair(path: &Path) {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).unwrap();
    let mut builder = redb::Builder::new();
    builder.set_repair_callback(|repair| repair.abort());
    drop(builder.open(copy).unwrap());
}

#[test]
fn a_process_that_is_killed_while_it_makes_the_file_leaves_a_whole_one_or_none() {
    let clock = Clock::system();
    for _ in 0..30 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.redb");
        let mut other = Other::spawn(&path);
        runtime().block_on(clock.sleep(Duration::from_micros(clock.random() % 40_000)));
        other.child.kill().unwrap();
        other.child.wait().unwrap();
        runtime().block_on(async {
            let (driver, _) = open(&path).await;
            driver.close().await;
        });
    }
}

#[test]
fn a_million_rows_open_within_a_second_after_a_kill() {
    const ROWS: u64 = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    runtime().block_on(async {
        let (driver, storage) = open(&path).await;
        for start in (0..ROWS).step_by(50_000) {
            let row = |n: u64| Put {
                key: Key::new(Bytes::from(format!("partition {}", n % 1_000)), number(n)),
                value: Bytes::from(vec![b'v'; 100]),
            };
            let rows = (start..start + 50_000).map(row).collect();
            storage.put_batch(rows, Instant::FAR_FUTURE).await.unwrap();
        }
        driver.close().await;
    });
    for _ in 0..2 {
        let acknowledged = Other::start(&path).kill_after(200);
        let took = time_to_open(&path, &acknowledged);
        let megabytes = std::fs::metadata(&path).unwrap().len() >> 20;
        println!("{ROWS} rows in {megabytes} MB opened in {took:?} after a kill");
        assert!(took <= Duration::from_secs(1), "it took {took:?}");
    }
}

/// The time from the start of opening until the first row is read.
fn time_to_open(path: &Path, acknowledged: &Acknowledged) -> Duration {
    let clock = Clock::system();
    runtime().block_on(async {
        let start = clock.now();
        let (driver, storage) = open(path).await;
        let key = Key::new("partition 7", number(7));
        let first = storage.get(&key, Consistency::Plain, Instant::FAR_FUTURE).await.unwrap();
        let took = clock.now() - start;
        assert!(first.is_some());
        check(&*storage, acknowledged).await;
        driver.close().await;
        took
    })
}

#[test]
fn a_file_that_another_process_has_open_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.redb");
    let other = Other::start(&path);
    let refused =
        runtime().block_on(RedbDriver::open(RedbConfig::new(&path), Clock::system())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let message = refused.to_string();
    for word in [path.to_str().unwrap(), "another process", "cassandra", "dynamodb"] {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    other.kill_after(0);
    runtime().block_on(async {
        let (driver, _) = open(&path).await;
        driver.close().await;
    });
}
