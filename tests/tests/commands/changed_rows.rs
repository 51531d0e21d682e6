//! Rows that another writer changes under a working node: with a higher or a lower order, or
//! between the read of a command and its write.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, Offset, RecordId, StoredRecord, TrustLevel, WsId};
use istorage::{
    AppStorageExt, Call, CallAnswer, Key, Order, OrderedPut, SharedStorage, StorageWrapper, Write,
};
use processor::{PartitionEnd, Refused, Status};
use shop::{ShopNode, ShopNodeSettings, article, cud, update};
use tck::trial::{Trial, trials};

use crate::{
    fixture::{CommandsFixture, PARTITION, WS, named},
    sabotage::{
        SabotagedRow::{self, NewRecord, Plog, Wlog},
        places, stored,
    },
    scene::{Scene, WriteSetup, play},
};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(changed_rows:
    of_two_ordered_writes_of_a_row_the_right_one_stays = ordered,
    a_record_that_changed_since_it_was_read_is_reported_and_read_again = changed,
    a_record_that_was_deleted_since_it_was_read_is_reported = deleted,
);

/// The rows that are ordered, by trust level.
const ORDERED: [(TrustLevel, SabotagedRow); 4] = [
    (TrustLevel::One, NewRecord),
    (TrustLevel::Two, Plog),
    (TrustLevel::Two, Wlog),
    (TrustLevel::Two, NewRecord),
];

/// Another writer has a higher epoch than the node, or a lower one. The node does not notice the
/// row of that writer. At level 2 the later event stays, and at level 1 the earlier one makes the
/// record.
async fn ordered(fixture: &CommandsFixture) {
    let of_epochs = |(level, row)| [1 << 20, 0].map(|epoch| (level, row, epoch));
    let cases: Vec<_> = ORDERED.into_iter().flat_map(of_epochs).collect();
    play(cases, 0, async |partition, (level, row, epoch)| {
        let scene = Scene::new(fixture, partition, WriteSetup { level, narrow: None }).await;
        let node = scene.next().await;
        scene.begin_work(&node, scene.other).await;
        let (next, (row, _)) = (scene.end(), places(&scene, row));
        let (key, value) = (row.key(), Bytes::from_static(&[1]));
        let order = Order::from_parts(epoch, next.0).unwrap();
        let is_first = level == TrustLevel::One;
        let order = if is_first { order.first_wins() } else { order };
        let put = OrderedPut { key, value: value.clone(), order, ttl: None };
        let shop_db = &fixture.shop_db;
        shop_db.app.storage.put_ordered(vec![put], shop_db.soon()).await.unwrap();
        let done = scene.run(&node, scene.changes("unnoticed")).await.unwrap();
        assert_eq!(done.plog, next);
        let stays = (epoch > node.log.fence().epoch().0) != is_first;
        assert_eq!(stored(&scene, row).await == Some(value), stays);
        scene.run(&node, scene.changes("after")).await.unwrap();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        if !stays {
            scene.check(None).await;
        }
    })
    .await;
}

/// A storage that replaces or deletes a record between the read of a command and its write.
#[derive(Debug)]
struct RecordChangingStorage {
    inner: SharedStorage,
    key: Key,
    change: Mutex<Option<RecordChange>>,
}

#[derive(Clone, Debug)]
enum RecordChange {
    Replace(Bytes),
    Delete,
}

impl RecordChangingStorage {
    async fn change(&self, deadline: Instant) {
        let change = self.change.lock().unwrap().take();
        if let Some(change) = change {
            let (inner, key) = (&self.inner, self.key.clone());
            let there = inner.get_linearizable(&key, deadline).await.unwrap().unwrap();
            let changed = match change {
                RecordChange::Replace(value) => {
                    inner.compare_and_swap(key, there, value, None, deadline).await
                }
                RecordChange::Delete => inner.compare_and_delete(key, there, deadline).await,
            };
            assert!(changed.unwrap().is_applied());
        }
    }
}

impl StorageWrapper for RecordChangingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(Write::If(..) | Write::Atomic(_)) = &call {
            self.change(deadline).await;
        }
        call.send(&self.inner, deadline).await
    }
}

/// A partition where a command has made an article.
async fn with_article(fixture: &CommandsFixture, partition: u16, ws: u64) -> RecordId {
    let shop_db = &fixture.shop_db;
    let settings = ShopNodeSettings::at(TrustLevel::Zero);
    let (node, mut ledger) = fixture.begin(partition, ws, settings).await;
    let command = named("article", cud(ws, article("a"), shop_db.soon()));
    let done = fixture.run(&node, &mut ledger, command).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
    done.answer.ids[0].1
}

/// A node on a storage that changes the row at this key before the first event of the node.
fn changing_node(
    fixture: &CommandsFixture,
    partition: u16,
    key: Key,
    change: RecordChange,
) -> ShopNode {
    let inner = Arc::clone(&fixture.shop_db.app.storage);
    let change = Mutex::new(Some(change));
    let storage: SharedStorage = Arc::new(RecordChangingStorage { inner, key, change });
    let settings =
        ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(TrustLevel::Zero) };
    fixture.shop_db.node(partition, settings)
}

/// A record changed after a command had read it. The refusal names that row. If the event of the
/// command is not in the log, a new read is enough. But the partition used to wait until the row
/// changed once more. If the event is in the log, an operator has to look at the row.
async fn changed(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let id = with_article(fixture, PARTITION, WS).await;
    let row = AppRow::Record(WsId(WS), id);
    let there = shop_db.app.storage.get_linearizable(&row.key(), shop_db.soon()).await.unwrap();
    let mut stored = StoredRecord::from_bytes(&there.unwrap()).unwrap();
    // The record is as it was at an earlier moment.
    stored.version.plog = Offset(stored.version.plog.0 - 1);
    let change = RecordChange::Replace(stored.to_bytes());
    let at_once = shop_db.app.storage.capabilities().atomic.is_some();
    let node = changing_node(fixture, PARTITION, row.key(), change);
    node.ready().await;
    let change = || cud(WS, vec![update(id, None, "newer")], shop_db.soon());
    let refused = node.commands.run(named("changed", change())).await.unwrap_err();
    assert!(refused.to_string().contains(&row.to_string()), "{refused}");
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

/// A record was deleted after a command had read it. Where the storage has no atomic writes, the
/// record was inserted again: the deletion was undone, and nobody noticed.
async fn deleted(fixture: &CommandsFixture) {
    let (shop_db, partition, ws) = (&fixture.shop_db, PARTITION + 1, WS + 1);
    let storage = &shop_db.app.storage;
    let id = with_article(fixture, partition, ws).await;
    let row = AppRow::Record(WsId(ws), id);
    let there = storage.get_linearizable(&row.key(), shop_db.soon()).await.unwrap().unwrap();
    let node = changing_node(fixture, partition, row.key(), RecordChange::Delete);
    node.ready().await;
    let change = || cud(ws, vec![update(id, None, "newer")], shop_db.soon());
    let refused = node.commands.run(named("deleted", change())).await.unwrap_err();
    assert!(refused.to_string().contains(&row.to_string()), "{refused}");
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let found = storage.get_linearizable(&row.key(), shop_db.soon()).await.unwrap();
    assert_eq!(found, None, "the deletion is not undone");
    // An operator puts the former bytes back, and the partition goes on by itself.
    let put = storage.insert_if_not_exists(row.key(), there, None, shop_db.soon());
    assert!(put.await.unwrap().is_applied());
    node.ready().await;
    node.commands.run(named("again", change())).await.unwrap();
    assert_eq!(node.stop().await, PartitionEnd::Stopped);
}
