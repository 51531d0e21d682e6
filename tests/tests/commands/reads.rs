//! Clients that read logs, records and answers, while commands write them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use eventlog::{AppRow, Entry, Epoch, Offset, TrustLevel, WsId};
use futures::{
    StreamExt, TryStreamExt,
    future::{join, join_all, ready},
};
use isequencer::standard::WLOG_OFFSET;
use istorage::{
    CallKind, Consistency, Key, Order, OrderedPut, RangeRead, RowStream, SharedStorage,
    StorageWrapper,
};
use processor::{Busy, Command, IdempotencyKey, PartitionEnd, Refused, Status};
use shop::{
    CheckOptions, NarrowStorage, ShopNode, ShopNodeSettings, StallPoint, StallingStorage, article,
    check, check_with, create_workspace, cud,
};
use tck::{
    storage::{Fault, Faulty},
    trial::{Trial, trials},
};

use crate::{
    fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named},
    scene::LEVELS,
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(reads:
    an_acknowledged_event_is_readable_also_if_the_rest_of_its_group_failed = acknowledged,
    a_command_that_is_sent_again_gets_the_first_answer_until_that_expires = expired,
    a_command_that_is_sent_again_is_not_done_again_when_its_event_is_damaged = damaged_event,
    an_event_of_a_former_leader_behind_the_last_offset_is_not_returned = left_behind,
    an_unreadable_row_is_reported_until_it_can_be_read = unreadable,
    a_missing_event_is_reported_also_while_the_partition_recovers = missing_while_recovering,
);

/// How long answers are kept in the trial of their expiry. Cassandra expires rows by whole seconds.
const KEPT: Duration = Duration::from_secs(3);

/// When an answer has expired, the same command is a new one. No suite waited for that.
async fn expired(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    for (partition, level) in (PARTITION..).zip(LEVELS) {
        let ws = WS + u64::from(partition - PARTITION);
        let settings = ShopNodeSettings { answers_kept: KEPT, ..ShopNodeSettings::at(level) };
        let (node, mut ledger) = fixture.begin(partition, ws, settings).await;
        let send = async |request: &str| {
            let repeat = Some(IdempotencyKey::new("joe", b"key", b"body"));
            let command = Command {
                idempotency_key: repeat,
                ..named(request, cud(ws, article("a"), shop_db.soon()))
            };
            node.commands.run(command).await.unwrap()
        };
        let begun = shop_db.clock.now();
        let first = send("first").await;
        ledger.note("first", &Ok(first.clone()));
        assert!(!first.is_repeated);
        let mut again = 0;
        let second = loop {
            let asked = shop_db.clock.now();
            let done = send("second").await;
            if !done.is_repeated {
                // The storage counts from a moment after `begun`, and may round by a second.
                let kept = shop_db.clock.now() - begun;
                assert!(kept + Duration::from_secs(1) >= KEPT, "it was kept for {kept:?}");
                break done;
            }
            assert_eq!((done.version(), &done.answer), (first.version(), &first.answer));
            let late = asked - begun;
            assert!(late < KEPT + Duration::from_secs(60), "it is still kept after {late:?}");
            again += 1;
            shop_db.clock.sleep(Duration::from_millis(50)).await;
        };
        assert!(again > 0, "it was sent again while the answer was kept");
        ledger.note("second", &Ok(second.clone()));
        assert_eq!(second.plog, first.plog.next());
        assert_ne!(second.answer.ids, first.answer.ids, "it made new records");
        let third = send("third").await;
        assert!(third.is_repeated && third.version() == second.version(), "{third:?}");
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        check(shop_db, partition, &ledger).await;
    }
}

