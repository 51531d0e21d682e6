//! A foreign row that a recovery meets, together with writes that got no answer.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, TrustLevel, WsId};
use futures::future::join;
use istorage::{AppStorageExt, Call, CallAnswer, Error, SharedStorage, StorageWrapper, Write};
use processor::{Command, IdempotencyKey, PartitionEnd, Refused, Status};
use shop::{
    NarrowStorage, ShopNode, ShopNodeSettings, StallPoint, StallingStorage, article,
    create_workspace, cud,
};
use tck::trial::{Trial, trials};

use crate::fixture::{CommandsFixture, OTHER_WS, PARTITION, WS, named};

pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(foreign_rows:
    a_foreign_row_does_not_stop_other_rows_of_its_write = others_are_written,
    a_foreign_row_does_not_stop_other_rows_of_a_recovery = others_are_applied,
    an_attempt_of_a_recovery_stays_unknown_behind_a_foreign_row = stays_open,
);

fn at(storage: SharedStorage) -> ShopNodeSettings {
    ShopNodeSettings {
        apply_for: Duration::from_millis(100),
        storage: Some(storage),
        ..ShopNodeSettings::at(TrustLevel::Zero)
    }
}

/// The behaviour of a storage when rows are read together, as a recovery does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BatchReads {
    /// The storage reads the rows.
    Reads,
    /// The storage reads the rows, and from then on it answers all writes.
    Mends,
    /// The storage reads rows a limited number of times. So a recovery does not reach its writes.
    FailsAfterWrite,
}

/// Whether a write names rows of a storage partition.
fn is_of(write: &Write, pkey: &Bytes) -> bool {
    match write {
        Write::If(of, _) => of == pkey,
        Write::PutOrdered(rows) => rows.iter().any(|row| row.key.pkey == pkey),
        Write::PutBatch(_) | Write::Atomic(_) => false,
    }
}

/// A storage that answers no write of one storage partition, and does none of them.
#[derive(Debug)]
struct SilentStorage {
    inner: SharedStorage,
    pkey: Mutex<Option<Bytes>>,
    together: BatchReads,
    reads_left: AtomicUsize,
}

impl SilentStorage {
    fn new(fixture: &CommandsFixture, together: BatchReads) -> Arc<SilentStorage> {
        let inner = Arc::clone(&fixture.shop_db.app.storage);
        let reads_left = AtomicUsize::new(usize::MAX);
        Arc::new(SilentStorage { inner, pkey: Mutex::default(), together, reads_left })
    }
}

impl StorageWrapper for SilentStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        match (&call, self.together) {
            (Call::GetBatch(_) | Call::GetValues(_), BatchReads::Mends) => {
                *self.pkey.lock().unwrap() = None
            }
            (Call::GetBatch(_) | Call::GetValues(_), BatchReads::FailsAfterWrite) => {
                let fewer = |left: usize| left.checked_sub(1);
                let left = self.reads_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
                left.map_err(|_| Error::unavailable("rows cannot be read together"))?;
            }
            (Call::Write(write), _)
                if self.pkey.lock().unwrap().as_ref().is_some_and(|lost| is_of(write, lost)) =>
            {
                return Err(Error::outcome_unknown("no answer"));
            }
            _ => {}
        }
        call.send(&self.inner, deadline).await
    }
}

/// Puts a foreign row in the place of a row that an event is to write.
async fn put_foreign(fixture: &CommandsFixture, row: AppRow) {
    let storage = &fixture.shop_db.app.storage;
    let put = storage.insert_if_not_exists(
        row.key(),
        Bytes::from_static(&[1]),
        None,
        fixture.shop_db.soon(),
    );
    assert!(put.await.unwrap().is_applied());
}

/// Sends two commands that are written together. The second one is sent while the idempotency key
/// of the first one is looked up. Neither is applied.
async fn together(node: &ShopNode, hold: &StallingStorage, [one, two]: [Command; 2]) {
    hold.arm(StallPoint::Before(1));
    let repeat = Some(IdempotencyKey::new("joe", b"key", b"body"));
    let one = node.commands.run(Command { idempotency_key: repeat, ..one });
    let two = async {
        hold.until_still().await;
        let sent = node.commands.run(two);
        join(sent, async { hold.go_on() }).await.0
    };
    let (one, two) = join(one, two).await;
    for answer in [&one, &two] {
        assert!(matches!(answer, Err(Refused::NotApplied { .. })), "{answer:?}");
    }
}

