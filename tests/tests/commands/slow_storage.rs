//! A storage that is slow. The rows that commands need are read together, and a group is formed in
//! bounded time.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::{RecordId, TrustLevel};
use futures::{
    StreamExt,
    future::{join, join_all},
    stream,
};
use istorage::{Call, CallAnswer, Key, RangeRead, RowStream, SharedStorage, StorageWrapper, Write};
use processor::{Busy, Command, Done, IdempotencyKey, PartitionEnd, Refused, RowChange};
use shop::{
    AnswerLedger, CheckOptions, ShopNode, ShopNodeSettings, StallPoint, StallingStorage, article,
    check, check_with, child, create_workspace, cud, new_row, qname, text, update,
};
use tck::trial::{Trial, trials};
use tokio::sync::watch;

use crate::fixture::{CommandsFixture, PARTITION, PARTITIONS, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(slow_storage:
    the_rows_of_many_commands_are_read_together = many_commands,
    the_rows_of_one_command_are_read_together = one_command,
    a_group_is_written_before_its_members_are_late = in_time,
    a_group_does_not_wait_for_a_handler_that_does_not_end = does_not_end,
    a_command_whose_handler_is_slow_is_done_in_the_next_group = comes_back,
    each_row_is_read_once_however_few_commands_a_group_takes = large_rows,
    numbers_of_many_workspaces_are_read_side_by_side = many_workspaces,
);

/// A storage with slow reads and slow atomic writes, which counts its reads. It is neither slow nor
/// counts when a write reads its rows back.
#[derive(Debug)]
pub(crate) struct SlowStorage {
    inner: SharedStorage,
    clock: Clock,
    delay: Duration,
    write_delay: Duration,
    pub(crate) reads: AtomicUsize,
    rows: AtomicUsize,
    /// The ordered rows that were written, and not read since.
    written: Mutex<HashSet<Key>>,
    side_by_side: Arc<SideBySide>,
    /// Whether reads may go on. Otherwise they wait.
    is_open: watch::Sender<bool>,
}

/// The number of ranges that are being read, and the highest number so far.
#[derive(Debug, Default)]
struct SideBySide {
    now: AtomicUsize,
    max: AtomicUsize,
}

impl SlowStorage {
    /// Sends commands together: no rows are read before all commands wait.
    pub(crate) async fn together(
        &self,
        node: &ShopNode,
        sent: Vec<Command>,
        ledger: &mut AnswerLedger,
    ) -> Vec<Result<Done, Refused>> {
        self.reads.store(0, Ordering::SeqCst);
        self.rows.store(0, Ordering::SeqCst);
        self.side_by_side.max.store(0, Ordering::SeqCst);
        self.is_open.send_replace(false);
        let requests: Vec<String> = sent.iter().map(|command| command.request.clone()).collect();
        let sent = join_all(sent.into_iter().map(|command| node.commands.run(command)));
        let open = async { self.is_open.send_replace(true) };
        let (answers, _) = join(sent, open).await;
        requests.iter().zip(&answers).for_each(|(request, answer)| ledger.note(request, answer));
        answers
    }

    fn is_read_back(&self, keys: &[Key]) -> bool {
        let mut written = self.written.lock().unwrap();
        keys.iter().all(|key| written.remove(key))
    }

    async fn pass(&self, rows: usize) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        drop(self.is_open.subscribe().wait_for(|is_open| *is_open).await);
        self.clock.sleep(self.delay).await;
        self.rows.fetch_add(rows, Ordering::SeqCst);
    }
}

