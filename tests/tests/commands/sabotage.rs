//! Foreign rows in the places where the next command is to write: a plain put leaves each of them
//! right before the write of its place.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, Entry, RecordId, StoredRecord, TrustLevel, Version, WsId};
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, Call, CallAnswer, Conditional, ErrorKind, Key, Put, SharedStorage,
    StorageWrapper, Write,
};
use processor::{Busy, Command, Done, PartitionEnd, Refused, Status};
use shop::ShopNode;
use tck::trial::{Trial, trials};

use crate::{
    fixture::CommandsFixture,
    scene::{Scene, WriteSetup, play, write_setups},
};

/// The trials `it.SequencesTrustLevel0`, `it.SequencesTrustLevel1` and `it.SequencesTrustLevel2`.
/// Each of them plays its column of [`TABLE`].
pub(crate) const TRIALS: &[Trial<CommandsFixture>] = trials!(sabotage:
    sequences_trust_level_0 = |fixture| play_level(fixture, TrustLevel::Zero),
    sequences_trust_level_1 = |fixture| play_level(fixture, TrustLevel::One),
    sequences_trust_level_2 = |fixture| play_level(fixture, TrustLevel::Two),
);

use Outcome::{Hidden, Protected, Reported};
use SabotagedRow::{FirstPlog, NewRecord, Plog, UpdatedRecord, Wlog};

/// What follows from a foreign row. [`Outcome::on`] has the exception.
#[rustfmt::skip]
const TABLE: [(SabotagedRow, [Outcome; 3]); 5] = [
    // foreign row   at level 0  level 1   level 2
    (FirstPlog,     [Reported,  Reported,  Reported]),
    (Plog,          [Reported,  Reported,  Hidden]),
    (Wlog,          [Reported,  Reported,  Hidden]),
    (NewRecord,     [Reported,  Hidden,    Hidden]),
    (UpdatedRecord, [Reported,  Hidden,    Hidden]),
];

/// A kind of row that the next command is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SabotagedRow {
    /// The first event after a recovery.
    FirstPlog,
    Plog,
    Wlog,
    NewRecord,
    UpdatedRecord,
}

/// The columns of an outcome: the answer to the command, the status of the partition, the stored
/// row, and what happens when the foreign row is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The command is refused: its event is not written, or is written and not applied. The
    /// partition reports the violation and takes no commands. The foreign row stays. When the row
    /// is gone, the partition goes on by itself.
    Reported,
    /// The command is done, and the partition is ready. The foreign row stays, and hides every
    /// ordered write of its place. A reader or the next leader reports it. An operator puts the
    /// bytes there that the event has elsewhere.
    Hidden,
    /// The storage refuses the put of the other program. The command is done.
    Protected,
}

impl Outcome {
    /// The outcome on a storage.
    fn on(self, fixture: &CommandsFixture, sabotaged: SabotagedRow) -> Outcome {
        match self {
            // A storage in the process of the node knows the kind of each row.
            _ if sabotaged == UpdatedRecord && fixture.is_embedded => Protected,
            outcome => outcome,
        }
    }
}

/// The bytes of the foreign row.
#[derive(Clone, Copy, Debug)]
enum ForeignValue {
    /// One byte, which is not a row of the log.
    OneByte,
    /// The bytes of another event, or of another record.
    AnotherRow,
}

async fn play_level(fixture: &CommandsFixture, level: TrustLevel) {
    let mut cases = Vec::new();
    for setup in write_setups(fixture).into_iter().filter(|setup| setup.level == level) {
        for (sabotaged, outcomes) in TABLE {
            let outcome = outcomes[level as usize].on(fixture, sabotaged);
            for value in [ForeignValue::OneByte, ForeignValue::AnotherRow] {
                cases.push((setup, sabotaged, value, outcome));
            }
        }
    }
    play(cases, 0, async |partition, (setup, sabotaged, value, outcome)| {
        let case = SabotageCase::new(fixture, partition, setup, sabotaged, value).await;
        match outcome {
            Reported => case.ends_reported().await,
            Hidden => case.ends_hidden().await,
            Protected => case.ends_protected().await,
        }
    })
    .await;
}

/// A partition whose last command met a foreign row.
struct SabotageCase<'s> {
    scene: Scene<'s>,
    sabotaged: SabotagedRow,
    row: AppRow,
    foreign: Bytes,
    /// The bytes of the row before the command.
    before: Option<Bytes>,
    /// The answer to the put of the foreign row.
    put: Result<(), ErrorKind>,
    node: ShopNode,
    answer: Result<Done, Refused>,
}

