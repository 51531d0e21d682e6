//! Records that have lost their last version in the storage: the partition stops, and no older
//! version is answered.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, Error, Obstacle, RecordBlock, RecordId, Repair, TrustLevel, Version, WsId};
use futures::{StreamExt, TryStreamExt};
use istorage::{
    Call, CallAnswer, Capabilities, Consistency, FoundRow, Key, RangeRead, Result, RowStream,
    SharedStorage, StorageWrapper,
};
use processor::{Busy, Command, PartitionEnd, Refused, Status};
use shop::{ShopDatabase, ShopNode, ShopNodeSettings, article, create_workspace, cud, update};
use tokio::sync::Semaphore;

const PARTITION: u16 = 1;
const WS: WsId = WsId(11);

/// A storage that writes groups in steps, as Cassandra does, and that has lost writes.
#[derive(Debug)]
struct LossyStorage {
    inner: SharedStorage,
    /// The rows that all reads show in place of the stored ones.
    shown: Mutex<Vec<(Key, Option<Bytes>)>>,
    /// The next read of this row is answered late.
    late: Mutex<Option<(Key, Arc<LateAnswer>)>>,
}

/// A read that the storage has made, and not answered yet.
#[derive(Debug)]
struct LateAnswer {
    was_read: Semaphore,
    may_answer: Semaphore,
}

impl LateAnswer {
    /// Holds the answer back.
    async fn hold(&self) {
        self.was_read.add_permits(1);
        self.may_answer.acquire().await.unwrap().forget();
    }

    async fn wait_until_read(&self) {
        self.was_read.acquire().await.unwrap().forget();
    }
}

impl LossyStorage {
    fn of(inner: SharedStorage) -> Arc<LossyStorage> {
        Arc::new(LossyStorage { inner, shown: Mutex::default(), late: Mutex::default() })
    }

    /// Loses the last writes of a row: each read finds `before`.
    fn lose(&self, row: AppRow, before: Option<Bytes>) {
        self.shown.lock().unwrap().push((row.key(), before));
    }

    /// The servers are repaired.
    fn restore(&self) {
        self.shown.lock().unwrap().clear();
    }

    /// Answers the next read of a row late.
    fn answer_late(&self, row: AppRow) -> Arc<LateAnswer> {
        let late =
            Arc::new(LateAnswer { was_read: Semaphore::new(0), may_answer: Semaphore::new(0) });
        *self.late.lock().unwrap() = Some((row.key(), Arc::clone(&late)));
        late
    }

    fn take_late(&self, is_read: impl Fn(&Key) -> bool) -> Option<Arc<LateAnswer>> {
        let late = self.late.lock().unwrap().take_if(|(key, _)| is_read(key));
        late.map(|(_, late)| late)
    }

    fn shown(&self, key: &Key) -> Option<Option<Bytes>> {
        let shown = self.shown.lock().unwrap();
        shown.iter().find(|(row, _)| row == key).map(|(_, value)| value.clone())
    }
}

impl StorageWrapper for LossyStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: None, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let keys = match &call {
            Call::Get(key, _) => vec![(*key).clone()],
            Call::GetBatch(keys) | Call::GetValues(keys) => keys.to_vec(),
            Call::Write(_) | Call::ServerTime => Vec::new(),
        };
        let mut answer = call.send(&self.inner, deadline).await?;
        for (at, key) in keys.iter().enumerate() {
            let Some(shown) = self.shown(key) else { continue };
            match &mut answer {
                CallAnswer::Value(value) => *value = shown,
                CallAnswer::Values(values) => values[at] = shown,
                CallAnswer::Rows(rows) => {
                    rows[at] = shown.map(|value| FoundRow { value, hides_ordered: false });
                }
                CallAnswer::Outcome(_) | CallAnswer::ServerTime(_) => {}
            }
        }
        if let Some(late) = self.take_late(|key| keys.contains(key)) {
            late.hold().await;
        }
        Ok(answer)
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let shown = self.shown.lock().unwrap().clone();
        let late = self.take_late(|key| key.pkey == read.pkey);
        let pkey = read.pkey.clone();
        let rows = read.send(&self.inner).try_filter_map(move |mut row| {
            let key = Key::new(pkey.clone(), row.ccols.clone());
            match shown.iter().find(|(there, _)| *there == key) {
                Some((_, Some(value))) => row.value = value.clone(),
                Some((_, None)) => return ready(Ok(None)),
                None => {}
            }
            ready(Ok(Some(row)))
        });
        // The first row is read before the answer is held back.
        let mut late = late;
        let held = rows.then(move |row| {
            let late = late.take();
            async move {
                if let Some(late) = late {
                    late.hold().await;
                }
                row
            }
        });
        held.boxed()
    }
}

/// A partition at level 0 with three articles. The first one was changed after it was made.
struct Scene {
    shop_db: ShopDatabase,
    storage: Arc<LossyStorage>,
    node: ShopNode,
    ids: Vec<RecordId>,
    /// The first version of the changed article.
    before: Bytes,
    version: Version,
}

impl Scene {
    async fn new() -> Scene {
        let shop_db = ShopDatabase::in_memory().await;
        let storage = LossyStorage::of(Arc::clone(&shop_db.app.storage));
        let there = Some(Arc::clone(&storage) as SharedStorage);
        let settings =
            ShopNodeSettings { storage: there, ..ShopNodeSettings::at(TrustLevel::Zero) };
        let node = shop_db.node(PARTITION, settings);
        node.ready().await;
        node.commands.run(create_workspace(WS.0, shop_db.soon())).await.unwrap();
        let made = node.commands.run(cud(WS.0, article("a"), shop_db.soon())).await.unwrap();
        let ids: Vec<RecordId> = made.answer.ids.iter().map(|(_, id)| *id).collect();
        let before = node.log.reader().row(AppRow::Record(WS, ids[0])).await.unwrap().unwrap();
        let (version, storage) = (made.version(), storage);
        let mut scene = Scene { shop_db, storage, node, ids, before, version };
        scene.version = scene.node.commands.run(scene.change("newer")).await.unwrap().version();
        scene
    }

