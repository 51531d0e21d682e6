//! Power failures: a driver works on a simulated disk, the power fails at many moments, and what is
//! left of the file is opened again.
//!
//! A history is a list of steps from a seed. Leases expire in the time between steps. After a power
//! failure the file must hold exactly the writes that were answered by then. Each call under way is
//! in the file whole or not at all. A lease that is over may be gone.
//!
//! Then the history goes on from the rest of the file, and the power is lost once more, sometimes
//! while the file is being opened, and so on. After a failed sync, the driver ends, and another
//! driver opens the file.
//!
//! A seed also decides how far a filing is at each change of the log. So a history can be run again
//! as it was, unless its disk fails.

mod disk;
mod model;
mod rng;

use std::{
    future::ready, iter, panic::AssertUnwindSafe, path::PathBuf, pin::pin, sync::Arc, task::Poll,
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant, ManualClock};
use futures::{
    FutureExt, TryStreamExt,
    future::{Either, join, join_all, select},
    poll,
};
use istorage::{
    AtomicBatch, Conditional, Consistency, ErrorKind, Key, KeyspaceName, Order, OrderedPut,
    Outcome, Put, Range, SharedStorage, StorageDriver,
};

use self::{
    disk::{SimDisk, Sync, Synced},
    model::{Call, Changes, History, Leases, RowKey, Rows, Step},
    rng::Rng,
};
use crate::{
    RedbConfig, RedbDriver, check::check_on, desk::Desk, file::StorageFile, log::LogSizes,
};

/// The TTL of the rows of the partition `leases`.
const LEASE: Duration = Duration::from_secs(10);
/// The longest time between two steps.
const PAUSE_MS: u64 = 4_000;

/// The partitions of the rows. The partition `dropped` has a keyspace of its own.
const PARTITIONS: [&str; 5] = ["plain", "conditional", "ordered", "leases", "dropped"];

fn key((pkey, row): RowKey) -> Key {
    Key::new(pkey, row.to_be_bytes().to_vec())
}

/// The value that a call writes. Some values are larger than a page.
fn value(call: u64) -> Bytes {
    let len = 8 + (call % 7) as usize * if call.is_multiple_of(10) { 2_000 } else { 20 };
    Bytes::from(call.to_be_bytes().into_iter().cycle().take(len).collect::<Vec<u8>>())
}

/// A node on a simulated disk.
struct Node {
    clock: ManualClock,
    driver: RedbDriver,
    desk: Arc<Desk>,
    storage: SharedStorage,
    /// The storage of the partition `dropped`.
    dropped: SharedStorage,
}

/// The keyspace that is dropped and made again.
fn dropped() -> KeyspaceName {
    KeyspaceName::new("dropped").unwrap()
}

/// Small sizes, so that the log has many segments.
const SIZES: LogSizes = LogSizes { segment: 16 << 10, growth: 4 << 10 };

fn config() -> RedbConfig {
    RedbConfig { cache_bytes: 1 << 20, ..RedbConfig::new(PathBuf::from("node.redb")) }
}

impl Node {
    async fn open(disk: &SimDisk) -> istorage::Result<Node> {
        let clock = ManualClock::new(0);
        let file = StorageFile::new(config(), Arc::new(disk.clone()), SIZES);
        // The filer never works because its pause is over, which nobody could repeat.
        let desk = Arc::new(Desk::new(Duration::from_secs(3_600)));
        let driver = RedbDriver::start(file, clock.clock(), Arc::clone(&desk)).await?;
        disk.gate().guard(Arc::clone(&desk));
        let storage = create(&driver, &KeyspaceName::new("tests")?).await?;
        let dropped = create(&driver, &dropped()).await?;
        Ok(Node { clock, driver, desk, storage, dropped })
    }

    fn storage(&self, pkey: &str) -> &SharedStorage {
        if pkey == "dropped" { &self.dropped } else { &self.storage }
    }

