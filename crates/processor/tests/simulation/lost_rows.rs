//! Servers that lose an acknowledged version of a record, so that only one of three has it.
//!
//! The leader that wrote the version stops the partition when it reads the older one. Invariant:
//! the partition goes on only when a quorum has the acknowledged version again. Otherwise the next
//! leader, which does not know the version, may take the older one as right.

use std::sync::Arc;

use clock::ManualClock;
use eventlog::{AppRow, RecordId, TrustLevel, Version, WsId};
use istorage::{Key, SharedStorage};
use libtest_mimic::Failed;
use processor::{Command, Done, Refused, Status};
use shop::{
    ShopDatabase, ShopNode, ShopNodeSettings, TestFence, WriteSteps, article, create_workspace,
    cud, update,
};

use crate::{
    call_turns::Idle,
    defects::LinearizableRecords,
    history::{PARTITION, in_time, open},
    replicas::{Cell, QUORUM, ReplicaDriver},
};

const WS: WsId = WsId(11);

/// The history of one record.
struct LostRow {
    manual: ManualClock,
    idle: Idle,
    shop_db: ShopDatabase,
    replicas: ReplicaDriver,
    /// Whether leaders read records linearizably.
    reads_linearizably: bool,
    epochs: u64,
}

/// Runs the history of a seed. Returns whether the leader met the older version.
pub(crate) fn run(seed: u64, reads_linearizably: bool) -> Result<bool, Failed> {
    let (runtime, idle) = Idle::runtime();
    runtime.block_on(Box::pin(async {
        let manual = ManualClock::new(seed);
        let replicas = ReplicaDriver::new(manual.clock(), seed, true, 1);
        let shop_db = open(Arc::new(replicas.clone()), &manual.clock()).await;
        let mut history =
            LostRow { manual, idle, shop_db, replicas, reads_linearizably, epochs: 0 };
        history.play().await.map_err(|wrong| format!("seed {seed}: {wrong}").into())
    }))
}

impl LostRow {
    async fn play(&mut self) -> Result<bool, String> {
        let leader = self.lead().await;
        self.done(&leader, create_workspace(WS.0, self.shop_db.soon())).await;
        let made = self.done(&leader, cud(WS.0, article("made"), self.shop_db.soon())).await;
        let id = made.answer.ids[0].1;
        let key = AppRow::Record(WS, id).key();
        let before = self.replicas.cells_of(&key);
        let updated = self.done(&leader, self.update(id, "updated")).await.version();
        // Two servers come back with what they had before the update.
        for (replica, cell) in before.into_iter().enumerate().skip(1) {
            self.replicas.set_cell(&key, replica, cell);
        }
        // The command meets the older version, or its read repairs a quorum.
        let answered = self.in_time(leader.commands.run(self.update(id, "again"))).await;
        let was_stopped = matches!(answered, Err(Refused::Busy(_)));
        // The partition does another command only after it has found the acknowledged version.
        loop {
            let command = cud(WS.0, article("other"), self.shop_db.soon());
            match self.in_time(leader.commands.run(command)).await {
                Ok(_) => break,
                Err(Refused::Busy(_)) => {}
                Err(refused) => return Err(format!("the other command was refused: {refused}")),
            }
            self.in_time(leader.ready()).await;
        }
        let newest = match &answered {
            Ok(done) => done.version(),
            Err(Refused::Busy(_)) => updated,
            Err(refused) => return Err(format!("the command was refused: {refused}")),
        };
        let have = self.replicas_with(&key, newest);
        if have < QUORUM {
            return Err(format!(
                "{have} replicas have version {newest:?}, and the partition goes on"
            ));
        }
        leader.kill();
        let next = self.lead().await;
        let found = self.in_time(next.commands.record(WS, id)).await;
        let found = found.map_err(|error| error.to_string())?.map(|stored| stored.version);
        if found < Some(newest) {
            return Err(format!(
                "the next leader finds {found:?}, and {newest:?} was acknowledged"
            ));
        }
        next.kill();
        Ok(was_stopped)
    }

    async fn lead(&mut self) -> ShopNode {
        self.epochs += 1;
        let storage = WriteSteps::Of(4).of(Arc::clone(&self.shop_db.app.storage));
        let storage: SharedStorage = match self.reads_linearizably {
            true => Arc::new(LinearizableRecords(storage)),
            false => storage,
        };
        let settings =
            ShopNodeSettings { storage: Some(storage), ..ShopNodeSettings::at(TrustLevel::Zero) };
        let node = self.shop_db.node_of(PARTITION, TestFence::of(self.epochs), settings);
        self.in_time(node.until(|status| *status == Status::Ready)).await;
        node
    }

    fn update(&self, id: RecordId, name: &str) -> Command {
        cud(WS.0, vec![update(id, None, name)], self.shop_db.soon())
    }

    async fn done(&self, leader: &ShopNode, command: Command) -> Done {
        self.in_time(leader.commands.run(command)).await.unwrap()
    }

    fn replicas_with(&self, key: &Key, version: Version) -> usize {
        let row = AppRow::of_key(key).unwrap();
        let has = |cell: &Option<Cell>| {
            let value = cell.as_ref().and_then(|cell| cell.value.as_ref());
            value.is_some_and(|bytes| row.record(bytes).unwrap().version >= version)
        };
        self.replicas.cells_of(key).iter().filter(|cell| has(cell)).count()
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        in_time(&self.idle, &self.manual, work).await
    }
}
