//! The shop in a database of its own, for one trial.

use std::{num::NonZeroU16, sync::Arc};

use async_trait::async_trait;
use istorage::{KeyspaceName, StorageDriver};
use processor::{Command, Done, Refused};
use shop::{AnswerLedger, ShopDatabase, ShopNode, ShopNodeSettings, create_workspace};
use tck::storage::{KeyspaceTracker, Scale, Subject};
use vvm_tests::trials;

/// The number of partitions of the shop: enough for a trial to use one for each of its cases.
pub(crate) const PARTITIONS: u16 = 60_000;

/// The partition that trials work on, and two workspaces in it. Partition `PARTITION + n` has the
/// workspaces `WS + n` and `OTHER_WS + n`.
pub(crate) const PARTITION: u16 = 1;
pub(crate) const WS: u64 = PARTITIONS as u64 + 1;
pub(crate) const OTHER_WS: u64 = WS + PARTITIONS as u64;

pub(crate) struct CommandsFixture {
    keyspaces: KeyspaceTracker,
    subject: Arc<dyn Subject>,
    driver: Arc<dyn StorageDriver>,
    system: KeyspaceName,
    pub(crate) shop_db: ShopDatabase,
    /// Whether calls cost next to nothing.
    pub(crate) is_embedded: bool,
}

#[async_trait]
impl trials::Fixture for CommandsFixture {
    async fn new(subject: Arc<dyn Subject>) -> istorage::Result<CommandsFixture> {
        let (keyspaces, clock) = (KeyspaceTracker::default(), subject.clock());
        let driver = keyspaces.track(subject.node(0).await?);
        let system = KeyspaceName::new(format!("shop_{:016x}", clock.random()))?;
        let partitions = NonZeroU16::new(PARTITIONS).unwrap();
        let shop_db =
            ShopDatabase::new(Arc::clone(&driver), system.clone(), partitions, clock).await;
        let is_embedded = subject.scale() == Scale::Embedded;
        Ok(CommandsFixture { keyspaces, subject, driver, system, shop_db, is_embedded })
    }

    async fn remove(self) -> istorage::Result<()> {
        let left = self.keyspaces.drop_all(&*self.driver, &self.shop_db.clock).await;
        left.into_iter().try_for_each(|(_, error)| Err(error))
    }
}

impl CommandsFixture {
    /// The same database, as a machine sees it that has its wall clock ahead.
    pub(crate) async fn with_clock_ahead(&self, ms: i64) -> ShopDatabase {
        let driver = self.subject.node(ms).await.unwrap();
        let clock = self.shop_db.clock.with_wall_offset(ms);
        let partitions = NonZeroU16::new(PARTITIONS).unwrap();
        ShopDatabase::new(driver, self.system.clone(), partitions, clock).await
    }

    /// A node that leads a partition with one workspace.
    pub(crate) async fn begin(
        &self,
        partition: u16,
        ws: u64,
        settings: ShopNodeSettings,
    ) -> (ShopNode, AnswerLedger) {
        let (node, mut ledger) = (self.shop_db.node(partition, settings), AnswerLedger::default());
        node.ready().await;
        let create = named("create", create_workspace(ws, self.shop_db.soon()));
        self.run(&node, &mut ledger, create).await.unwrap();
        (node, ledger)
    }

    /// Runs a command, and notes the answer.
    pub(crate) async fn run(
        &self,
        node: &ShopNode,
        ledger: &mut AnswerLedger,
        command: Command,
    ) -> Result<Done, Refused> {
        let request = command.request.clone();
        ledger.sent(&request);
        let answered = node.commands.run(command).await;
        ledger.note(&request, &answered);
        answered
    }
}

/// Gives a command a name for its request.
pub(crate) fn named(request: &str, command: Command) -> Command {
    command.with_request(request)
}
