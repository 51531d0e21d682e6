//! A shop in memory with everything that a stream can carry, and the comparison of two shops.

use std::{collections::BTreeMap, num::NonZeroU16, sync::Arc};

use appstream::{
    Exporter, ImportError, ImportReport, check_stream,
    clock::{Clock, Instant},
    eventlog::{AppRow, Deployment, DrawnNumber, Offset, TrustLevel, WsId},
    import,
    istorage::{
        AppStorageExt, Conditional, Consistency, Key, KeyspaceName, Order, OrderedPut, Range,
        SharedStorage, StorageDriver, mem::MemDriver,
    },
    sysvvm::{AppName, System},
};
use bytes::Bytes;
use docnumbers::{
    Definition, DocNumberRows, FastSeries, FastSettings, Policy, RangeOwner, Reset, Series,
};
use futures::TryStreamExt;
use isequencer::standard;
use processor::{Command, Done, IdempotencyKey, PartitionEnd};
use seqstorage::PartitionStorage;
use shop::{
    LateStorage, ShopDatabase, ShopNode, ShopNodeSettings, TestFence, article, bill,
    create_workspace, cud, update,
};

pub(crate) const FAR: Instant = Instant::FAR_FUTURE;
pub(crate) const PARTITIONS: NonZeroU16 = NonZeroU16::new(4).unwrap();

/// The workspaces: two in partition 1, one in partition 2. The other partitions have no events.
pub(crate) const WORKSPACES: [u64; 3] = [1, 5, 2];

/// The workspace with a marked event, and its partition.
const MARKED: (u64, u16) = (1, 1);

pub(crate) fn name() -> AppName {
    AppName::new("acme", "shop").unwrap()
}

pub(crate) fn sysvvm() -> KeyspaceName {
    KeyspaceName::new("sysvvm").unwrap()
}

/// A database with a shop, at a trust level.
pub(crate) struct Scene {
    pub(crate) driver: Arc<MemDriver>,
    pub(crate) db: ShopDatabase,
    level: TrustLevel,
    in_view: bool,
}

impl Scene {
    /// Opens the shop of a database, or makes it.
    pub(crate) async fn open(driver: Arc<MemDriver>, level: TrustLevel, in_view: bool) -> Scene {
        let clock = Clock::system();
        let db = ShopDatabase::new(Arc::clone(&driver) as _, sysvvm(), PARTITIONS, clock).await;
        Scene { driver, db, level, in_view }
    }

    /// A shop without events.
    pub(crate) async fn deployed(level: TrustLevel, in_view: bool) -> Scene {
        let scene = Scene::open(empty(), level, in_view).await;
        let schema = scene.db.application.declarations().schema().clone();
        let deployment = Deployment::new(level, schema);
        deployment.store(&scene.db.app.storage, &scene.db.clock, FAR).await.unwrap();
        scene
    }

    /// A shop with documents, changed documents, numbers of all kinds, and a marked event.
    pub(crate) async fn full(level: TrustLevel, in_view: bool) -> Scene {
        let scene = Scene::deployed(level, in_view).await;
        for partition in [1, 2] {
            let node = scene.node(partition, 1).await;
            for ws in WORKSPACES.into_iter().filter(|ws| ws % 4 == u64::from(partition)) {
                scene.fill(&node, ws).await;
            }
            assert_eq!(node.stop().await, PartitionEnd::Stopped);
        }
        scene.fence_the_log().await;
        scene.mark_an_event().await;
        scene.number_documents().await;
        scene
    }

    /// A leader finds the log on a storage where writes may land late, and rejects a command.
    async fn fence_the_log(&self) {
        let (_, partition) = MARKED;
        let storage: SharedStorage = LateStorage::of(Arc::clone(&self.db.app.storage));
        let settings = ShopNodeSettings {
            in_view: self.in_view,
            storage: Some(storage),
            ..ShopNodeSettings::at(self.level)
        };
        let node = self.db.node_of(partition, TestFence::of(2), settings);
        node.ready().await;
        let nowhere = u64::from(partition + 10 * PARTITIONS.get());
        node.commands.run(cud(nowhere, article("nowhere"), FAR)).await.unwrap_err();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }

    /// Starts a leader of a partition.
    pub(crate) async fn node(&self, partition: u16, epoch: u64) -> ShopNode {
        let settings =
            ShopNodeSettings { in_view: self.in_view, ..ShopNodeSettings::at(self.level) };
        let node = self.db.node_of(partition, TestFence::of(epoch), settings);
        node.ready().await;
        node
    }

    pub(crate) async fn run(&self, node: &ShopNode, command: Command) -> Done {
        node.commands.run(command).await.unwrap()
    }

