//! Numbers that the storage does not take, and rows that it does not read: the partition reports
//! this, refuses commands, and goes on by itself.

use std::{
    mem,
    num::NonZeroUsize,
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use eventlog::{AppRow, TrustLevel, WsId, layout};
use futures::{
    StreamExt,
    future::{join, ready},
    stream,
};
use istorage::{
    Call, CallAnswer, CallKind, Error, Key, OrderedPut, RangeRead, RowStream, SharedStorage,
    StorageWrapper, Write,
};
use processor::{Busy, Command, FullQueue, IdempotencyKey, PartitionEnd, Refused, Status};
use shop::{
    AnswerLedger, CheckOptions, NarrowStorage, ShopNode, ShopNodeSettings, article, check,
    check_with, create_workspace, cud, update,
};
use tck::{
    storage::{Fault, Faulty},
    trial::{Trial, trials},
};
use tokio::sync::watch;

use crate::fixture::{CommandsFixture, OTHER_WS, PARTITION, PARTITIONS, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(stalled_partitions:
    a_partition_that_cannot_store_numbers_is_stalled_and_refuses
        = |fixture| not_stored(fixture, StorageMode::Refuses),
    a_partition_that_stores_numbers_slowly_is_full_and_refuses
        = |fixture| not_stored(fixture, StorageMode::Hangs),
    a_partition_that_can_never_store_numbers_fails_without_a_command = ended_while_idle,
    commands_are_accepted_after_the_problem_of_a_write_has_passed = passed,
    a_partition_that_can_read_nothing_is_stalled_until_a_read_works = nothing_is_read,
    a_partition_that_cannot_read_numbers_is_stalled = numbers_are_not_read,
    a_partition_that_cannot_read_one_row_stays_ready = one_row_is_not_read,
);

/// A time longer than any trial.
const NEVER: Duration = Duration::from_secs(3_600);

/// The deadline of a command that should be refused sooner.
const PATIENCE: Duration = Duration::from_secs(20);

/// The limit of numbers that wait to be stored.
const MOST: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StorageMode {
    Takes,
    Refuses,
    Hangs,
    Panics,
    CannotRead,
}

/// A storage that takes, refuses, delays or does not read numbers as a trial decides.
#[derive(Debug)]
struct NumbersStorage {
    inner: SharedStorage,
    partition: u16,
    mode: watch::Sender<StorageMode>,
}

impl NumbersStorage {
    fn is_of_numbers(&self, pkey: &Bytes) -> bool {
        // The keys of all numbers begin with the same two bytes.
        pkey.starts_with(&layout::sequences_view(self.partition, WsId(0)).slice(..2))
    }

    async fn pass(&self, rows: &[OrderedPut]) -> istorage::Result<()> {
        if !rows.iter().any(|put| self.is_of_numbers(&put.key.pkey)) {
            return Ok(());
        }
        let mut mode = self.mode.subscribe();
        let mode = mode.wait_for(|mode| *mode != StorageMode::Hangs).await.map(|mode| *mode);
        match mode {
            Ok(StorageMode::Refuses) => Err(Error::unavailable("no space for numbers")),
            // Unlike `panic!`, this prints nothing.
            Ok(StorageMode::Panics) => resume_unwind(Box::new("a panic on purpose")),
            _ => Ok(()),
        }
    }
}

impl StorageWrapper for NumbersStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        match &call {
            Call::Write(Write::PutOrdered(rows)) => self.pass(rows).await?,
            Call::Write(Write::Atomic(batch)) => self.pass(&batch.ordered).await?,
            _ => {}
        }
        call.send(&self.inner, deadline).await
    }

    fn read(&self, read: RangeRead) -> RowStream {
        if *self.mode.borrow() == StorageMode::CannotRead && self.is_of_numbers(&read.pkey) {
            let error = Error::unavailable("no numbers, on purpose");
            return stream::once(ready(Err(error))).boxed();
        }
        read.send(&self.inner)
    }
}