impl StorageWrapper for SlowStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        match &call {
            Call::GetValues(keys) if self.is_read_back(keys) => {}
            Call::Get(..) | Call::GetBatch(_) | Call::GetValues(_) => self.pass(call.rows()).await,
            Call::Write(Write::PutOrdered(rows)) => {
                self.written.lock().unwrap().extend(rows.iter().map(|row| row.key.clone()));
            }
            Call::Write(Write::Atomic(_)) => self.clock.sleep(self.write_delay).await,
            _ => {}
        }
        call.send(&self.inner, deadline).await
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let (clock, delay) = (self.clock.clone(), self.delay);
        let side_by_side = Arc::clone(&self.side_by_side);
        let rows = read.send(&self.inner);
        let read = async move {
            let now = side_by_side.now.fetch_add(1, Ordering::SeqCst) + 1;
            side_by_side.max.fetch_max(now, Ordering::SeqCst);
            clock.sleep(delay).await;
            side_by_side.now.fetch_sub(1, Ordering::SeqCst);
            rows
        };
        stream::once(read).flatten().boxed()
    }
}

/// Wraps a storage, with one delay for reads and writes.
pub(crate) fn slow(inner: SharedStorage, clock: &Clock, delay: Duration) -> Arc<SlowStorage> {
    slow_at(inner, clock, delay, delay)
}

/// Wraps a storage, with different delays for reads and writes.
pub(crate) fn slow_at(
    inner: SharedStorage,
    clock: &Clock,
    delay: Duration,
    write_delay: Duration,
) -> Arc<SlowStorage> {
    Arc::new(SlowStorage {
        inner,
        clock: clock.clone(),
        delay,
        write_delay,
        reads: AtomicUsize::new(0),
        rows: AtomicUsize::new(0),
        written: Mutex::default(),
        side_by_side: Arc::default(),
        is_open: watch::Sender::new(true),
    })
}

/// A leader with a workspace, on a storage with this delay.
async fn begin(
    fixture: &CommandsFixture,
    delay: Duration,
) -> (ShopNode, AnswerLedger, Arc<SlowStorage>) {
    let slow = slow(Arc::clone(&fixture.shop_db.app.storage), &fixture.shop_db.clock, delay);
    let storage = Some(Arc::clone(&slow) as SharedStorage);
    let settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, ledger) = fixture.begin(PARTITION, WS, settings).await;
    (node, ledger, slow)
}

/// Makes a number of bills, and returns their ids.
pub(crate) async fn bills(
    fixture: &CommandsFixture,
    node: &ShopNode,
    ledger: &mut AnswerLedger,
    count: u64,
) -> Vec<RecordId> {
    let rows = (1..=count).map(|id| new_row(id, "shop.Bill", [("name", text("first"))])).collect();
    let made = named("bills", cud(WS, rows, fixture.shop_db.soon()));
    let done = fixture.run(node, ledger, made).await.unwrap();
    done.answer.ids.into_iter().map(|(_, id)| id).collect()
}

/// Each of 480 commands updated a record and had 10 s, and a read took 45 ms. The partition read
/// for one command after another, in one group. No command was done, and 212 were begun with an
/// unknown outcome, although 200 could have been done one by one.
async fn many_commands(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, slow) = begin(fixture, Duration::from_millis(45)).await;
    let ids = bills(fixture, &node, &mut ledger, 480).await;
    let deadline = shop_db.clock.now() + Duration::from_secs(10);
    let update = |id: &RecordId| {
        let rows = vec![update(*id, None, "second")];
        named(&format!("update {}", id.0), cud(WS, rows, deadline))
    };
    let sent = ids.iter().map(update).collect();
    let answers = slow.together(&node, sent, &mut ledger).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let reads = slow.reads.load(Ordering::SeqCst);
    assert!(reads <= 18, "{reads} reads for 480 rows");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A command with 4,096 rows read them one by one. At 45 ms a read this would have taken three
/// minutes, so such a command could not be done at all.
async fn one_command(fixture: &CommandsFixture) {
    let count = if fixture.is_embedded { 4_096 } else { 400 };
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, slow) = begin(fixture, Duration::ZERO).await;
    let ids = bills(fixture, &node, &mut ledger, count).await;
    let lines = ids.iter().zip(1..).map(|(id, raw)| {
        // Half of the bills are updated, and the others get a line.
        match raw % 2 {
            0 => update(*id, None, "second"),
            _ => child(raw, "shop.Line", (id.0, "lines"), []),
        }
    });
    let rows: Vec<RowChange> = lines.collect();
    slow.reads.store(0, Ordering::SeqCst);
    fixture.run(&node, &mut ledger, named("all", cud(WS, rows, shop_db.soon()))).await.unwrap();
    let (reads, most) = (slow.reads.load(Ordering::SeqCst), count.div_ceil(31) + 2);
    assert!(reads as u64 <= most, "{reads} reads for {count} rows");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// The rows that a handler reads by itself cannot be read ahead. The commands of a group wait for
