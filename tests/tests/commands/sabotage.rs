//! Foreign rows in the places where the next command is to write. No node wrote these rows. The
//! cases are SequencesTrustLevel0, 1 and 2.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, Offset, RecordId, StoredRecord, TrustLevel, WsId};
use istorage::{
    AppStorageExt, Call, CallAnswer, Key, Order, OrderedPut, SharedStorage, StorageWrapper, Write,
};
use processor::{Busy, Done, PartitionEnd, Refused, Status};
use shop::{AnswerLedger, ShopNode, ShopNodeSettings, article, check, cud, update};
use trialkit::{Trial, trials};

use crate::fixture::{CommandsFixture, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(sabotage:
    sequences_trust_level_0 = level_0,
    sequences_trust_level_1 = level_1,
    sequences_trust_level_2 = level_2,
    a_record_that_changed_since_it_was_read_is_reported_and_read_again = changed,
);

/// The value of the foreign row.
const FOREIGN: Bytes = Bytes::from_static(&[1]);

/// A kind of row that the next command is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SabotagedRow {
    Plog,
    Wlog,
    Record,
}

impl SabotagedRow {
    const ALL: [SabotagedRow; 3] = [SabotagedRow::Plog, SabotagedRow::Wlog, SabotagedRow::Record];

    /// The row of the command after the one that was done.
    fn next(self, partition: u16, ws: u64, done: &Done) -> AppRow {
        match self {
            SabotagedRow::Plog => AppRow::Plog(partition, done.plog.next()),
            SabotagedRow::Wlog => AppRow::Wlog(WsId(ws), done.wlog.next()),
            SabotagedRow::Record => {
                let last = done.answer.ids.iter().map(|(_, id)| id.0).max().unwrap();
                AppRow::Record(WsId(ws), RecordId(last + 1))
            }
        }
    }
}

/// A case in a partition of its own, with a workspace and an article.
struct SabotageCase<'s> {
    fixture: &'s CommandsFixture,
    partition: u16,
    ws: u64,
    node: ShopNode,
    ledger: AnswerLedger,
    last: Done,
}