    /// Drops a keyspace with all its rows, and makes it again.
    async fn drop_rows(&self) -> istorage::Result<Outcome> {
        self.driver.drop_keyspace(&dropped(), Instant::FAR_FUTURE).await?;
        create(&self.driver, &dropped()).await?;
        Ok(Outcome::Applied)
    }

    /// Lets the filer look after the file, as it does when it has nothing else to do: it removes
    /// expired rows, up to its first change of the disk. The next changes are those of the gate.
    /// Returns whether it began to.
    async fn rest(&self, disk: &SimDisk) -> bool {
        let was_idle = self.desk.is_idle();
        self.desk.check();
        until(|| disk.gate().has_filer_at_rest()).await;
        was_idle && !self.desk.is_idle()
    }

    async fn rows(&self, disk: &SimDisk) -> istorage::Result<Rows> {
        // The snapshots of readers decide which pages a filing uses again.
        until(|| disk.gate().has_filer_at_rest()).await;
        let mut rows = Rows::new();
        for pkey in PARTITIONS {
            let stream = self.storage(pkey).read(
                Bytes::from(pkey),
                Range::all(),
                Consistency::Plain,
                Duration::from_secs(60),
            );
            for row in stream.try_collect::<Vec<_>>().await? {
                let number = |bytes: &[u8]| u64::from_be_bytes(bytes[..8].try_into().unwrap());
                let call = number(&row.value);
                assert_eq!(row.value, value(call), "half of a value");
                rows.insert((pkey, number(&row.ccols)), call);
            }
        }
        Ok(rows)
    }

    /// Sends a call on these stored rows.
    async fn send(&self, changes: &Changes, rows: &Rows) -> istorage::Result<Outcome> {
        let (pkey, forever) = (changes[0].0.0, Instant::FAR_FUTURE);
        let storage = self.storage(pkey);
        let written = |change: &(RowKey, Option<u64>)| value(change.1.expect("it writes"));
        match pkey {
            "dropped" if changes[0].1.is_none() => self.drop_rows().await,
            "plain" | "dropped" => {
                let put = |change: (RowKey, Option<u64>)| Put {
                    key: key(change.0),
                    value: written(&change),
                };
                let puts = changes.iter().copied().map(put).collect();
                storage.put_batch(puts, forever).await.map(|()| Outcome::Applied)
            }
            "ordered" => {
                let order =
                    |change: &(RowKey, Option<u64>)| Order::new(change.1.unwrap() + 1).unwrap();
                let put = |change: &(RowKey, Option<u64>)| OrderedPut {
                    key: key(change.0),
                    value: written(change),
                    order: order(change),
                    ttl: None,
                };
                let puts = changes.iter().map(put).collect();
                storage.put_ordered(puts, forever).await.map(|()| Outcome::Applied)
            }
            _ => {
                let ttl = (pkey == "leases").then_some(LEASE);
                let conditional = |(row, new): &(RowKey, Option<u64>)| {
                    let ccols = key(*row).ccols;
                    match (rows.get(row), new) {
                        (None, Some(new)) => Conditional::Insert { ccols, value: value(*new), ttl },
                        (Some(old), Some(new)) => {
                            Conditional::Swap { ccols, old: value(*old), new: value(*new), ttl }
                        }
                        (Some(old), None) => Conditional::Delete { ccols, old: value(*old) },
                        (None, None) => unreachable!(),
                    }
                };
                let ops = changes.iter().map(|change| (Bytes::from(pkey), conditional(change)));
                let batch = AtomicBatch { conditionals: ops.collect(), ..AtomicBatch::default() };
                storage.write_atomic(batch, forever).await
            }
        }
    }

    /// Closes the file, and reads the stored rows with another driver.
    async fn reopened(self, disk: &SimDisk) -> Result<(Node, Rows), String> {
        self.driver.close().await;
        open(disk).await?.settled(disk).await
    }