/// the reads of all of them. So a group ends after 50 ms, or earlier if one of its commands has
/// little time.
async fn in_time(fixture: &CommandsFixture) {
    const COMMANDS: usize = 60;
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, slow) = begin(fixture, Duration::from_millis(45)).await;
    // From here on the kind of the workspace is in memory, and its descriptor is not read ahead.
    bills(fixture, &node, &mut ledger, 1).await;
    let deadline = shop_db.clock.now() + Duration::from_secs(2);
    let note = |number| {
        let note = Command { name: qname("shop.Note"), ..cud(WS, Vec::new(), deadline) };
        named(&format!("note {number}"), note)
    };
    let sent = (0..COMMANDS).map(note).collect();
    let (mut done, mut unknown) = (0, 0);
    for answered in slow.together(&node, sent, &mut ledger).await {
        match answered {
            Ok(_) => done += 1,
            Err(Refused::Busy(Busy::TimedOut)) => {}
            Err(Refused::Unknown(_)) => unknown += 1,
            Err(refused) => panic!("{refused}"),
        }
    }
    // Two seconds are enough for the reads of 44 commands.
    assert!(done >= 8, "{done} were done, and {unknown} are not known");
    // Only the commands of the group that was under way may have an unknown outcome.
    assert!(unknown <= 4, "{done} were done, and {unknown} are not known");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A handler was given time until the deadline of its command. All commands that were in its group
