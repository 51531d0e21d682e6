//! A shop on a storage with faults, and a clock that the test moves.

use std::{
    num::NonZeroU16,
    sync::{Arc, Mutex},
    time::Duration,
};

use clock::ManualClock;
use eventlog::{RecordId, TrustLevel, Value, WsId};
use istorage::{Guarded, KeyspaceName, SharedStorage, mem::MemDriver};
use processor::{Application, Command, Done, Refused, RowChange};
use shop::{
    AnswerLedger, ShopDatabase, ShopNode, ShopNodeSettings, check, create_workspace, cud, new_row,
    qname, text,
};
use tck::storage::Faulty;

use crate::{faults::FaultScript, numbers_of_log::LogNumbers};

/// The partition of the tests, and a workspace in it.
pub(crate) const PARTITION: u16 = 1;
pub(crate) const WS: u64 = 1;

pub(crate) const LEVELS: [TrustLevel; 3] = [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two];

pub(crate) const DAY: i64 = 24 * 60 * 60 * 1_000;

/// The counter record of the invoices.
pub(crate) const COUNTER: RecordId = RecordId(65_601);

pub(crate) struct Scene {
    pub(crate) manual: ManualClock,
    pub(crate) shop_db: ShopDatabase,
    pub(crate) faults: FaultScript,
    pub(crate) faulty: Arc<Faulty>,
    storage: SharedStorage,
    pub(crate) settings: ShopNodeSettings,
    /// The number of requests, and their answers.
    answers: Mutex<(u64, AnswerLedger)>,
}

impl Scene {
    pub(crate) async fn new(level: TrustLevel, seed: u64) -> Scene {
        let manual = ManualClock::new(seed);
        let clock = manual.clock();
        let driver = Arc::new(MemDriver::new(clock.clone()));
        let system = KeyspaceName::new("gapless").unwrap();
        let partitions = NonZeroU16::new(10).unwrap();
        let shop_db = ShopDatabase::new(driver, system, partitions, clock.clone()).await;
        let faults = FaultScript::of(seed);
        let script = faults.clone();
        let inner = Arc::clone(&shop_db.app.storage);
        let faulty = Faulty::scripted(inner, clock.clone(), move |kind| script.next(kind));
        let faulty = Arc::new(faulty);
        let storage: SharedStorage = Arc::new(Guarded::new(Arc::clone(&faulty) as _, clock));
        let mut settings = ShopNodeSettings::at(level);
        settings.timeout = Duration::from_millis(90);
        settings.apply_for = Duration::from_millis(200);
        settings.partition.sequencer.retry_after = Duration::from_millis(20);
        let answers = Mutex::default();
        Scene { manual, shop_db, faults, faulty, storage, settings, answers }
    }

    /// A scene whose shop is this application.
    pub(crate) async fn of(application: Application) -> Scene {
        let mut scene = Scene::new(TrustLevel::Zero, 0).await;
        scene.shop_db.application = Arc::new(application);
        scene
    }

    /// A leader that uses the storage with faults.
    pub(crate) fn lead(&self) -> ShopNode {
        let storage = Some(Arc::clone(&self.storage));
        self.shop_db.node(PARTITION, ShopNodeSettings { storage, ..self.settings.clone() })
    }

    /// A leader that is ready, with the workspaces.
    pub(crate) async fn lead_in(&self, workspaces: &[u64]) -> ShopNode {
        let node = self.lead();
        self.in_time(node.ready()).await;
        for ws in workspaces {
            self.run(&node, create_workspace(*ws, self.shop_db.soon())).await.unwrap();
        }
        node
    }

    /// Stops a leader in order.
    pub(crate) async fn stop(&self, node: &ShopNode) {
        let ended = self.in_time(node.stop()).await;
        assert_eq!(ended, processor::PartitionEnd::Stopped);
    }

    /// Does some work. Time passes while the work cannot go on otherwise.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                self.rest().await;
                self.manual.advance(Duration::from_millis(1));
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            never = time => never,
        }
    }

    /// Lets the other tasks run as far as they can.
    pub(crate) async fn rest(&self) {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    /// Stops a leader in order, and checks everything that is stored, with the numbers.
    pub(crate) async fn end(&self, node: &ShopNode) -> LogNumbers {
        self.stop(node).await;
        let (_, ledger) = std::mem::take(&mut *self.answers.lock().unwrap());
        LogNumbers::check(&check(&self.shop_db, PARTITION, &ledger).await)
    }

    pub(crate) async fn run(&self, node: &ShopNode, command: Command) -> Result<Done, Refused> {
        self.in_time(self.send(node, command)).await
    }

    /// Sends a command, and notes its answer. No time passes.
    pub(crate) async fn send(&self, node: &ShopNode, command: Command) -> Result<Done, Refused> {
        let request = {
            let (requests, _) = &mut *self.answers.lock().unwrap();
            *requests += 1;
            format!("r{requests}")
        };
        let answered = node.commands.run(command.with_request(&request)).await;
        self.answers.lock().unwrap().1.note(&request, &answered);
        answered
    }

    /// Creates rows, and returns the numbers of those that are invoices.
    pub(crate) async fn write(
        &self,
        node: &ShopNode,
        ws: u64,
        rows: Vec<RowChange>,
    ) -> Result<Vec<String>, Refused> {
        let done = self.run(node, cud(ws, rows, self.shop_db.soon())).await?;
        let mut numbers = Vec::new();
        for (_, id) in done.answer.ids {
            numbers.extend(self.number(ws, id).await);
        }
        Ok(numbers)
    }

    /// The number of a stored record.
    pub(crate) async fn number(&self, ws: u64, id: RecordId) -> Option<String> {
        let stored = self.shop_db.reader().record(WsId(ws), id).await.unwrap().unwrap();
        match stored.record.fields.get("number") {
            Some(Value::String(number)) => Some(number.clone()),
            _ => None,
        }
    }

    /// A command that draws numbers of series by its handler.
    pub(crate) fn draw(&self, ws: u64, series: &str) -> Command {
        Command::new(WsId(ws), qname("shop.Draw"), self.shop_db.soon())
            .with_params(series.to_owned())
    }
}

/// A new invoice.
pub(crate) fn invoice(raw: u64) -> RowChange {
    new_row(raw, "shop.Invoice", [("name", text("Ann"))])
}

/// A row that no table allows.
pub(crate) fn wrong_row(raw: u64) -> RowChange {
    new_row(raw, "shop.Invoice", [("none", text("x"))])
}