    async fn fill(&self, node: &ShopNode, ws: u64) {
        self.run(node, create_workspace(ws, FAR)).await;
        let mut ids = Vec::new();
        for n in 0..3 {
            let done = self.run(node, cud(ws, article(&format!("article {n}")), FAR)).await;
            ids.push(done.answer.ids[0].1);
            self.run(node, cud(ws, bill("bill"), FAR)).await;
        }
        for id in ids {
            self.run(node, cud(ws, vec![update(id, None, "changed")], FAR)).await;
        }
        let command = |name: &str| Command::new(WsId(ws), name.parse().unwrap(), FAR);
        self.run(node, command("shop.Note")).await;
        self.run(node, command("shop.Draw").with_params("invoice invoice")).await;
        let key = Some(IdempotencyKey::new("", b"key", b"body"));
        let command = cud(ws, article("with a key"), FAR);
        self.run(node, Command { idempotency_key: key, ..command }).await;
    }

    /// Damages an event that is applied, and that is before the stored offset. An operator marks
    /// it. The event made an article with two prices; a later event has changed the article. So no
    /// event has the prices and the numbers of the sequences any more.
    async fn mark_an_event(&self) {
        let (ws, partition) = MARKED;
        let node = self.node(partition, 2).await;
        // A leader inserts its first event under a condition, which hides a damage by an ordered
        // put.
        self.run(&node, cud(ws, article("first"), FAR)).await;
        let lost = self.run(&node, cud(ws, article("lost"), FAR)).await;
        let changed = update(lost.answer.ids[0].1, None, "found");
        self.run(&node, cud(ws, vec![changed], FAR)).await;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        self.mark(&lost, 3).await;
    }

    /// A shop with a marked event. A record of the event has a name of this length, and no other
    /// event has records of its tables.
    pub(crate) async fn with_marked_record(length: usize) -> Scene {
        let scene = Scene::deployed(TrustLevel::Zero, false).await;
        let (ws, partition) = MARKED;
        let node = scene.node(partition, 1).await;
        scene.run(&node, create_workspace(ws, FAR)).await;
        let lost = scene.run(&node, cud(ws, article(&"x".repeat(length)), FAR)).await;
        // A recovery reads the last event.
        scene.run(&node, cud(ws, bill("later"), FAR)).await;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        scene.mark(&lost, 2).await;
        scene
    }

    /// Damages an event, and marks it in this epoch.
    async fn mark(&self, lost: &Done, epoch: u64) {
        let (ws, partition) = MARKED;
        self.damage(AppRow::Plog(partition, lost.plog), lost.plog).await;
        self.damage(AppRow::Wlog(WsId(ws), lost.wlog), lost.plog).await;
        let node = self.node(partition, epoch).await;
        let operator = self.numbers_of(&node);
        let plan = operator.plan_marker(lost.plog, WsId(ws), lost.wlog, None, true, &[]).await;
        let marker = operator.repair(plan.unwrap()).await.unwrap().unwrap();
        let drawn = DrawnNumber { seq: standard::WLOG_OFFSET.0, last: lost.wlog.0 };
        assert_eq!(marker.drawn[0], drawn);
        assert!(marker.drawn.len() > 1, "the numbers are those that are stored");
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
    }

    fn numbers_of(&self, node: &ShopNode) -> PartitionStorage {
        let log = Arc::clone(&node.log);
        match self.in_view {
            true => PartitionStorage::in_view(log),
            false => PartitionStorage::in_system(self.db.system.numbers(&self.db.app.entry), log),
        }
    }

    async fn damage(&self, row: AppRow, plog: Offset) {
        let (storage, key, value) = (&self.db.app.storage, row.key(), Bytes::from_static(b"lost"));
        if self.level == TrustLevel::Two {
            let order = Order::from_parts(2, plog.0 + 1).unwrap();
            let put = OrderedPut { key, value, order, ttl: None };
            return storage.put_ordered(vec![put], FAR).await.unwrap();
        }
        let old = storage.get_linearizable(&key, FAR).await.unwrap().unwrap();
        let swap = Conditional::Swap { ccols: key.ccols, old, new: value, ttl: None };
        assert!(storage.write_if(key.pkey, vec![swap], FAR).await.unwrap().is_applied());
    }

    pub(crate) fn rows(&self) -> DocNumberRows {
        let system = &self.db.system;
        let prefix = system.document_numbers(&self.db.app.entry);
        let call = std::time::Duration::from_secs(5);
        DocNumberRows::new(Arc::clone(system.storage()), self.db.clock.clone(), prefix, call)
    }