/// A node, with a storage that lets the trial decide about the numbers.
async fn begin(
    fixture: &CommandsFixture,
    partition: u16,
    ws: u64,
) -> (ShopNode, AnswerLedger, Arc<NumbersStorage>) {
    let (inner, mode) =
        (Arc::clone(&fixture.shop_db.app.storage), watch::Sender::new(StorageMode::Takes));
    let storage = Arc::new(NumbersStorage { inner, partition, mode });
    let shared = Some(Arc::clone(&storage) as SharedStorage);
    let mut settings = ShopNodeSettings {
        in_view: true,
        storage: shared,
        ..ShopNodeSettings::at(TrustLevel::Zero)
    };
    settings.timeout = NEVER;
    settings.partition.sequencer.max_unflushed = NonZeroUsize::MIN.saturating_add(MOST - 1);
    let (node, ledger) = fixture.begin(partition, ws, settings).await;
    (node, ledger, storage)
}

/// The limit of numbers that wait to be stored was reached, so no command could begin. The
/// partition reported that it was ready, and each command ran into its deadline. Nobody could see
/// the reason.
async fn not_stored(fixture: &CommandsFixture, mode: StorageMode) {
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, storage) = begin(fixture, PARTITION, WS).await;
    storage.mode.send_replace(mode);
    let refused = loop {
        let number = ledger.done();
        let deadline = shop_db.clock.now() + PATIENCE;
        let command = named(&format!("stalled {number}"), cud(WS, article("a"), deadline));
        if let Err(refused) = fixture.run(&node, &mut ledger, command).await {
            break refused;
        }
        assert!(number <= MOST + 1, "commands go on though nothing of them can be stored");
    };
    let status = node.commands.status();
    match (&status, refused) {
        (Status::Full(FullQueue::Numbers), Refused::Busy(Busy::QueueFull { full, .. })) => {
            assert_eq!((full, mode), (FullQueue::Numbers, StorageMode::Hangs));
        }
        (Status::Stalled(status), Refused::Busy(Busy::Storage(what))) => {
            assert!(what.contains("numbers cannot be stored"), "{what}");
            assert!(what.contains("no space for numbers"), "{what}");
            assert_eq!(*status, what);
        }
        other => panic!("{other:?}"),
    }
    storage.mode.send_replace(StorageMode::Takes);
    node.ready().await;
    let after = named("after", cud(WS, article("b"), shop_db.soon()));
    fixture.run(&node, &mut ledger, after).await.unwrap();

    // The partition must also notice the stall when no command waits. First wait until the numbers
    // that were drawn before are stored.
    while node.commands.unflushed().numbers > 0 {
        shop_db.clock.sleep(Duration::from_millis(1)).await;
    }
    storage.mode.send_replace(mode);
    fill(fixture, &node, &mut ledger, WS).await;
    node.until(|now| mem::discriminant(now) == mem::discriminant(&status)).await;
    storage.mode.send_replace(StorageMode::Takes);
    node.ready().await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check_with(shop_db, PARTITION, &ledger, CheckOptions::IN_VIEW).await;
}

/// Runs commands until the limit of waiting numbers is reached.
async fn fill(fixture: &CommandsFixture, node: &ShopNode, ledger: &mut AnswerLedger, ws: u64) {
    for ws in (1..).map(|number| ws + u64::from(PARTITIONS) * number) {
        if node.commands.unflushed().numbers >= MOST {
            return;
        }
        let create = named(&format!("create {ws}"), create_workspace(ws, fixture.shop_db.soon()));
        fixture.run(node, ledger, create).await.unwrap();
    }
}

/// The task that stores numbers ended while no command waited. The partition reported for ever that
/// it was ready, or that it was stalled. Only the next command made the partition look, and a
/// stalled partition took no command.
async fn ended_while_idle(fixture: &CommandsFixture) {
    for (partition, is_stalled) in (PARTITION..).zip([false, true]) {
        let ws = WS + u64::from(partition - PARTITION);
        let (node, mut ledger, storage) = begin(fixture, partition, ws).await;
        while node.commands.unflushed().numbers > 0 {
            fixture.shop_db.clock.sleep(Duration::from_millis(1)).await;
        }
        storage.mode.send_replace(StorageMode::Hangs);
        if is_stalled {
            fill(fixture, &node, &mut ledger, ws).await;
            node.until(|status| matches!(status, Status::Full(FullQueue::Numbers))).await;
        } else {
            let last =
                named("last", create_workspace(ws + u64::from(PARTITIONS), fixture.shop_db.soon()));
            fixture.run(&node, &mut ledger, last).await.unwrap();
        }
        storage.mode.send_replace(StorageMode::Panics);
        let failed = node.until(|status| matches!(status, Status::Failed(_))).await;
        assert_eq!(failed, Status::Failed("the sequencer has ended".to_owned()));
        let ended = node.stop().await;
        assert!(matches!(ended, PartitionEnd::Unproved(_)), "{ended:?}");
    }
}

