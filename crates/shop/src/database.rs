//! A database with the shop in it, and nodes that lead its partitions.

use std::{
    num::NonZeroU16,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use eventlog::{Epoch, LogWriter, Reader, TrustLevel, WsId};
use isequencer::SeqId;
use istorage::{KeyspaceName, SharedStorage, StorageDriver, mem::MemDriver};
use processor::{Application, Commands, Partition, PartitionEnd, PartitionSettings, Status};
use seqstorage::PartitionStorage;
use sysvvm::{AppName, OpenedApp, System};

use crate::{TestFence, shop};

/// The longest wait for anything. A server may need long for a keyspace.
const PATIENCE: Duration = Duration::from_secs(120);

/// A database with the shop in it.
#[derive(Debug)]
pub struct ShopDatabase {
    /// The system keyspace.
    pub system: System,
    /// The shop.
    pub app: OpenedApp,
    /// The definition of the shop.
    pub application: Arc<Application>,
    /// The clock of all nodes.
    pub clock: Clock,
    epochs: AtomicU64,
}

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct ShopNodeSettings {
    /// The trust level of the application.
    pub level: TrustLevel,
    /// The epoch below which level 2 wrote; 0 if it never did.
    pub stray_before: Epoch,
    /// The timeout of each call to the storage.
    pub timeout: Duration,
    /// How long the log tries to apply events.
    pub apply_for: Duration,
    /// How long a repeated command gets the first answer.
    pub answers_kept: Duration,
    /// The storage of the application, if it differs from that of the shop database.
    pub storage: Option<SharedStorage>,
    /// Whether numbers are kept in the application's keyspace.
    pub in_view: bool,
    /// The settings of each partition.
    pub partition: PartitionSettings,
}

impl ShopNodeSettings {
    /// The usual settings, at a trust level.
    #[must_use]
    pub fn at(level: TrustLevel) -> ShopNodeSettings {
        let mut partition = PartitionSettings::new("test");
        partition.sequencer.retry_after = Duration::from_millis(50);
        ShopNodeSettings {
            level,
            stray_before: Epoch(0),
            timeout: Duration::from_secs(10),
            apply_for: Duration::from_secs(5),
            answers_kept: Duration::from_secs(24 * 60 * 60),
            storage: None,
            in_view: false,
            partition,
        }
    }
}

/// A node that leads a partition.
#[derive(Debug)]
pub struct ShopNode {
    partition: Mutex<Option<Partition>>,
    /// The queue of its commands.
    pub commands: Commands,
    /// The fence of its leadership.
    pub fence: Arc<TestFence>,
    /// Its log.
    pub log: Arc<LogWriter>,
    numbers: Arc<PartitionStorage>,
    clock: Clock,
}

impl ShopDatabase {
    /// Makes or opens the shop, with a number of partitions, in a database.
    ///
    /// # Panics
    /// If the database does not work.
    pub async fn new(
        driver: Arc<dyn StorageDriver>,
        system: KeyspaceName,
        partitions: NonZeroU16,
        clock: Clock,
    ) -> ShopDatabase {
        let soon = clock.now() + PATIENCE;
        let system = System::open(driver, system, clock.clone(), soon).await;
        let system = system.expect("the system keyspace can be opened");
        let name = AppName::new("acme", "shop").expect("it is a name");
        let app = match system.open_app(&name, soon).await {
            Ok(app) => app,
            Err(_) => {
                let app = system.init_app(&name, partitions, soon).await;
                app.expect("the application can be made")
            }
        };
        ShopDatabase { system, app, application: shop(), clock, epochs: AtomicU64::new(0) }
    }

    /// Makes a shop with ten partitions in memory.
    ///
    /// # Panics
    /// Never: the memory takes every row.
    pub async fn in_memory() -> ShopDatabase {
        const PARTITIONS: NonZeroU16 = NonZeroU16::new(10).expect("ten is not zero");
        let clock = Clock::system();
        let driver = Arc::new(MemDriver::new(clock.clone()));
        let system = KeyspaceName::new("sysvvm").expect("it is a name");
        ShopDatabase::new(driver, system, PARTITIONS, clock).await
    }

    /// Starts the next leader of a partition.
    pub fn node(&self, partition: u16, settings: ShopNodeSettings) -> ShopNode {
        let epoch = self.epochs.fetch_add(1, Ordering::SeqCst) + 1;
        self.node_of(partition, TestFence::of(epoch), settings)
    }

    /// Starts a leader of a partition with the given fence.
    pub fn node_of(
        &self,
        partition: u16,
        fence: Arc<TestFence>,
        settings: ShopNodeSettings,
    ) -> ShopNode {
        let ShopNodeSettings {
            level,
            stray_before,
            timeout,
            apply_for,
            answers_kept,
            storage,
            in_view,
            partition: mut own,
        } = settings;
        own.name = format!("{partition}");
        let partitions = self.app.entry.partitions;
        let storage = storage.unwrap_or_else(|| Arc::clone(&self.app.storage));
        let settings = eventlog::LogSettings {
            partitions,
            level,
            stray_before,
            timeout,
            apply_for,
            answers_kept,
        };
        let log = Arc::new(LogWriter::new(
            Arc::clone(&storage),
            self.clock.clone(),
            Arc::clone(&fence) as _,
            partition,
            settings,
        ));
        let numbers = if in_view {
            PartitionStorage::in_view(Arc::clone(&log))
        } else {
            let numbers = self.system.numbers(&self.app.entry);
            PartitionStorage::in_system(numbers, Arc::clone(&log))
        };
        let numbers = Arc::new(numbers);
        let partition = Partition::deploy(
            Arc::clone(&self.application),
            Arc::clone(&log),
            Arc::clone(&numbers) as _,
            self.clock.clone(),
            own,
        );
        let commands = partition.commands().clone();
        let partition = Mutex::new(Some(partition));
        ShopNode { partition, commands, fence, log, numbers, clock: self.clock.clone() }
    }

    /// A reader of everything that the shop has stored.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let storage = Arc::clone(&self.app.storage);
        Reader::new(storage, self.clock.clone(), Duration::from_secs(10), self.app.entry.partitions)
    }

    /// A deadline that passes only if something is wrong.
    #[must_use]
    pub fn soon(&self) -> Instant {
        self.clock.now() + PATIENCE
    }
}

