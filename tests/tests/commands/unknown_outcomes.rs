//! Groups that must end, and ends of partitions that must not prove more than they can.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, TrustLevel, WsId};
use futures::future::{join, join_all};
use istorage::{
    AppStorageExt, Call, CallAnswer, CallKind, Error, SharedStorage, StorageWrapper, Write,
};
use processor::{Busy, Command, Done, IdempotencyKey, PartitionEnd, Refused, Status};
use shop::{
    AnswerLedger, NarrowStorage, ShopNodeSettings, StallPoint, StallingStorage, article, check,
    create_workspace, cud, new_row,
};
use tck::{
    storage::{Fault, Faulty},
    trial::{Trial, trials},
};
use tokio::task::JoinSet;

use crate::fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(unknown_outcomes:
    a_group_ends_although_commands_that_write_nothing_keep_coming = ends,
    a_recovery_that_is_stopped_ends_between_two_calls = stopped,
    a_recovery_that_is_cut_off_or_fails_proves_nothing = unproved,
    a_stop_that_cannot_store_numbers_proves_nothing_and_gives_the_reason = numbers_not_stored,
    an_attempt_without_an_answer_may_land_when_a_foreign_row_is_gone = may_land,
    an_attempt_without_an_answer_is_reported_before_a_foreign_row = row_in_the_way,
    an_attempt_without_an_answer_stays_unknown_when_the_storage_closes = closes,
    a_rejection_that_rests_on_an_unwritten_command_is_not_sent = judged_by_nothing,
    a_group_respects_its_limit_of_bytes = few_bytes,
    a_write_that_is_sent_again_and_again_is_reported_in_the_status = reported,
);

fn at(storage: SharedStorage) -> ShopNodeSettings {
    ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(TrustLevel::Zero) }
}

/// The group waited for commands that write nothing. For each such command something was read, and
/// meanwhile the next one came. So the group was never written.
async fn ends(fixture: &CommandsFixture) {
    const READ: Duration = Duration::from_millis(2);
    const LONG: Duration = Duration::from_secs(20);
    let shop_db = &fixture.shop_db;
    let slow = |op| if op == CallKind::Get { Fault::Slow(READ) } else { Fault::None };
    let inner = Arc::clone(&shop_db.app.storage);
    let mut settings = at(Arc::new(Faulty::scripted(inner, shop_db.clock.clone(), slow)));
    settings.partition.group_commands = 10;
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let mut noise = JoinSet::new();
    let command = named("among them", cud(WS, article("a"), shop_db.soon()));
    let mut among_them = pin!(node.commands.run(command));
    let mut sent = 0u64;
    let end = shop_db.clock.now() + LONG;
    let answered = loop {
        assert!(shop_db.clock.now() < end, "the group was not written while other commands came");
        // At least one command always waits.
        while node.commands.waiting() < 5 {
            sent += 1;
            let mut command = cud(WS, vec![new_row(1, "shop.Nothing", [])], shop_db.soon());
            // With a key, the partition looks up whether the command was sent before.
            command.idempotency_key = Some(IdempotencyKey::new("joe", &sent.to_be_bytes(), b""));
            let commands = node.commands.clone();
            noise.spawn(async move { commands.run(command).await });
            tokio::task::yield_now().await;
        }
        let soon = shop_db.clock.now() + READ / 10;
        if let Ok(answered) = shop_db.clock.timeout_at(soon, &mut among_them).await {
            break answered;
        }
    };
    ledger.note("among them", &answered);
    answered.unwrap();
    while let Some(refused) = noise.join_next().await {
        let refused = refused.unwrap().unwrap_err();
        assert!(matches!(refused, Refused::Rejected(_)), "{refused:?}");
    }
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// The recovery was dropped in the middle of a call, although the storage answered. So a node that
/// was stopped during its recovery kept its lease, and ended with an error. The same happened to
/// each node with a partition that an operator had to put right.
async fn stopped(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    for (partition, call) in (PARTITION..).zip(1..=3) {
        let stall = StallingStorage::new(Arc::clone(&shop_db.app.storage));
        stall.arm(StallPoint::Before(call));
        let node = shop_db.node(partition, at(Arc::new(stall.clone())));
        stall.until_still().await;
        let go_on = async { stall.go_on() };
        let (ended, ()) = join(node.stop(), go_on).await;
        assert_eq!(ended, PartitionEnd::Stopped, "before call {call}");
    }
    let key = AppRow::Plog(PARTITION, eventlog::Offset::FIRST).key();
    let damaged = Bytes::from_static(b"damaged");
    let put = shop_db.app.storage.insert_if_not_exists(key, damaged, None, shop_db.soon());
    assert!(put.await.unwrap().is_applied());
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Zero));
    node.until(|status| matches!(status, Status::Violation(_))).await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A call that does not end is cut off, and the outcome of a failed call is not known. Neither