impl<'s> SabotageCase<'s> {
    async fn new(
        fixture: &'s CommandsFixture,
        partition: u16,
        setup: WriteSetup,
        sabotaged: SabotagedRow,
        value: ForeignValue,
    ) -> SabotageCase<'s> {
        let scene = Scene::new(fixture, partition, setup).await;
        let (put, answer) = (OnceLock::new(), OnceLock::new());
        let storage = Arc::new(SabotagedStorage { inner: scene.storage(), put, answer });
        let settings = scene.settings(Arc::clone(&storage) as SharedStorage);
        let node = fixture.shop_db.node(partition, settings);
        node.ready().await;
        if sabotaged != FirstPlog {
            scene.begin_work(&node, scene.other).await;
        }
        let (row, another) = places(&scene, sabotaged);
        let foreign = match value {
            ForeignValue::OneByte => Bytes::from_static(&[1]),
            ForeignValue::AnotherRow => stored(&scene, another).await.unwrap(),
        };
        let before = stored(&scene, row).await;
        storage.put.set(Put { key: row.key(), value: foreign.clone() }).unwrap();
        let answer = scene.run(&node, scene.changes("sabotaged")).await;
        let put = *storage.answer.get().expect("the command writes the row");
        SabotageCase { scene, sabotaged, row, foreign, before, put, node, answer }
    }

    async fn stored(&self) -> Option<Bytes> {
        stored(&self.scene, self.row).await
    }

    fn is_named_in(&self, message: &str) -> bool {
        message.contains(&self.row.to_string())
    }

    async fn ends_reported(self) {
        assert_eq!(self.put, Ok(()));
        let can_be_atomic = self.scene.storage().capabilities().atomic.is_some();
        let is_atomic = can_be_atomic && self.scene.setup.narrow.is_none();
        let is_plog = matches!(self.sabotaged, FirstPlog | Plog);
        match self.answer.as_ref().unwrap_err() {
            Refused::Busy(Busy::Violation(what)) if is_atomic || is_plog => {
                assert!(self.is_named_in(what), "{what}");
            }
            Refused::NotApplied { why, .. } if !is_atomic && !is_plog => {
                assert!(self.is_named_in(why), "{why}");
            }
            refused => panic!("{refused:?}"),
        }
        let status = self.node.until(|status| matches!(status, Status::Violation(_))).await;
        assert!(matches!(&status, Status::Violation(what) if self.is_named_in(what)), "{status:?}");
        let refused = self.scene.run(&self.node, self.scene.changes("too early")).await;
        assert!(matches!(refused, Err(Refused::Busy(Busy::Violation(_)))), "{refused:?}");
        assert_eq!(self.stored().await.as_ref(), Some(&self.foreign));
        self.remove().await;
        self.ends_well(&self.node, self.scene.changes("after")).await;
    }

    async fn ends_hidden(self) {
        assert_eq!(self.put, Ok(()));
        self.check_done();
        assert_eq!(self.stored().await.as_ref(), Some(&self.foreign));
        assert_eq!(self.node.stop().await, PartitionEnd::Stopped);
        let next = self.next();
        match self.sabotaged {
            Plog => {
                let status = next.until(|status| matches!(status, Status::Violation(_))).await;
                assert!(matches!(&status, Status::Violation(what) if self.is_named_in(what)));
            }
            _ => {
                next.ready().await;
                let error = self.read().await.unwrap_err();
                assert!(self.is_named_in(&error.to_string()), "{error}");
            }
        }
        let shop_db = &self.scene.fixture.shop_db;
        let restored = shop_db.app.storage.put(self.row.key(), self.right().await, shop_db.soon());
        restored.await.unwrap();
        // The bytes of the operator hide ordered writes, too. A later update is conditional.
        self.ends_well(&next, self.scene.changes("after")).await;
    }

    async fn ends_protected(self) {
        assert_eq!(self.put, Err(ErrorKind::Invalid));
        self.check_done();
        self.next_ends_well().await;
    }

    /// Checks that the command is done, and that nothing is reported.
    fn check_done(&self) {
        assert!(self.answer.is_ok(), "{:?}", self.answer);
        assert_eq!(self.node.commands.status(), Status::Ready);
    }

    /// The next leader.
    fn next(&self) -> ShopNode {
        let Scene { fixture, partition, .. } = self.scene;
        fixture.shop_db.node(partition, self.scene.settings(self.scene.storage()))
    }

    /// Removes the foreign row. A record that existed before gets its bytes back.
    async fn remove(&self) {
        let shop_db = &self.scene.fixture.shop_db;
        let (storage, soon) = (&shop_db.app.storage, shop_db.soon());
        let (key, foreign) = (self.row.key(), self.foreign.clone());
        let removed = match self.before.clone() {
            None => storage.compare_and_delete(key, foreign, soon).await,
            Some(before) => storage.compare_and_swap(key, foreign, before, None, soon).await,
        };
        assert!(removed.unwrap().is_applied());
    }

    /// Reads the row, as a client does.
    async fn read(&self) -> eventlog::Result<()> {
        let reader = self.scene.fixture.shop_db.reader();
        match self.row {
            AppRow::Wlog(ws, offset) => reader.wlog(ws, offset, None).try_next().await.map(drop),
            AppRow::Record(ws, id) => reader.record(ws, id).await.map(drop),
            row => panic!("clients do not read {row}"),
        }
    }

    /// The bytes that the command wrote into the row. A log has the bytes of the other log, and an
    /// event has the whole of each record that it writes.
    async fn right(&self) -> Bytes {
        let done = self.answer.as_ref().unwrap();
        let ws = WsId(self.scene.ws);
        let plog = AppRow::Plog(self.scene.partition, done.plog);
        let there = if self.sabotaged == Plog { AppRow::Wlog(ws, done.wlog) } else { plog };
        let bytes = stored(&self.scene, there).await.unwrap();
        let AppRow::Record(ws, id) = self.row else { return bytes };
        let Entry::Event(event) = Entry::from_bytes(&bytes).unwrap() else { panic!("no event") };
        let mut records = event.changes.into_iter().map(|change| change.record);
        let record = records.find(|record| record.id == id).unwrap();
        let version = Version { epoch: done.epoch, plog: done.plog };
        StoredRecord { ws, version, record }.to_bytes()
    }

    async fn next_ends_well(&self) {
        assert_eq!(self.node.stop().await, PartitionEnd::Stopped);
        self.ends_well(&self.next(), self.scene.changes("after")).await;
    }

    /// Checks that the partition goes on, that no number was given twice, and that everything that
    /// was acknowledged is stored.
    async fn ends_well(&self, node: &ShopNode, after: Command) {
        node.ready().await;
        self.scene.run(node, after).await.unwrap();
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        self.scene.check(None).await;
    }
}