impl ShopNode {
    fn take(&self) -> Option<Partition> {
        self.partition.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until the partition has a certain status.
    ///
    /// # Panics
    /// If the partition does not get this status.
    pub async fn until(&self, wanted: impl Fn(&Status) -> bool) -> Status {
        let deadline = self.clock.now() + PATIENCE;
        loop {
            let status = self.commands.status();
            if wanted(&status) {
                return status;
            }
            assert!(self.clock.now() < deadline, "the status stays {status:?}");
            self.clock.sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the partition takes commands.
    pub async fn ready(&self) {
        self.until(|status| *status == Status::Ready).await;
    }

    /// The last stored number of a sequence of a workspace, as a reader gets it.
    pub fn stored(
        &self,
        ws: WsId,
        seq: SeqId,
    ) -> impl Future<Output = eventlog::Result<Option<u64>>> + Send + use<> {
        let numbers = Arc::clone(&self.numbers);
        async move { numbers.stored_number(ws, seq).await }
    }

    /// Stops the partition in order.
    pub async fn stop(&self) -> PartitionEnd {
        self.stop_within(PATIENCE).await
    }

    /// Stops the partition in order, within a given time.
    pub async fn stop_within(&self, time: Duration) -> PartitionEnd {
        match self.take() {
            Some(partition) => partition.undeploy(self.clock.now() + time).await,
            None => PartitionEnd::Stopped,
        }
    }

    /// Ends the partition at once, in the middle of its work.
    pub fn kill(&self) {
        drop(self.take());
    }
}