/// proves that the partition has ended.
async fn unproved(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let stall = StallingStorage::new(Arc::clone(&shop_db.app.storage));
    stall.arm(StallPoint::Before(1));
    let node = shop_db.node(PARTITION, at(Arc::new(stall.clone())));
    stall.until_still().await;
    let ended = node.stop_within(Duration::from_secs(1)).await;
    assert!(matches!(ended, PartitionEnd::Unproved(_)), "{ended:?}");

    let script = |op| match op {
        CallKind::WriteAtomic | CallKind::PutOrdered => Fault::NotAppliedButError,
        _ => Fault::None,
    };
    let inner = Arc::clone(&shop_db.app.storage);
    let faulty = Arc::new(Faulty::scripted(inner, shop_db.clock.clone(), script));
    let node = shop_db.node(PARTITION + 1, ShopNodeSettings { in_view: true, ..at(faulty) });
    node.until(|status| matches!(status, Status::Recovering(Some(_)))).await;
    let ended = node.stop().await;
    assert!(
        matches!(&ended, PartitionEnd::Unproved(why) if why == "the partition was recovering"),
        "{ended:?}"
    );
}

/// The partition tried to store the last numbers until the very deadline of the stop. So the stop
/// was reported as late, and the reason was lost.
async fn numbers_not_stored(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let is_full = Arc::new(AtomicBool::new(false));
    let full = Arc::clone(&is_full);
    let script = move |op| {
        let is_write = matches!(op, CallKind::WriteAtomic | CallKind::PutOrdered);
        if is_write && full.load(Ordering::SeqCst) { Fault::Unavailable } else { Fault::None }
    };
    let inner = Arc::clone(&shop_db.app.storage);
    let faulty = Faulty::scripted(inner, shop_db.clock.clone(), script);
    let mut settings = ShopNodeSettings { in_view: true, ..at(Arc::new(faulty)) };
    settings.partition.sequencer.flush_delay = Duration::from_secs(600);
    let (node, _) = fixture.begin(PARTITION, WS, settings).await;
    is_full.store(true, Ordering::SeqCst);
    let ended = node.stop_within(Duration::from_secs(2)).await;
    let is_reported =
        matches!(&ended, PartitionEnd::Unproved(why) if why.contains("not stored in time"));
    assert!(is_reported, "{ended:?}");
}

/// The first attempt may still land, so the sender must not be told that nothing was done.
async fn may_land(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&is_armed);
    let script = move |op| {
        let is_write = matches!(op, CallKind::WriteIf | CallKind::WriteAtomic);
        let is_first = is_write && armed.swap(false, Ordering::SeqCst);
        if is_first { Fault::NotAppliedButError } else { Fault::None }
    };
    let inner = Arc::clone(&shop_db.app.storage);
    let faulty = Arc::new(Faulty::scripted(inner, shop_db.clock.clone(), script));
    let node = shop_db.node(PARTITION, at(faulty));
    node.ready().await;
    let key = AppRow::Plog(PARTITION, eventlog::Offset::FIRST).key();
    let foreign = Bytes::from_static(&[1]);
    let put = shop_db.app.storage.insert_if_not_exists(key, foreign, None, shop_db.soon());
    assert!(put.await.unwrap().is_applied());
    is_armed.store(true, Ordering::SeqCst);
    let mut ledger = AnswerLedger::default();
    let command = named("create", create_workspace(WS, shop_db.soon()));
    let answered = fixture.run(&node, &mut ledger, command).await;
    assert!(matches!(answered, Err(Refused::Unknown(_))), "{answered:?}");
    node.until(|status| matches!(status, Status::Failed(_))).await;
    let ended = node.stop().await;
    assert!(matches!(ended, PartitionEnd::Unproved(_)), "{ended:?}");
}

/// A storage that once gives no answer to a write of one storage partition, and does not do the
/// write.
#[derive(Debug)]
struct OnceSilentStorage {
    inner: SharedStorage,
    pkey: Mutex<Option<Bytes>>,
}