/// At trust level 2 the event of a stored answer is looked up in the log. An event that could not
/// be read was treated like an event that does not exist, so the command was done a second time.
async fn damaged_event(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (node, _) = fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Two)).await;
    let send = async || {
        let repeat = Some(IdempotencyKey::new("joe", b"key", b"body"));
        let command = Command {
            idempotency_key: repeat,
            ..named("first", cud(WS, article("a"), shop_db.soon()))
        };
        node.commands.run(command).await
    };
    let first = send().await.unwrap();
    let damage = OrderedPut {
        key: AppRow::Plog(PARTITION, first.plog).key(),
        value: Bytes::from_static(b"damaged"),
        order: Order::new(Order::MAX).unwrap(),
        ttl: None,
    };
    shop_db.app.storage.put_ordered(vec![damage], shop_db.soon()).await.unwrap();
    let again = send().await;
    assert!(matches!(again, Err(Refused::Rejected(_))), "{again:?}");
    let next = AppRow::Plog(PARTITION, first.plog.next()).key();
    let next = shop_db.app.storage.get(&next, Consistency::Linearizable, shop_db.soon());
    assert_eq!(next.await.unwrap(), None, "nothing was done");
    node.stop().await;
}

/// A group of two events was written in two steps, and the second step failed. The first command
/// was acknowledged, but readers of logs still got the end from before the group. So the
/// acknowledged event was missing from `/wlog` until the recovery was done.
async fn acknowledged(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (is_armed, is_blind) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let (armed, blind) = (Arc::new(is_armed), Arc::clone(&is_blind));
    let writes = AtomicUsize::new(0);
    let is_armed = Arc::clone(&armed);
    // The second conditional write is the second event of the group. From then on nothing can be
    // read, so the recovery cannot help.
    let script = move |op| {
        let is_armed = armed.load(Ordering::SeqCst);
        if is_armed && op == CallKind::WriteIf && writes.fetch_add(1, Ordering::SeqCst) == 1 {
            blind.store(true, Ordering::SeqCst);
            return Fault::Unavailable;
        }
        let is_read = matches!(op, CallKind::Get | CallKind::GetBatch | CallKind::Read);
        if is_read && blind.load(Ordering::SeqCst) { Fault::Unavailable } else { Fault::None }
    };
    let one_by_one = NarrowStorage::beyond_atomic(Arc::clone(&shop_db.app.storage), 1);
    let faulty: SharedStorage =
        Arc::new(Faulty::scripted(one_by_one, shop_db.clock.clone(), script));
    let hold = StallingStorage::new(faulty);
    let storage: SharedStorage = Arc::new(hold.clone());
    let settings = ShopNodeSettings {
        storage: Some(storage),
        in_view: true,
        ..ShopNodeSettings::at(TrustLevel::Zero)
    };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;

    is_armed.store(true, Ordering::SeqCst);
    hold.arm(StallPoint::Before(1));
    let repeat = |key: &[u8]| Some(IdempotencyKey::new("joe", key, b""));
    let command = |request: &str| Command {
        idempotency_key: repeat(request.as_bytes()),
        ..named(request, cud(WS, article(request), shop_db.soon()))
    };
    let sent = ["first", "second"].map(|request| node.commands.run(command(request)));
    // Both commands wait in the queue when the first one begins.
    let held = async {
        hold.until_still().await;
        hold.go_on();
    };
    let (answered, ()) = join(join_all(sent), held).await;
    for (request, answer) in ["first", "second"].into_iter().zip(&answered) {
        ledger.note(request, answer);
    }
    let done = answered[0].as_ref().unwrap();
    assert!(matches!(answered[1], Err(Refused::Busy(Busy::Storage(_)))), "{answered:?}");
    let applied = node.commands.applied().unwrap();
    assert!(applied > done.plog, "readers see the log before {applied:?}, and not {done:?}");

    is_blind.store(false, Ordering::SeqCst);
    node.ready().await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let options = CheckOptions::IN_VIEW;
    check_with(shop_db, PARTITION, &ledger, options).await;
}