    pub(crate) async fn fast(&self, id: &str, reset: Reset, owner: &str) -> FastSeries {
        let template =
            if reset == Reset::Never { "T{counter:4}" } else { "T{date:yyyy}-{counter:4}" };
        let definition = Definition { reset, ..Definition::new(id, template) };
        let settings = FastSettings { range: 10, ..FastSettings::default() };
        let (series, owner) = (Series::new(definition).unwrap(), RangeOwner::new(owner));
        FastSeries::open(series, self.rows(), owner, settings, FAR).await.unwrap()
    }

    /// Draws numbers of fast series with one period and with periods. A node crashes with a range
    /// that it did not give back, so the ledger has a gap.
    async fn number_documents(&self) {
        let gapless = Series::new(Definition::new("gapless", "G{counter:2}")).unwrap();
        self.rows().fix(&gapless, Policy::Gapless, FAR).await.unwrap();
        let longer = Series::new(Definition::new("gapless", "GG{counter:3}")).unwrap();
        self.rows().fix(&longer, Policy::Gapless, FAR).await.unwrap();
        for (id, reset) in [("ticket", Reset::Never), ("order", Reset::Year)] {
            for (owner, stops) in [("first", true), ("crashed", false), ("last", true)] {
                let series = self.fast(id, reset, owner).await;
                for ws in WORKSPACES {
                    drop(series.next(WsId(ws), FAR).await.unwrap());
                }
                if stops {
                    series.close(FAR).await;
                }
            }
        }
    }

    pub(crate) async fn export(&self) -> Vec<u8> {
        let (driver, clock) = (Arc::clone(&self.driver) as Arc<dyn StorageDriver>, Clock::system());
        let exporter = Exporter::open(driver, sysvvm(), &name(), clock, FAR).await.unwrap();
        let mut stream = Vec::new();
        let report = exporter.write(&mut stream).await.unwrap();
        assert_eq!(report.bytes, stream.len() as u64);
        stream
    }

    /// All rows of the keyspace of the application except the view of numbers: for that see
    /// [numbers](Scene::stored_numbers).
    pub(crate) async fn app_rows(&self) -> BTreeMap<(Bytes, Bytes), Bytes> {
        let mut rows = dump(&self.db.app.storage).await;
        rows.retain(|(pkey, _), _| pkey[..2] != [0, 23]);
        rows
    }

    /// The last numbers of all sequences of a workspace.
    pub(crate) async fn stored_numbers(&self, ws: u64) -> Vec<(u16, u64)> {
        let numbers = match self.in_view {
            false => self.db.system.numbers(&self.db.app.entry),
            true => {
                let (storage, clock) = (Arc::clone(&self.db.app.storage), self.db.clock.clone());
                seqstorage::numbers_in_view(storage, clock, WsId(ws).partition(PARTITIONS))
            }
        };
        let all = numbers.all(ws, FAR).await.unwrap();
        all.into_iter().map(|it| (it.seq, it.number)).collect()
    }
}

/// All rows of a keyspace.
pub(crate) async fn dump(storage: &SharedStorage) -> BTreeMap<(Bytes, Bytes), Bytes> {
    let page = std::time::Duration::from_secs(5);
    let pkeys: Vec<Bytes> = storage.partitions(Bytes::new(), page).try_collect().await.unwrap();
    let mut rows = BTreeMap::new();
    for pkey in pkeys {
        let read = storage.read(pkey.clone(), Range::all(), Consistency::Plain, page);
        for row in read.try_collect::<Vec<_>>().await.unwrap() {
            let Key { pkey, ccols } = Key { pkey: pkey.clone(), ccols: row.ccols };
            rows.insert((pkey, ccols), row.value);
        }
    }
    rows
}

pub(crate) async fn system(driver: &Arc<MemDriver>) -> System {
    let driver = Arc::clone(driver) as Arc<dyn StorageDriver>;
    System::open(driver, sysvvm(), Clock::system(), FAR).await.unwrap()
}

pub(crate) async fn import_into(
    driver: &Arc<MemDriver>,
    stream: &[u8],
) -> Result<ImportReport, ImportError> {
    let checked = check_stream(stream).unwrap();
    let system = system(driver).await;
    import(&system, checked.app(), stream, &checked, Clock::system(), FAR).await
}

pub(crate) fn empty() -> Arc<MemDriver> {
    Arc::new(MemDriver::new(Clock::system()))
}

/// The lines of a stream, without the end, in the order of their texts: the counters of a storage
/// have no order.
pub(crate) fn sorted_lines(stream: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(stream).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(lines.pop().unwrap().starts_with("{\"end\""));
    lines.sort();
    lines
}