impl StorageWrapper for OnceSilentStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(Write::If(pkey, _)) = &call
            && self.pkey.lock().unwrap().take_if(|lost| lost == pkey).is_some()
        {
            return Err(Error::outcome_unknown("no answer"));
        }
        call.send(&self.inner, deadline).await
    }
}

/// A write of the log of a workspace got no answer, and the next attempt met a foreign row. The
/// partition reported only the row. So a node that was stopped released its lease, although the
/// first attempt could still land once the row was removed.
async fn row_in_the_way(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let inner = Arc::clone(&shop_db.app.storage);
    let loses = Arc::new(OnceSilentStorage { inner, pkey: Mutex::default() });
    let in_steps = NarrowStorage::beyond_atomic(Arc::clone(&loses) as SharedStorage, 100);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, at(in_steps)).await;
    let command = |request: &str| named(request, cud(WS, article("a"), shop_db.soon()));
    let first = fixture.run(&node, &mut ledger, command("first")).await.unwrap();
    let key = AppRow::Wlog(WsId(WS), first.wlog.next()).key();
    let foreign = Bytes::from_static(&[1]);
    let put = shop_db.app.storage.insert_if_not_exists(key.clone(), foreign, None, shop_db.soon());
    assert!(put.await.unwrap().is_applied());
    *loses.pkey.lock().unwrap() = Some(key.pkey);
    let _ = fixture.run(&node, &mut ledger, command("second")).await;
    node.until(|status| matches!(status, Status::Violation(_))).await;
    assert!(loses.pkey.lock().unwrap().is_none(), "the attempt was lost");
    let ended = node.stop().await;
    assert!(matches!(ended, PartitionEnd::Unproved(_)), "{ended:?}");
}

/// Sends commands together, on a storage where each group is one write. Returns the answers and the
/// number of writes. With `fails`, all these writes fail.
async fn in_one_group(
    fixture: &CommandsFixture,
    change: impl FnOnce(&mut ShopNodeSettings),
    fails: bool,
    commands: Vec<Command>,
) -> (Vec<Result<Done, Refused>>, usize) {
    let shop_db = &fixture.shop_db;
    let written = Arc::new(AtomicUsize::new(0));
    let is_armed = Arc::new(AtomicBool::new(false));
    let (count, armed) = (Arc::clone(&written), Arc::clone(&is_armed));
    let script = move |op| {
        if op != CallKind::WriteAtomic || !armed.load(Ordering::SeqCst) {
            return Fault::None;
        }
        count.fetch_add(1, Ordering::SeqCst);
        if fails { Fault::Unavailable } else { Fault::None }
    };
    let inner = Arc::clone(&shop_db.app.storage);
    let faulty = Arc::new(Faulty::scripted(inner, shop_db.clock.clone(), script));
    let hold = StallingStorage::new(faulty);
    let mut settings = at(Arc::new(hold.clone()));
    // On a busy machine the second command may come too late for the usual 50 ms.
    settings.partition.group_time = Duration::from_secs(60);
    change(&mut settings);
    let (node, _) = fixture.begin(PARTITION, WS, settings).await;
    is_armed.store(true, Ordering::SeqCst);
    hold.arm(StallPoint::Before(1));
    let sent = commands.into_iter().map(|command| node.commands.run(command));
    // All other commands wait when the first one begins.
    let held = async {
        hold.until_still().await;
        hold.go_on();
    };
    let (answered, ()) = join(join_all(sent), held).await;
    is_armed.store(false, Ordering::SeqCst);
    node.stop().await;
    (answered, written.load(Ordering::SeqCst))
}

/// The sender of a command that is told "the workspace exists already" relies on that. But the
/// workspace would have been made by the same group, which was not written.
async fn judged_by_nothing(fixture: &CommandsFixture) {
    if !fixture.is_embedded {
        return;
    }
    let create = || create_workspace(OTHER_WS, fixture.shop_db.soon());
    let (answered, written) = in_one_group(fixture, |_| {}, true, vec![create(), create()]).await;
    assert_eq!(written, 1, "both are in one group");
    for refused in answered {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Refused::Busy(Busy::Storage(_))), "{refused:?}");
    }
}

async fn few_bytes(fixture: &CommandsFixture) {
    if !fixture.is_embedded {
        return;
    }
    let four = (0..4).map(|_| cud(WS, article("a"), fixture.shop_db.soon())).collect();
    let change = |settings: &mut ShopNodeSettings| settings.partition.group_bytes = 1;
    let (answered, written) = in_one_group(fixture, change, false, four).await;
    answered.into_iter().for_each(|answered| drop(answered.unwrap()));
    assert_eq!(written, 4, "each by itself");
}