impl<'s> SabotageCase<'s> {
    async fn new(fixture: &'s CommandsFixture, level: TrustLevel, number: u16) -> SabotageCase<'s> {
        let (partition, ws) = (PARTITION + 10 * number, WS + 10 * u64::from(number));
        let (node, mut ledger) = fixture.begin(partition, ws, ShopNodeSettings::at(level)).await;
        let first = named("first", cud(ws, article("first"), fixture.shop_db.soon()));
        let last = fixture.run(&node, &mut ledger, first).await.unwrap();
        SabotageCase { fixture, partition, ws, node, ledger, last }
    }

    async fn run(&mut self, request: &str) -> Result<Done, Refused> {
        let command = named(request, cud(self.ws, article(request), self.fixture.shop_db.soon()));
        self.fixture.run(&self.node, &mut self.ledger, command).await
    }

    async fn there(&self, row: AppRow) -> Option<Bytes> {
        let storage = &self.fixture.shop_db.app.storage;
        storage.get_linearizable(&row.key(), self.fixture.shop_db.soon()).await.unwrap()
    }

    /// Checks that the foreign row is not overwritten. The partition reports the row, and goes on
    /// when the row is gone.
    async fn stops_at(mut self, target: SabotagedRow) {
        let (shop_db, row) =
            (&self.fixture.shop_db, target.next(self.partition, self.ws, &self.last));
        let key = row.key();
        let put =
            shop_db.app.storage.insert_if_not_exists(key.clone(), FOREIGN, None, shop_db.soon());
        assert!(put.await.unwrap().is_applied());
        let refused = self.run("stopped").await.unwrap_err();
        match (&refused, target) {
            (Refused::Busy(Busy::Violation(what)), _) => assert!(says(what, row), "{what}"),
            // If a group is written in steps, its event is already in the log.
            (Refused::NotApplied { plog, why }, SabotagedRow::Wlog | SabotagedRow::Record) => {
                assert_eq!(*plog, self.last.plog.next());
                assert!(says(why, row), "{why}");
            }
            other => panic!("{other:?}"),
        }
        let status = self.node.until(|status| matches!(status, Status::Violation(_))).await;
        assert!(matches!(&status, Status::Violation(what) if says(what, row)), "{status:?}");
        let refused = self.run("too early").await.unwrap_err();
        assert!(matches!(refused, Refused::Busy(Busy::Violation(_))), "{refused:?}");
        assert_eq!(self.there(row).await, Some(FOREIGN), "it is not overwritten");

        let gone = shop_db.app.storage.compare_and_delete(key, FOREIGN, shop_db.soon());
        assert!(gone.await.unwrap().is_applied());
        self.node.ready().await;
        self.run("after").await.unwrap();
        assert_eq!(self.node.stop().await, PartitionEnd::Stopped);
        check(shop_db, self.partition, &self.ledger).await;
    }

    /// Checks that the foreign row is not noticed. Of the two writes of the row the higher order
    /// stays.
    async fn passes(mut self, target: SabotagedRow, epoch: u64) {
        let (shop_db, row) =
            (&self.fixture.shop_db, target.next(self.partition, self.ws, &self.last));
        let order = Order::from_parts(epoch, self.last.plog.0).unwrap();
        let put = OrderedPut { key: row.key(), value: FOREIGN, order, ttl: None };
        shop_db.app.storage.put_ordered(vec![put], shop_db.soon()).await.unwrap();
        let done = self.run("unnoticed").await.unwrap();
        assert_eq!(done.plog, self.last.plog.next());
        let is_later = epoch > self.node.log.epoch().0;
        assert_eq!(self.there(row).await == Some(FOREIGN), is_later);
        self.run("after").await.unwrap();
        assert_eq!(self.node.stop().await, PartitionEnd::Stopped);
        if !is_later {
            check(shop_db, self.partition, &self.ledger).await;
        }
    }
}

/// Whether a message names a row.
fn says(message: &str, row: AppRow) -> bool {
    message.contains(&row.to_string())
}

async fn level_0(fixture: &CommandsFixture) {
    for (number, target) in (0..).zip(SabotagedRow::ALL) {
        SabotageCase::new(fixture, TrustLevel::Zero, number).await.stops_at(target).await;
    }
}

async fn level_1(fixture: &CommandsFixture) {
    for (number, target) in (0..).zip([SabotagedRow::Plog, SabotagedRow::Wlog]) {
        SabotageCase::new(fixture, TrustLevel::One, number).await.stops_at(target).await;
    }
    for (number, epoch) in [(2, 1 << 20), (3, 0)] {
        let case = SabotageCase::new(fixture, TrustLevel::One, number).await;
        case.passes(SabotagedRow::Record, epoch).await;
    }
}

async fn level_2(fixture: &CommandsFixture) {
    let mut number = 0;
    for target in SabotagedRow::ALL {
        for epoch in [1 << 20, 0] {
            let case = SabotageCase::new(fixture, TrustLevel::Two, number).await;
            case.passes(target, epoch).await;
            number += 1;
        }
    }
}

/// A storage that replaces a record between the read of a command and its write.
#[derive(Debug)]
struct RecordReplacingStorage {
    inner: SharedStorage,
    key: Key,
    value: Mutex<Option<Bytes>>,
}

impl RecordReplacingStorage {
    async fn put(&self, deadline: Instant) {
        let value = self.value.lock().unwrap().take();
        if let Some(value) = value {
            let there = self.inner.get_linearizable(&self.key, deadline).await.unwrap().unwrap();
            let swap = self.inner.compare_and_swap(self.key.clone(), there, value, None, deadline);
            assert!(swap.await.unwrap().is_applied());
        }
    }
}

impl StorageWrapper for RecordReplacingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(Write::If(..) | Write::Atomic(_)) = &call {
            self.put(deadline).await;
        }
        call.send(&self.inner, deadline).await
    }
}

/// A record changed after a command had read it. The refusal names that row. If the event of the
/// command is not in the log, a new read is enough. But the partition used to wait until the row
/// changed once more. If the event is in the log, an operator has to look at the row.
async fn changed(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let (node, mut ledger) =
        fixture.begin(PARTITION, WS, ShopNodeSettings::at(TrustLevel::Zero)).await;
    let command = named("article", cud(WS, article("a"), shop_db.soon()));
    let done = fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    let id = done.answer.ids[0].1;
    let key = AppRow::Record(WsId(WS), id).key();
    let there = shop_db.app.storage.get_linearizable(&key, shop_db.soon()).await.unwrap().unwrap();
    let mut stored = StoredRecord::from_bytes(&there).unwrap();
    // The record is as it was at an earlier moment.
    stored.version.plog = Offset(stored.version.plog.0 - 1);
    let value = Mutex::new(Some(stored.to_bytes()));
    let inner = Arc::clone(&shop_db.app.storage);
    let storage: SharedStorage = Arc::new(RecordReplacingStorage { inner, key, value });
    let at_once = storage.capabilities().atomic.is_some();
    let settings =
        ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(TrustLevel::Zero) };
    let node = shop_db.node(PARTITION, settings);
    node.ready().await;
    let change = || cud(WS, vec![update(id, None, "newer")], shop_db.soon());
    let refused = node.commands.run(named("changed", change())).await.unwrap_err();
    let row = AppRow::Record(WsId(WS), id);
    assert!(says(&refused.to_string(), row), "{refused}");
    if at_once {
        node.ready().await;
        node.commands.run(named("again", change())).await.unwrap();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    } else {
        assert!(matches!(refused, Refused::NotApplied { .. }), "{refused:?}");
        node.until(|status| matches!(status, Status::Violation(_))).await;
        node.stop().await;
    }
}