    fn row(&self) -> AppRow {
        AppRow::Record(WS, self.ids[0])
    }

    fn change(&self, name: &str) -> Command {
        cud(WS.0, vec![update(self.ids[0], None, name)], self.shop_db.soon())
    }

    /// The versions of the articles in a list.
    async fn list(&self) -> eventlog::Result<Vec<Version>> {
        let block = RecordBlock::beginning_with(self.ids[0]);
        let listed = self.node.commands.block(WS, block);
        listed.map_ok(|stored| stored.version).try_collect().await
    }

    /// A read of the changed record. The result is its version.
    async fn read(&self, way: Way) -> eventlog::Result<Option<Version>> {
        let (commands, id) = (&self.node.commands, self.ids[0]);
        match way {
            Way::Record => Ok(commands.record(WS, id).await?.map(|stored| stored.version)),
            Way::Ids => {
                let mut found = commands.records_by_ids(WS, &[self.ids[1], id]).await?;
                Ok(found.remove(1).map(|stored| stored.version))
            }
            Way::Records => {
                let read: Vec<_> = commands.records(WS, id, id).try_collect().await?;
                Ok(read.first().map(|stored| stored.version))
            }
            Way::List => Ok(self.list().await?.first().copied()),
        }
    }

    async fn until_stopped(&self) {
        let row = self.row().to_string();
        let status = self.node.until(|status| matches!(status, Status::Violation(_))).await;
        assert!(matches!(&status, Status::Violation(what) if what.contains(&row)), "{status:?}");
        let obstacle = self.node.commands.obstacle();
        let repair = Repair::Restore;
        let named = Obstacle::Row { row: self.row(), expected: None, repair };
        assert_eq!(obstacle, Some(named));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Record,
    Ids,
    Records,
    List,
}

const WAYS: [Way; 4] = [Way::Record, Way::Ids, Way::Records, Way::List];

fn is_stopped(answered: &std::result::Result<processor::Done, Refused>, row: AppRow) -> bool {
    let is_named = |what: &str| what.contains(&row.to_string());
    matches!(answered, Err(Refused::Busy(Busy::Violation(what))) if is_named(what))
}

/// Only the command that needed the record was refused. The next reader got the older version, and
/// the status no longer showed the problem.
#[tokio::test]
async fn the_partition_stops_at_an_outdated_record_until_the_record_is_restored() {
    for is_missing in [false, true] {
        for way in [None].into_iter().chain(WAYS.map(Some)) {
            // A list does not show which records are missing.
            if is_missing && matches!(way, Some(Way::List | Way::Records)) {
                continue;
            }
            let scene = Scene::new().await;
            let (node, row) = (&scene.node, scene.row());
            let before = (!is_missing).then(|| scene.before.clone());
            scene.storage.lose(row, before);
            match way {
                None => {
                    let answered = node.commands.run(scene.change("over the old one")).await;
                    assert!(is_stopped(&answered, row), "{answered:?}");
                }
                Some(way) => {
                    let error = scene.read(way).await.unwrap_err();
                    assert!(error.to_string().contains(&row.to_string()), "{error:?}");
                }
            }
            scene.until_stopped().await;
            // No read ends the stop or shows the older version.
            for way in [Way::Record, Way::Ids] {
                let error = scene.read(way).await.unwrap_err();
                assert!(matches!(error, Error::DamagedRow(_)), "{error:?}");
            }
            assert!(node.commands.record(WS, scene.ids[1]).await.unwrap().is_some());
            let other = cud(WS.0, article("other"), scene.shop_db.soon());
            let answered = node.commands.run(other).await;
            assert!(is_stopped(&answered, row), "{answered:?}");
            scene.until_stopped().await;
            let (key, soon) = (row.key(), scene.shop_db.soon());
            let stored = scene.shop_db.app.storage.get(&key, Consistency::Plain, soon);
            let stored = row.record(&stored.await.unwrap().unwrap()).unwrap();
            assert_eq!(stored.version, scene.version, "nothing was written");

            scene.storage.restore();
            node.ready().await;
            assert_eq!(node.commands.obstacle(), None);
            for way in WAYS {
                assert_eq!(scene.read(way).await.unwrap(), Some(scene.version), "{way:?}");
            }
            node.commands.run(scene.change("newest")).await.unwrap();
            assert_eq!(node.commands.damaged(), (Vec::new(), 0));
        }
    }
}

/// A read began before the last version was acknowledged. Its answer is right, and the partition
/// goes on.
#[tokio::test]
async fn a_read_beside_a_write_is_no_sign_of_a_lost_write() {
    for way in WAYS {
        let scene = Scene::new().await;
        let late = scene.storage.answer_late(scene.row());
        let written = async {
            late.wait_until_read().await;
            let done = scene.node.commands.run(scene.change("meanwhile")).await.unwrap();
            late.may_answer.add_permits(1);
            done.version()
        };
        let (read, written) = futures::join!(scene.read(way), written);
        // A list reads a record again that has changed meanwhile.
        let expected = match way {
            Way::Record | Way::Ids => scene.version,
            Way::Records | Way::List => written,
        };
        assert_eq!(read.unwrap(), Some(expected), "{way:?}");
        scene.node.commands.run(scene.change("after")).await.unwrap();
        assert_eq!(scene.node.commands.status(), Status::Ready, "{way:?}");
        assert_eq!(scene.node.stop().await, PartitionEnd::Stopped);
    }
}