/// A foreign row was in the place of the first of two events in the log of a workspace. So the rest
/// of the write was given up, and the second event was not written there until a recovery.
async fn others_are_written(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let reads = SilentStorage::new(fixture, BatchReads::FailsAfterWrite);
    let in_steps = NarrowStorage::of(Arc::clone(&reads) as SharedStorage, 100, true);
    let hold = StallingStorage::new(in_steps);
    let mut settings = at(Arc::new(hold.clone()));
    settings.partition.group_time = Duration::from_secs(60);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let first = named("first", cud(WS, article("a"), shop_db.soon()));
    let next = fixture.run(&node, &mut ledger, first).await.unwrap().wlog.next();
    put_foreign(fixture, AppRow::Wlog(WsId(WS), next)).await;
    let commands = ["b", "c"].map(|name| cud(WS, article(name), shop_db.soon()));
    // The group reads its rows back once.
    reads.reads_left.store(1, Ordering::SeqCst);
    together(&node, &hold, commands).await;
    let second = AppRow::Wlog(WsId(WS), next.next()).key();
    let there = shop_db.app.storage.get_linearizable(&second, shop_db.soon()).await.unwrap();
    assert!(there.is_some(), "the second event is in the log of its workspace");
    node.kill();
}

/// A group was written in two workspaces. In the first one a write got no answer, and in the second
/// one the write met a foreign row. The recovery found the foreign row first, reported it, and
/// never wrote the rows of the first workspace again. As long as the foreign row stayed, nobody
/// could know whether those rows were written.
async fn others_are_applied(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let loses = SilentStorage::new(fixture, BatchReads::Mends);
    let in_steps = NarrowStorage::of(Arc::clone(&loses) as SharedStorage, 100, true);
    let hold = StallingStorage::new(in_steps);
    let mut settings = at(Arc::new(hold.clone()));
    settings.partition.group_time = Duration::from_secs(60);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings).await;
    let create = named("other", create_workspace(OTHER_WS, shop_db.soon()));
    let other = fixture.run(&node, &mut ledger, create).await.unwrap().wlog.next();
    let first = named("first", cud(WS, article("a"), shop_db.soon()));
    let lost = fixture.run(&node, &mut ledger, first).await.unwrap().wlog.next();
    put_foreign(fixture, AppRow::Wlog(WsId(OTHER_WS), other)).await;
    let lost = AppRow::Wlog(WsId(WS), lost).key();
    *loses.pkey.lock().unwrap() = Some(lost.pkey.clone());
    let commands = [WS, OTHER_WS].map(|ws| cud(ws, article("b"), shop_db.soon()));
    together(&node, &hold, commands).await;
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let there = shop_db.app.storage.get_linearizable(&lost, shop_db.soon()).await.unwrap();
    assert!(there.is_some(), "the log of the first workspace is whole");
    node.kill();
}

/// A recovery wrote a row again, and got no answer. The next attempt found a foreign row in its
/// place, and the partition reported only that row. So a stop released the lease, although the
/// first attempt could still land once the foreign row was removed.
async fn stays_open(fixture: &CommandsFixture) {
    let shop_db = &fixture.shop_db;
    let loses = SilentStorage::new(fixture, BatchReads::Reads);
    let in_steps = NarrowStorage::of(Arc::clone(&loses) as SharedStorage, 100, true);
    let settings = || at(Arc::clone(&in_steps) as SharedStorage);
    let (node, mut ledger) = fixture.begin(PARTITION, WS, settings()).await;
    let first = named("first", cud(WS, article("a"), shop_db.soon()));
    let next = fixture.run(&node, &mut ledger, first).await.unwrap().wlog.next();
    let row = AppRow::Wlog(WsId(WS), next);
    *loses.pkey.lock().unwrap() = Some(row.key().pkey);
    let second = node.commands.run(cud(WS, article("b"), shop_db.soon())).await;
    assert!(matches!(second, Err(Refused::NotApplied { .. })), "{second:?}");
    node.kill();
    let node = shop_db.node(PARTITION, settings());
    node.until(|status| matches!(status, Status::Recovering(Some(_)))).await;
    put_foreign(fixture, row).await;
    *loses.pkey.lock().unwrap() = None;
    node.until(|status| matches!(status, Status::Violation(_))).await;
    let ended = node.stop().await;
    assert!(matches!(ended, PartitionEnd::Unproved(_)), "{ended:?}");
}