/// At level 2 a leader that had lost its leadership left an event in both logs. Another event
/// replaced it in the PLog. Readers of the log of the workspace still got the replaced event, which
/// is no event any more.
async fn left_behind(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (node, mut ledger) =
        fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Two)).await;
    let other = named("other", create_workspace(OTHER_WS, shop_db.soon()));
    fixture.run(&node, &mut ledger, other).await.unwrap();
    let done = named("done", cud(WS, article("a"), shop_db.soon()));
    let done = fixture.run(&node, &mut ledger, done).await.unwrap();
    let (ws, reader) = (WsId(WS), shop_db.reader());
    let mut entry = reader.wlog(ws, done.wlog, None).try_next().await.unwrap().unwrap();
    let Entry::Event(event) = &mut entry else { panic!("{entry:?}") };
    let place = &mut event.place;
    // The event is older than all events that this leader writes.
    (place.epoch, place.plog, place.wlog) = (Epoch(0), done.plog.next(), done.wlog.next());
    let order = Order::from_parts(0, place.plog.0).unwrap();
    let rows = [AppRow::Plog(PARTITION, place.plog), AppRow::Wlog(ws, place.wlog)];
    let put =
        |row: &AppRow| OrderedPut { key: row.key(), value: entry.to_bytes(), order, ttl: None };
    let puts = rows.iter().map(put).collect();
    shop_db.app.storage.put_ordered(puts, shop_db.soon()).await.unwrap();

    let last = async |node: &ShopNode| {
        let stored = node.stored(ws, WLOG_OFFSET);
        let log = node.commands.wlog(ws, Offset::FIRST, stored).unwrap();
        log.map_ok(|entry| entry.place().unwrap())
            .try_collect::<Vec<_>>()
            .await
            .unwrap()
            .pop()
            .unwrap()
    };
    assert_eq!(last(&node).await.wlog, done.wlog);
    // The replacing event belongs to another workspace, and has the same PLog offset.
    let next = named("next", cud(OTHER_WS, article("b"), shop_db.soon()));
    let next = fixture.run(&node, &mut ledger, next).await.unwrap();
    assert_eq!(next.plog, done.plog.next());
    assert_eq!(last(&node).await.wlog, done.wlog, "it is no event of the log");
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    // A leader with all numbers stored returns the same.
    let node = shop_db.node(PARTITION, ShopNodeSettings::at(TrustLevel::Two));
    node.ready().await;
    assert_eq!(last(&node).await.wlog, done.wlog, "nor for the next leader");
    let command = named("replaces", cud(WS, article("c"), shop_db.soon()));
    let replaces = fixture.run(&node, &mut ledger, command).await.unwrap();
    let is_reported = (last(&node).await.wlog, last(&node).await.plog);
    assert_eq!(is_reported, (replaces.wlog, replaces.plog));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}

/// A storage that cannot read one row, and does not say which one.
#[derive(Debug)]
struct UnreadableRowStorage {
    inner: SharedStorage,
    row: Mutex<Option<Key>>,
}

impl StorageWrapper for UnreadableRowStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let spoiled = self.row.lock().unwrap().clone().filter(|key| key.pkey == read.pkey);
        let spoil = move |row: istorage::Row| match &spoiled {
            Some(key) if key.ccols == row.ccols => Err(istorage::Error::corrupt("a bad page")),
            _ => Ok(row),
        };
        read.send(&self.inner).and_then(move |row| ready(spoil(row))).boxed()
    }
}