    /// Sends calls together. A driver that failed must end its reads too: reads would show leases
    /// as over by a time that is not in the file, and the next driver would show them once more.
    async fn send_together(
        &self,
        disk: &SimDisk,
        calls: Vec<Changes>,
        rows: &Rows,
    ) -> Result<Vec<Call>, String> {
        let send = async |changes: Changes| {
            let done = match self.send(&changes, rows).await {
                Ok(Outcome::Applied) => Some(disk.moment()),
                Ok(refused) => {
                    let call = format!("{changes:?} on {rows:?}");
                    return Err(format!("nobody else writes, but {call} met {refused:?}"));
                }
                Err(_) => None,
            };
            Ok(Call { changes, done })
        };
        // The first call is written alone, and then the others together. If the writer took what it
        // finds when it is free, nobody could repeat the history.
        let mut calls = calls.into_iter();
        let first = calls.next().expect("each step has a call");
        self.wait_for_writer().await;
        disk.gate().hold_writer();
        let is_held = pin!(until(|| disk.gate().has_writer()));
        let first = match select(Box::pin(send(first)), is_held).await {
            Either::Left((done, _)) => Either::Left(ready(done)),
            Either::Right((_, first)) => Either::Right(first),
        };
        let mut others = pin!(join_all(calls.map(send)));
        // After one poll all calls are in the queue.
        let sent = poll!(&mut others);
        disk.gate().let_writer_go();
        let (first, others) = match sent {
            Poll::Ready(others) => (first.await, others),
            Poll::Pending => join(first, others).await,
        };
        let calls = iter::once(first).chain(others).collect::<Result<Vec<_>, String>>()?;
        // The driver closes the file before it answers a call with an error.
        let has_error = calls.iter().any(|call| call.done.is_none());
        let has_failed = self.driver.failed().now_or_never().is_some();
        if has_error && has_failed && self.rows(disk).await.is_ok() {
            return Err(format!("a driver that failed shows rows, after {calls:?}"));
        }
        Ok(calls)
    }
}

impl Node {
    /// Waits until the writer has ended the work of all calls before: it begins a segment after an
    /// answer. Calls that write nothing come after that. There may be a segment to begin after the
    /// first of them: a filing was done meanwhile.
    async fn wait_for_writer(&self) {
        let (ccols, value) = (Bytes::from("no row"), Bytes::new());
        let nothing = Conditional::Swap { ccols, old: value.clone(), new: value, ttl: None };
        let conditionals = vec![(Bytes::from("conditional"), nothing)];
        let batch = AtomicBatch { conditionals, ..AtomicBatch::default() };
        for _ in 0..2 {
            // On a failed file this fails, too.
            drop(self.storage.write_atomic(batch.clone(), Instant::FAR_FUTURE).await);
        }
    }
}