/// A storage that gives no answer to one write, takes the next write at once, and is slow from then
/// on.
#[derive(Debug)]
struct UnsteadyStorage {
    inner: SharedStorage,
    clock: Clock,
    writes: watch::Sender<Option<usize>>,
}

impl StorageWrapper for UnsteadyStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(Write::If(..)) = &call {
            let mut this = None;
            self.writes.send_if_modified(|writes| {
                this = *writes;
                *writes = writes.map(|writes| writes + 1);
                this.is_some()
            });
            match this {
                Some(0) => return Err(Error::outcome_unknown("no answer, on purpose")),
                Some(1) | None => {}
                // The delay is longer than the time after which a write that is sent again is
                // reported.
                Some(_) => self.clock.sleep(Duration::from_millis(1_500)).await,
            }
        }
        call.send(&self.inner, deadline).await
    }
}

/// One write of a group got no answer, and was done when it was sent again. The rest of the group
/// took more than a second. The partition reported that the write was sent again and again, and
/// refused the waiting commands.
async fn passed(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (inner, clock) = (Arc::clone(&shop_db.app.storage), shop_db.clock.clone());
    let unsteady = Arc::new(UnsteadyStorage { inner, clock, writes: watch::Sender::new(None) });
    let storage: SharedStorage =
        NarrowStorage::of(Arc::clone(&unsteady) as SharedStorage, 100, true);
    let settings =
        ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    unsteady.writes.send_replace(Some(0));
    let run = |name| node.commands.run(named(name, cud(WS, article(name), shop_db.soon())));
    let next = async {
        // Wait until the group of the first command is being written.
        let mut writes = unsteady.writes.subscribe();
        drop(writes.wait_for(|writes| *writes > Some(1)).await);
        run("next").await
    };
    let (first, next) = join(run("first"), next).await;
    ledger.note("first", &first);
    ledger.note("next", &next);
    assert!(first.is_ok() && next.is_ok(), "{first:?} {next:?}");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A command with an idempotency key. The partition must read a row before it can do the command.
fn keyed(name: &str, deadline: Instant) -> Command {
    let idempotency_key = Some(IdempotencyKey::new("joe", name.as_bytes(), b""));
    Command { idempotency_key, ..named(name, cud(WS, article(name), deadline)) }
}

/// Every read of the storage failed. Each command was refused with the error of the storage, and
/// the partition reported that it was ready.
async fn nothing_is_read(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let is_blind = Arc::new(AtomicBool::new(false));
    let blind = Arc::clone(&is_blind);
    let script = move |call| match call {
        CallKind::Get | CallKind::GetBatch | CallKind::GetValues | CallKind::Read
            if blind.load(Ordering::SeqCst) =>
        {
            Fault::Unavailable
        }
        _ => Fault::None,
    };
    let inner = Arc::clone(&shop_db.app.storage);
    let faulty: SharedStorage = Arc::new(Faulty::scripted(inner, shop_db.clock.clone(), script));
    let settings =
        ShopNodeSettings { storage: Some(faulty), ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;

    is_blind.store(true, Ordering::SeqCst);
    let first = fixture.run(&node, &mut ledger, keyed("first", shop_db.soon())).await;
    assert!(matches!(first, Err(Refused::Busy(Busy::Storage(_)))), "{first:?}");
    let status = node.until(|status| *status != Status::Ready).await;
    let Status::Stalled(what) = status else { panic!("{status:?}") };
    assert!(what.contains("rows cannot be read"), "{what}");
    for number in 0..3 {
        let next = keyed(&format!("refused {number}"), shop_db.soon());
        let next = fixture.run(&node, &mut ledger, next).await;
        let Err(Refused::Busy(Busy::Storage(why))) = next else { panic!("{next:?}") };
        assert_eq!((&why, node.commands.status()), (&what, Status::Stalled(what.clone())));
        // The partition tries to read again meanwhile.
        shop_db.clock.sleep(Duration::from_millis(150)).await;
    }

    is_blind.store(false, Ordering::SeqCst);
    node.ready().await;
    fixture.run(&node, &mut ledger, keyed("after", shop_db.soon())).await.unwrap();
    // A partition that cannot read can be stopped.
    is_blind.store(true, Ordering::SeqCst);
    let last = fixture.run(&node, &mut ledger, keyed("last", shop_db.soon())).await;
    assert!(matches!(last, Err(Refused::Busy(Busy::Storage(_)))), "{last:?}");
    node.until(|status| matches!(status, Status::Stalled(_))).await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// Rows could be read, and numbers could not. Each command of a workspace that was not in memory
/// was refused, and the partition reported that it was ready.
async fn numbers_are_not_read(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (node, mut ledger, storage) = begin(fixture, PARTITION, WS).await;
    storage.mode.send_replace(StorageMode::CannotRead);
    let create = |name| named(name, create_workspace(OTHER_WS, shop_db.soon()));
    let refused = fixture.run(&node, &mut ledger, create("refused")).await;
    assert!(matches!(refused, Err(Refused::Busy(Busy::Storage(_)))), "{refused:?}");
    let status = node.until(|status| *status != Status::Ready).await;
    let Status::Stalled(what) = status else { panic!("{status:?}") };
    assert!(what.contains("numbers cannot be read"), "{what}");
    storage.mode.send_replace(StorageMode::Takes);
    node.ready().await;
    fixture.run(&node, &mut ledger, create("after")).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check_with(shop_db, PARTITION, &ledger, CheckOptions::IN_VIEW).await;
}

/// A storage that cannot read one row.
#[derive(Debug)]
struct OneRowStorage {
    inner: SharedStorage,
    row: Mutex<Option<Key>>,
    error: fn(&'static str) -> Error,
}

impl StorageWrapper for OneRowStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::GetBatch([key]) = &call
            && self.row.lock().unwrap().as_ref() == Some(key)
        {
            return Err((self.error)("this row cannot be read, on purpose"));
        }
        call.send(&self.inner, deadline).await
    }
}

/// One row that is damaged, or that the storage cannot read now, stops only the commands that need
/// the row.
async fn one_row_is_not_read(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let errors: [fn(&'static str) -> Error; 2] = [Error::corrupt, Error::unavailable];
    for (partition, error) in (PARTITION..).zip(errors) {
        let ws = WS + u64::from(partition - PARTITION);
        let command = |name: &str| named(name, cud(ws, article(name), shop_db.soon()));
        let inner = Arc::clone(&shop_db.app.storage);
        let spoiled = Arc::new(OneRowStorage { inner, row: Mutex::default(), error });
        let storage = Some(Arc::clone(&spoiled) as SharedStorage);
        let settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
        let (node, mut ledger) = fixture.begin(partition, ws, settings).await;
        let done = fixture.run(&node, &mut ledger, command("article")).await.unwrap();
        let id = done.answer.ids[0].1;
        *spoiled.row.lock().unwrap() = Some(AppRow::Record(WsId(ws), id).key());
        for number in 0..5 {
            let change = cud(ws, vec![update(id, None, "b")], shop_db.soon());
            let change = named(&format!("refused {number}"), change);
            let refused = fixture.run(&node, &mut ledger, change).await;
            assert!(refused.is_err(), "{refused:?}");
            assert_eq!(node.commands.status(), Status::Ready);
            fixture.run(&node, &mut ledger, command(&format!("next {number}"))).await.unwrap();
            assert_eq!(node.commands.status(), Status::Ready);
        }
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        check(shop_db, partition, &ledger).await;
    }
}