/// A row that the storage could not read was noted as damage of the first row of the list. The next
/// reader of that row found it undamaged, so the status forgot the damage. The next list logged the
/// damage again.
async fn unreadable(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let inner = Arc::clone(&shop_db.app.storage);
    let spoiled = Arc::new(UnreadableRowStorage { inner, row: Mutex::default() });
    let storage = Some(Arc::clone(&spoiled) as SharedStorage);
    let settings = ShopNodeSettings { storage, ..ShopNodeSettings::at(TrustLevel::Zero) };
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let done = named("article", cud(WS, article("a"), shop_db.soon()));
    let done = fixture.run(&node, &mut ledger, done).await.unwrap();
    let (ws, ids) = (WsId(WS), [0, 1, 2].map(|n| done.answer.ids[n].1));
    let list = async || {
        let read: Vec<_> = node.commands.records(ws, ids[0], ids[2]).collect().await;
        (read.iter().filter(|read| read.is_ok()).count(), read.iter().any(Result::is_err))
    };
    assert_eq!((list().await, node.commands.damaged().1), ((3, false), 0));
    *spoiled.row.lock().unwrap() = Some(AppRow::Record(ws, ids[2]).key());
    for _ in 0..2 {
        assert_eq!((list().await, node.commands.damaged().1), ((2, true), 1));
        node.commands.record(ws, ids[0]).await.unwrap();
        let (rows, count) = node.commands.damaged();
        assert!(count == 1 && rows[0].contains("a bad page"), "{rows:?}");
    }
    *spoiled.row.lock().unwrap() = None;
    assert_eq!((list().await, node.commands.damaged().1), ((3, false), 0));
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check(shop_db, PARTITION, &ledger).await;
}

/// A storage without one row.
#[derive(Debug)]
struct MissingRowStorage {
    inner: SharedStorage,
    row: Key,
}

impl StorageWrapper for MissingRowStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let missing = Some(self.row.clone()).filter(|key| key.pkey == read.pkey);
        let is_there = move |row: &istorage::Row| {
            ready(missing.as_ref().is_none_or(|key| key.ccols != row.ccols))
        };
        read.send(&self.inner).try_filter(is_there).boxed()
    }
}

/// Events were acknowledged, and their numbers were not stored yet. One of the events was missing
/// from the log of its workspace, and a later group was not written. While the partition recovered,
/// the log ended before the missing event, as if that event had never existed.
async fn missing_while_recovering(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let is_full = Arc::new(AtomicBool::new(false));
    let full = Arc::clone(&is_full);
    let script = move |call| match call {
        CallKind::WriteIf | CallKind::WriteAtomic | CallKind::PutOrdered
            if full.load(Ordering::SeqCst) =>
        {
            Fault::Unavailable
        }
        _ => Fault::None,
    };
    let (ws, missing) = (WsId(WS), Offset(3));
    let inner = Arc::clone(&shop_db.app.storage);
    let row = AppRow::Wlog(ws, missing).key();
    let inner: SharedStorage = Arc::new(MissingRowStorage { inner, row });
    let faulty = Faulty::scripted(inner, shop_db.clock.clone(), script);
    let mut settings = ShopNodeSettings {
        storage: Some(Arc::new(faulty)),
        in_view: true,
        ..ShopNodeSettings::at(TrustLevel::Zero)
    };
    settings.partition.sequencer.flush_delay = Duration::from_secs(3_600);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    for number in 0..4 {
        let command = named(&format!("done {number}"), cud(WS, article("a"), shop_db.soon()));
        fixture.run(&node, &mut ledger, command).await.unwrap();
    }
    let read = async || {
        let log = node.commands.wlog(ws, Offset::FIRST, node.stored(ws, WLOG_OFFSET)).unwrap();
        let read: Vec<_> = log.map_ok(|entry| entry.place().unwrap().wlog.0).collect().await;
        assert!(matches!(&read[..], [Ok(1), Ok(2), Err(_)]), "{read:?}");
    };
    read().await;
    is_full.store(true, Ordering::SeqCst);
    let failed = named("failed", cud(WS, article("b"), shop_db.soon()));
    fixture.run(&node, &mut ledger, failed).await.unwrap_err();
    node.until(|status| matches!(status, Status::Recovering(_))).await;
    read().await;
    is_full.store(false, Ordering::SeqCst);
    node.ready().await;
    read().await;
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    check_with(shop_db, PARTITION, &ledger, CheckOptions::IN_VIEW).await;
}