async fn create(driver: &RedbDriver, name: &KeyspaceName) -> istorage::Result<SharedStorage> {
    driver.create(name, Instant::FAR_FUTURE).await?;
    let storage = driver.open(name, Instant::FAR_FUTURE).await?;
    Ok(storage.expect("it was just made"))
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// The changes of the call with this number, all in one partition.
fn changes(pkey: &'static str, call: u64, rows: &Rows, rng: &mut Rng) -> Changes {
    if pkey == "dropped" && call.is_multiple_of(3) {
        let stored = rows.keys().filter(|(of, _)| *of == pkey);
        let removed: Changes = stored.map(|row| (*row, None)).collect();
        if !removed.is_empty() {
            return removed;
        }
    }
    let first = rng.below(40);
    let count = [1, 1, 3, 12][rng.below(4) as usize];
    let change = |row| {
        let key = (pkey, row);
        let may_delete = ["conditional", "leases"].contains(&pkey);
        let deletes = may_delete && rows.contains_key(&key) && call.is_multiple_of(3);
        (key, (!deletes).then_some(call))
    };
    (first..first + count).map(change).collect()
}

/// Opens the file on a disk, sends the calls of some steps, and closes the file in order.
async fn run(
    disk: &SimDisk,
    steps: u64,
    start: Duration,
    leases: Leases,
    rng: &mut Rng,
) -> Result<History, String> {
    let (mut node, before) = open(disk).await?.settled(disk).await?;
    // No two calls of a test write the same value.
    let last = before.values().chain(leases.0.keys()).max();
    let mut number = last.map_or(1, |last| last + 1_000);
    let (mut rows, mut time) = (before.clone(), start);
    let opened = disk.moment();
    let mut history = History { opened, start, before, steps: Vec::new(), leases, purges: 0 };
    let mut failures = disk.failures();
    for _ in 0..steps {
        if rng.below(12) == 0 {
            let before = std::mem::take(&mut rows);
            (node, rows) = node.reopened(disk).await?;
            // The close writes the time. If it could not, an expired lease may appear again.
            let is_same = rows == before;
            let may_differ = disk.failures() > failures;
            if !(is_same || may_differ && history.leases.allow(&before, &rows, time)) {
                return Err(format!("of {before:?} there is {rows:?} in the next driver"));
            }
        }
        failures = disk.failures();
        let began = disk.moment();
        let pause = Duration::from_millis(rng.below(PAUSE_MS));
        node.clock.advance(pause);
        time += pause;
        if rows.values().any(|call| history.leases.may_be_over(*call, time)) {
            // The calls do not find an expired lease either.
            let before = std::mem::take(&mut rows);
            (node, rows) = node.settled(disk).await?;
            if !history.leases.allow(&before, &rows, time) {
                return Err(format!("of {before:?} there is {rows:?} at {time:?}"));
            }
        }
        if rng.below(3) == 0 {
            history.purges += usize::from(node.rest(disk).await);
        }
        let together = 1 + rng.below(4);
        let first = rng.below(PARTITIONS.len() as u64);
        let partitions =
            (0..together).map(|at| PARTITIONS[(first + at) as usize % PARTITIONS.len()]);
        let calls = partitions.map(|pkey| {
            number += 1;
            history.leases.0.extend((pkey == "leases").then_some((number, time + LEASE)));
            changes(pkey, number, &rows, rng)
        });
        let calls: Vec<Changes> = calls.collect();
        let calls = node.send_together(disk, calls, &rows).await?;
        let mut step = Step { began, time, calls, ended: 0, after: Rows::new() };
        (node, step.after) = node.settled(disk).await?;
        step.ended = disk.moment();
        if !step.allows(&rows, step.ended, &step.after, &history.leases) {
            return Err(format!("after {step:?} there is something else"));
        }
        rows.clone_from(&step.after);
        history.steps.push(step);
    }
    node.driver.close().await;
    Ok(history)
}

/// The limit of retries. The disk never fails so often in a row.
const TRIES: usize = 1_000;

async fn open(disk: &SimDisk) -> Result<Node, String> {
    let mut why = String::new();
    for _ in 0..TRIES {
        match Node::open(disk).await {
            Ok(node) => return Ok(node),
            // `Corrupt` is an error of the file. Any other error comes from the disk, so the test
            // tries again.
            Err(error) if error.kind() == ErrorKind::Corrupt => return Err(error.to_string()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

impl Node {
    /// Reads the stored rows as soon as a storage answers. If this driver has ended, another driver
    /// opens the file.
    async fn settled(mut self, disk: &SimDisk) -> Result<(Node, Rows), String> {
        let mut why = String::new();
        for _ in 0..TRIES {
            match self.rows(disk).await {
                Ok(rows) => return Ok((self, rows)),
                Err(error) if error.kind() == ErrorKind::Corrupt => return Err(error.to_string()),
                Err(error) => why = error.to_string(),
            }
            if self.driver.failed().now_or_never().is_some() {
                self.driver.close().await;
                self = open(disk).await?;
            }
            // The keyspace may have been dropped, and not made again.
            drop(create(&self.driver, &dropped()).await);
            // A read that fails makes the filer open the file again. The test reads again after a
            // moment, when the file may be open.
            Clock::system().sleep(Duration::from_millis(1)).await;
        }
        Err(format!("{why}, at {}", disk.moment()))
    }
}

/// A history, and the power failures in it and after it.
struct Exploration {
    rng: Rng,
    /// How many steps the first history has, and how many of its moments are tried. The histories
    /// that follow have a tenth of both.
    steps: u64,
    moments: u64,
    sync: Sync,
    /// One write in this many fails. `None` if no write fails.
    writes_fail_one_in: Option<u64>,
    /// Whether the system cannot forget the pages of a file that it has in memory. Linux can.
    keeps_cache: bool,
    /// The number of power failures, and the number of leases that expired in the first history.
    failures: usize,
    expired: usize,
    /// How often the filer began to remove expired rows while it rested, in the first history.
    purges: usize,
}

impl Exploration {
    fn new(seed: u64) -> Exploration {
        let (rng, sync) = (Rng(seed), Sync::Works);
        let (steps, moments) = (40, 40);
        let (writes_fail_one_in, keeps_cache) = (None, false);
        let (failures, expired, purges) = (0, 0, 0);
        Exploration {
            rng,
            steps,
            moments,
            sync,
            writes_fail_one_in,
            keeps_cache,
            failures,
            expired,
            purges,
        }
    }

    fn prepare(&self, disk: &SimDisk) {
        disk.set_sync(self.sync);
        disk.fail_writes(self.writes_fail_one_in);
        if self.keeps_cache {
            disk.keep_cache();
        }
    }

    /// Runs a history on a new disk, loses the power at many moments of the history, and goes on
    /// with each rest.
    async fn run(&mut self) -> Result<(), String> {
        let disk = SimDisk::new(self.rng.next());
        self.prepare(&disk);
        let (start, leases) = (Duration::ZERO, Leases::default());
        let history = run(&disk, self.steps, start, leases, &mut self.rng).await?;
        self.expired += history.expired();
        self.purges += history.purges;
        let nothing = |rows: &Rows| rows.is_empty();
        let left = self.lose_power(&disk, &history, &nothing, self.moments).await?;
        for (moment, left) in left {
            self.prepare(&left);
            let (start, leases) = (history.time_at(moment), history.leases.clone());
            let next = run(&left, self.steps / 10, start, leases, &mut self.rng).await?;
            let allowed = |rows: &Rows| match moment < history.opened {
                true => nothing(rows),
                false => history.allows(moment, rows),
            };
            self.lose_power(&left, &next, &allowed, self.moments / 10).await?;
        }
        Ok(())
    }

    /// Loses the power at some moments of a history, and checks the file each time. Returns each
    /// disk as the power failure left it.
    async fn lose_power(
        &mut self,
        disk: &SimDisk,
        history: &History,
        before_open: &impl Fn(&Rows) -> bool,
        count: u64,
    ) -> Result<Vec<(usize, SimDisk)>, String> {
        let last = disk.moment() as u64;
        let mut moments: Vec<usize> =
            (0..count).map(|_| self.rng.below(last + 1) as usize).collect();
        moments.sort_unstable();
        let mut all = Vec::new();
        for (moment, left) in moments.iter().zip(disk.power_lost_at(&moments, &mut self.rng)) {
            self.failures += 1;
            let at = |why: String| format!("power lost at {moment} of {last}: {why}");
            let now = [left.moment()];
            // Opening the file writes to it, so the test opens a copy.
            let copy = left.power_lost_at(&now, &mut self.rng).remove(0);
            let node = open(&copy).await.map_err(at)?;
            let rows = node.rows(&copy).await.map_err(|error| at(error.to_string()))?;
            node.driver.close().await;
            let is_allowed = match *moment < history.opened {
                true => before_open(&rows),
                false => history.allows(*moment, &rows),
            };
            if !is_allowed {
                return Err(at(format!("{rows:?} is left")));
            }
            let report = check_on(&config(), Arc::new(copy));
            let report = report.map_err(|error| at(error.to_string()))?;
            if !report.is_intact() {
                return Err(at(format!("{report:?}")));
            }
            all.push((*moment, left));
        }
        Ok(all)
    }
}

/// Explores from some seeds, and from many more in long rounds.
async fn explore(seeds: u64, change: impl Fn(&mut Exploration)) {
    let seeds = if tck::trial::is_long() { 250 * seeds } else { seeds };
    let (mut failures, mut expired, mut purges) = (0, 0, 0);
    for seed in 0..seeds {
        let mut exploration = Exploration::new(seed);
        change(&mut exploration);
        // A panic does not name the seed.
        let explored = AssertUnwindSafe(exploration.run()).catch_unwind().await;
        if let Err(why) = explored.unwrap_or_else(|_| Err("it panicked, see above".to_owned())) {
            panic!("seed {seed}: {why}");
        }
        failures += exploration.failures;
        expired += exploration.expired;
        purges += exploration.purges;
    }
    println!("{seeds} histories, {expired} leases expired, the power was lost {failures} times");
    assert!(expired > 0 && purges > 0, "{expired} leases expired, and {purges} removals began");
}

/// A seed that found a loss could not be repeated, because the filer is a second thread.
#[tokio::test]
async fn a_seed_makes_the_same_history_each_time() {
    let run = async || {
        let disk = SimDisk::new(7);
        let (start, leases) = (Duration::ZERO, Leases::default());
        run(&disk, 40, start, leases, &mut Rng(7)).await.unwrap();
        disk.done()
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn a_power_failure_loses_no_acknowledged_write_and_leaves_no_partial_call() {
    explore(2, |_| {}).await;
}

/// After a failed sync, the outcome of the commit is unknown: reads may show the commit afterwards,
/// and then it stays.
///
/// Half of the histories run on a system that keeps its cache. There the next driver reads all the
/// data that the failed sync lost. Such reads do no harm: redb syncs the pages of a commit before
/// it makes the commit the latest one. redb also writes and syncs its header once more when it
/// opens the file. So no lost page is ever a part of the latest commit.
#[tokio::test]
async fn failed_syncs_lose_no_write_that_was_acknowledged_or_read() {
    explore(2, |exploration| {
        exploration.sync = Sync::FailsOneIn(15);
        exploration.keeps_cache = exploration.rng.0 % 2 == 1;
    })
    .await;
}

/// A write that fails may be done in part. The file is opened again in the same process, and what
/// reads show then stays.
#[tokio::test]
async fn writes_that_fail_lose_no_write_that_was_acknowledged_or_read() {
    explore(2, |exploration| exploration.writes_fail_one_in = Some(30)).await;
}

/// A disk that acknowledges data that it has not written loses that data, and this suite must find
/// the loss, in each kind of thing that is synced.
#[tokio::test]
async fn a_disk_that_does_not_sync_is_detected() {
    for (lie, reports) in [
        (Synced::StorageFile, ["is not a redb file", "not a storage of this driver", "is damaged"]),
        (Synced::Log, ["does not belong to the present state", "its log is lost", "is left"]),
        (Synced::Folder, ["is missing, but its log", "of the storage file is missing", "is left"]),
    ] {
        let sync = Sync::LiesAbout(lie);
        let mut exploration = Exploration { sync, ..Exploration::new(2) };
        let why = exploration.run().await.unwrap_err();
        let is_told = reports.iter().any(|report| why.contains(report));
        assert!(why.starts_with("power lost at ") && is_told, "{lie:?}: {why}");
    }
}