/// before it waited as long for their answers.
async fn does_not_end(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let stall = StallingStorage::new(Arc::clone(&shop_db.app.storage));
    let storage = Some(Arc::new(stall.clone()) as SharedStorage);
    let settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    stall.arm(StallPoint::Before(1));
    let run = |name: &str, command| node.commands.run(named(name, command));
    let first = run("first", cud(WS, article("first"), shop_db.soon()));
    let quick = run("quick", cud(WS, article("quick"), shop_db.soon()));
    let deadline = shop_db.soon();
    let never = Command { name: qname("shop.Never"), ..cud(WS, Vec::new(), deadline) };
    let never = run("never", never);
    // The other two commands wait while the first one is written, and are in one group.
    let others = async {
        stall.until_still().await;
        let (mut quick, mut never) = (pin!(quick), pin!(never));
        let waits = tokio::select! {
            biased;
            answered = &mut quick => panic!("{answered:?} before it was written"),
            answered = &mut never => panic!("{answered:?} before its time"),
            () = std::future::ready(()) => node.commands.waiting(),
        };
        assert_eq!(waits, 2);
        stall.go_on();
        tokio::select! {
            biased;
            quick = &mut quick => quick,
            answered = &mut never => panic!("the group waited until {answered:?}"),
        }
    };
    let (first, quick) = join(first, others).await;
    assert!(shop_db.clock.now() + Duration::from_secs(60) < deadline, "the group waited");
    ledger.note("first", &first);
    ledger.note("quick", &quick);
    ledger.open("never");
    assert!(first.is_ok() && quick.is_ok(), "{first:?} {quick:?}");
    // Now the handler runs again, as the first one of a group.
    node.kill();
    let next = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    next.ready().await;
    assert_eq!(next.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A handler that takes longer than the others of its group may wait is dropped, and runs again. No
/// trial demanded that such a command is done in the end. A partition that forgot the command, or
/// kept the number of the first run, passed all trials.
async fn comes_back(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    // A note reads the descriptor by itself, so it takes longer than the 50 ms of a group.
    let (node, mut ledger, slow) = begin(fixture, Duration::from_millis(120)).await;
    bills(fixture, &node, &mut ledger, 1).await;
    let note = |request: &str| {
        let note = Command { name: qname("shop.Note"), ..cud(WS, Vec::new(), shop_db.soon()) };
        let repeat = Some(IdempotencyKey::new("joe", request.as_bytes(), b"body"));
        named(request, Command { idempotency_key: repeat, ..note })
    };
    let quick = named("quick", cud(WS, article("quick"), shop_db.soon()));
    let sent = vec![quick, note("first note"), note("second note")];
    let answers = slow.together(&node, sent, &mut ledger).await;
    let done: Vec<&Done> = answers.iter().map(|answer| answer.as_ref().unwrap()).collect();
    for pair in done.windows(2) {
        assert_eq!(pair[0].plog.next(), pair[1].plog, "{answers:?}");
        assert_eq!(pair[0].wlog.next(), pair[1].wlog, "{answers:?}");
    }
    let numbers = [1, 2].map(|note: usize| &done[note].answer.result[..]);
    assert_eq!(numbers, [b"1", b"2"], "the first run gave its number back");
    let again = fixture.run(&node, &mut ledger, note("first note")).await.unwrap();
    assert_eq!((again.plog, again.is_repeated), (done[1].plog, true));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A group ends at 1 MiB, so it took 4 updates of rows with 100 KB. The partition had read ahead
/// for 32 commands, and dropped these rows with the group. So each of the rows of 100 updates was
/// read about seven times.
async fn large_rows(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let count = if fixture.is_embedded { 100 } else { 40 };
    let (node, mut ledger, slow) = begin(fixture, Duration::ZERO).await;
    let ids = bills(fixture, &node, &mut ledger, count).await;
    let large = |turn: &str| {
        let name = "x".repeat(100_000);
        let update = |id: &RecordId| {
            let rows = vec![update(*id, None, &name)];
            named(&format!("{turn} {}", id.0), cud(WS, rows, shop_db.soon()))
        };
        ids.iter().map(update).collect::<Vec<_>>()
    };
    let answers = slow.together(&node, large("fill"), &mut ledger).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let answers = slow.together(&node, large("update"), &mut ledger).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let rows = slow.rows.load(Ordering::SeqCst);
    assert!(rows as u64 <= count + 4, "{rows} rows were read for {count} updates");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A partition that begins has no numbers in memory. The numbers of each workspace were read when
/// its first command joined the group, one workspace after another. Of 480 commands about 110 were
/// done in time.
async fn many_workspaces(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    // A server may be slow by itself, so the time says little there.
    let (count, seconds) = if fixture.is_embedded { (480, 10) } else { (100, 60) };
    let all = (0..count).map(|number| WS + number * u64::from(PARTITIONS));
    let at = |storage| ShopNodeSettings {
        in_view: true,
        storage,
        ..ShopNodeSettings::at(TrustLevel::Zero)
    };
    let (former, mut ledger) = fixture.begin(PARTITION, WS, at(None)).await;
    let create = |ws| named(&format!("create {ws}"), create_workspace(ws, shop_db.soon()));
    let made = join_all(all.clone().skip(1).map(|ws| former.commands.run(create(ws)))).await;
    for (ws, answer) in all.clone().skip(1).zip(&made) {
        ledger.note(&format!("create {ws}"), answer);
    }
    assert_eq!(former.stop().await, PartitionEnd::Stopped);

    let slow = slow(Arc::clone(&shop_db.app.storage), &shop_db.clock, Duration::from_millis(45));
    let node = shop_db.node(PARTITION, at(Some(Arc::clone(&slow) as SharedStorage)));
    node.ready().await;
    let deadline = shop_db.clock.now() + Duration::from_secs(seconds);
    let sent = all.map(|ws| named(&format!("bill {ws}"), cud(ws, article("a"), deadline)));
    let answers = slow.together(&node, sent.collect(), &mut ledger).await;
    let done = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(done as u64, count, "of {count} commands");
    assert_eq!(slow.side_by_side.max.load(Ordering::SeqCst), 32, "workspaces at the same time");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check_with(shop_db, PARTITION, &ledger, CheckOptions::IN_VIEW).await;
}