/// The row that the next command is to write, and another row of the same kind.
pub(crate) fn places(scene: &Scene<'_>, sabotaged: SabotagedRow) -> (AppRow, AppRow) {
    let Done { plog, wlog, .. } = scene.answer("first").unwrap().unwrap();
    let end = scene.end();
    let (partition, ws, article) = (scene.partition, WsId(scene.ws), scene.article);
    // The article has two prices.
    let [price, new] = [1, 3].map(|after| AppRow::Record(ws, RecordId(article.0 + after)));
    match sabotaged {
        FirstPlog | Plog => (AppRow::Plog(partition, end), AppRow::Plog(partition, plog)),
        Wlog => (AppRow::Wlog(ws, wlog.next()), AppRow::Wlog(ws, wlog)),
        NewRecord => (new, AppRow::Record(ws, article)),
        UpdatedRecord => (AppRow::Record(ws, article), price),
    }
}

pub(crate) async fn stored(scene: &Scene<'_>, row: AppRow) -> Option<Bytes> {
    let shop_db = &scene.fixture.shop_db;
    shop_db.app.storage.get_linearizable(&row.key(), shop_db.soon()).await.unwrap()
}

/// A storage where another program puts a row right before the node writes that row for the first
/// time.
#[derive(Debug)]
struct SabotagedStorage {
    inner: SharedStorage,
    put: OnceLock<Put>,
    answer: OnceLock<Result<(), ErrorKind>>,
}

impl SabotagedStorage {
    fn is_written_by(&self, key: &Key, write: &Write) -> bool {
        let Key { pkey, ccols } = key;
        let is_here = |of: &Bytes, op: &Conditional| of == pkey && op.ccols() == ccols;
        match write {
            Write::PutBatch(_) => false,
            Write::PutOrdered(rows) => rows.iter().any(|row| row.key == *key),
            Write::If(of, ops) => ops.iter().any(|op| is_here(of, op)),
            Write::Atomic(batch) => {
                batch.conditionals.iter().any(|(of, op)| is_here(of, op))
                    || batch.ordered.iter().any(|row| row.key == *key)
            }
        }
    }
}

impl StorageWrapper for SabotagedStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if let Call::Write(write) = &call
            && let Some(Put { key, value }) = self.put.get().cloned()
            && self.answer.get().is_none()
            && self.is_written_by(&key, write)
        {
            let put = self.inner.put(key, value, deadline).await;
            // Only the node of this case writes, and it sends its writes of a row one by one.
            self.answer.set(put.map_err(|error| error.kind())).unwrap();
        }
        call.send(&self.inner, deadline).await
    }
}