/// A storage that gives no answer to a write, and is closed from then on.
#[derive(Debug)]
struct ClosingStorage {
    inner: SharedStorage,
    is_armed: AtomicBool,
    is_closed: AtomicBool,
}

impl ClosingStorage {
    fn look(&self) -> istorage::Result<()> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(Error::closed());
        }
        if self.is_armed.load(Ordering::SeqCst) {
            self.is_closed.store(true, Ordering::SeqCst);
            return Err(Error::outcome_unknown("no answer"));
        }
        Ok(())
    }
}

impl StorageWrapper for ClosingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(_) = &call {
            self.look()?;
        }
        call.send(&self.inner, deadline).await
    }
}

/// A closed storage says nothing about the writes that were sent before: the command may be done.
async fn closes(fixture: &CommandsFixture) {
    let levels = [TrustLevel::Zero, TrustLevel::Two];
    let write_setups =
        levels.into_iter().flat_map(|level| [false, true].map(|steps| (level, steps)));
    for (partition, (level, in_steps)) in (PARTITION..).zip(write_setups) {
        let inner = Arc::clone(&fixture.shop_db.app.storage);
        let (is_armed, is_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let closes = Arc::new(ClosingStorage { inner, is_armed, is_closed });
        let storage: SharedStorage = match in_steps {
            true => NarrowStorage::of(Arc::clone(&closes) as SharedStorage, 100, true),
            false => Arc::clone(&closes) as SharedStorage,
        };
        let settings = ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(level) };
        let ws = WS + u64::from(partition - PARTITION);
        let (node, mut ledger) = fixture.begin(partition, ws, settings).await;
        closes.is_armed.store(true, Ordering::SeqCst);
        let command = named("open", cud(ws, article("a"), fixture.shop_db.soon()));
        let answered = fixture.run(&node, &mut ledger, command).await;
        assert!(matches!(answered, Err(Refused::Unknown(_))), "{level:?} {answered:?}");
        node.until(|status| matches!(status, Status::Failed(_))).await;
        let ended = node.stop().await;
        assert!(matches!(ended, PartitionEnd::Unproved(_)), "{ended:?}");
    }
}

/// The disk was full. The partition reported that it was ready, and commands waited in its queue
/// until their deadlines.
async fn reported(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    for (partition, level) in (PARTITION..).zip([TrustLevel::Zero, TrustLevel::Two]) {
        let is_full = Arc::new(AtomicBool::new(false));
        let full = Arc::clone(&is_full);
        let script = move |op| {
            let is_write = matches!(
                op,
                CallKind::WriteIf
                    | CallKind::WriteAtomic
                    | CallKind::PutOrdered
                    | CallKind::PutBatch
            );
            let fails = is_write && full.load(Ordering::SeqCst);
            if fails { Fault::NotAppliedButError } else { Fault::None }
        };
        let inner = Arc::clone(&shop_db.app.storage);
        let storage: SharedStorage =
            Arc::new(Faulty::scripted(inner, shop_db.clock.clone(), script));
        let settings = ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(level) };
        let ws = WS + u64::from(partition - PARTITION);
        let (node, mut ledger) = fixture.begin(partition, ws, settings).await;
        is_full.store(true, Ordering::SeqCst);
        let open = named("open", cud(ws, article("a"), shop_db.soon()));
        let mut open = pin!(node.commands.run(open));
        let is_reported =
            |status: &Status| matches!(status, Status::Stalled(what) if what.contains("retrying"));
        tokio::select! {
            answered = &mut open => panic!("nothing was written: {answered:?}"),
            _ = node.until(is_reported) => {}
        }
        let next = node.commands.run(named("next", cud(ws, article("b"), shop_db.soon()))).await;
        assert!(matches!(next, Err(Refused::Busy(Busy::Storage(_)))), "{next:?}");
        is_full.store(false, Ordering::SeqCst);
        let answered = open.await;
        ledger.note("open", &answered);
        assert!(answered.is_ok(), "{level:?} {answered:?}");
        assert_eq!(node.commands.status(), Status::Ready);
        let after = named("after", cud(ws, article("c"), shop_db.soon()));
        fixture.run(&node, &mut ledger, after).await.unwrap();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        check(shop_db, partition, &ledger).await;
    }
}
