//! A database in memory and services that a test controls, and nodes that use them.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::{ConditionalOutcome, ElectionRow, Seat, Timing, TtlStore};
use istorage::{CallKind, Error, KeyspaceName, SharedStorage, StorageDriver, mem::MemDriver};
use processor::{Command, Done, Refused};
use shop::{StallingStorage, create_workspace, shop};
use sysvvm::{AppName, System};
use tck::storage::{Fault, Faulty};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use vvm::{AppSettings, Builder, Launched, Node, NodeSettings, Service, ServiceError, Stage, Vvm};

use crate::{found, numbers::FaultySystem};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A database, and nodes on it.
pub(crate) struct Cluster {
    pub(crate) driver: Arc<ScriptedDriver>,
    pub(crate) clock: Clock,
}

/// The parts that have stopped, in order.
pub(crate) type Journal = Arc<Mutex<Vec<&'static str>>>;

impl Cluster {
    pub(crate) fn new() -> Cluster {
        Cluster::with_clock(Clock::system())
    }

    pub(crate) fn with_clock(clock: Clock) -> Cluster {
        let driver = ScriptedDriver {
            inner: MemDriver::new(clock.clone()),
            clock: clock.clone(),
            is_out_of_reach: AtomicBool::default(),
            refused_opens: AtomicUsize::default(),
            is_held: AtomicBool::default(),
            stall: OnceLock::default(),
            never_closes: AtomicBool::default(),
            failed: CancellationToken::default(),
            writes: Arc::new(Mutex::new(Fault::None)),
            numbers: Arc::new(Mutex::new(Fault::None)),
            keeps_leases: Arc::default(),
            keyspace: OnceLock::default(),
            journal: Arc::default(),
        };
        Cluster { driver: Arc::new(driver), clock }
    }

    /// Settings with the usual times. A machine may stand still for a moment, for example while the
    /// panic of a test is printed with all its frames. With these times no node loses its
    /// leadership then.
    pub(crate) fn settings(&self, number: u16) -> NodeSettings {
        NodeSettings {
            acquire_within: None,
            ..NodeSettings::new(SocketAddr::from(([127, 0, 0, 1], number)))
        }
    }

    pub(crate) fn node(&self, number: u16, change: impl FnOnce(&mut NodeSettings)) -> Builder {
        let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
        self.node_of(number, app, change)
    }

    /// A node with another application. All nodes of a cluster have the same application, because
    /// the driver gives them one keyspace.
    pub(crate) fn node_of(
        &self,
        number: u16,
        app: AppSettings,
        change: impl FnOnce(&mut NodeSettings),
    ) -> Builder {
        let mut settings = self.settings(number);
        change(&mut settings);
        Vvm::builder(Arc::clone(&self.driver) as _, self.clock.clone(), settings).with_app(app)
    }

    pub(crate) fn launch(&self, number: u16) -> Launched {
        self.node(number, |_| {}).build().unwrap().launch()
    }

    /// A leader with workspace 7, and a deadline for commands to the leader.
    pub(crate) async fn with_workspace(&self, node: Builder) -> (Launched, Instant) {
        let node = node.build().unwrap().launch();
        self.until(&node, Stage::Leading).await;
        let soon = self.clock.now() + PATIENCE;
        run(&node, create_workspace(7, soon)).await;
        (node, soon)
    }

    pub(crate) async fn until(&self, launched: &Launched, stage: Stage) {
        let deadline = self.clock.now() + PATIENCE;
        while launched.node().stage() != stage {
            assert!(self.clock.now() < deadline, "it stays {:?}", launched.node().stage());
            self.clock.sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) async fn system(&self) -> System {
        let name = KeyspaceName::new("sysvvm").unwrap();
        let (driver, clock) = (Arc::clone(&self.driver) as _, self.clock.clone());
        System::open(driver, name, clock, Instant::FAR_FUTURE).await.unwrap()
    }

    pub(crate) async fn store(&self) -> impl TtlStore {
        self.system().await.elections()
    }

    /// Launches a node with short leases. The node loses its leadership if it stands still for a
    /// second. The node notices within half a second that another node has the lease.
    pub(crate) fn launch_hasty(&self, number: u16) -> Launched {
        self.node(number, hasty).build().unwrap().launch()
    }

    /// The lease of a seat.
    pub(crate) async fn lease(&self, seat: u32) -> Option<Bytes> {
        let seat = Seat::new(seat).unwrap();
        let leases = self.store().await.leases(Instant::FAR_FUTURE).await.unwrap();
        leases.into_iter().find(|seen| seen.seat == seat).map(|seen| seen.value)
    }

    /// Replaces the lease of a seat by another lease, as another node could do.
    pub(crate) async fn usurp(&self, seat: u32) {
        let there = self.lease(seat).await.unwrap();
        let row = ElectionRow::Lease(Seat::new(seat).unwrap());
        let lasts = Some(Duration::from_secs(60));
        let store = self.store().await;
        let swap = store.compare_and_swap(row, there, "x".into(), lasts, Instant::FAR_FUTURE);
        assert!(
            matches!(swap.await.unwrap(), ConditionalOutcome::Done),
            "somebody else was faster"
        );
    }

    /// Deletes the lease that [`usurp`](Cluster::usurp) wrote.
    pub(crate) async fn release(&self, seat: u32) {
        let row = ElectionRow::Lease(Seat::new(seat).unwrap());
        let store = self.store().await;
        let deleted = store.compare_and_delete(row, "x".into(), Instant::FAR_FUTURE);
        assert!(matches!(deleted.await.unwrap(), ConditionalOutcome::Done));
    }
}

/// Sets leases that end soon.
pub(crate) fn hasty(settings: &mut NodeSettings) {
    settings.lease = Timing::of(Duration::from_secs(2));
    settings.request_call_timeout = Duration::from_millis(200);
}

/// A database in memory. The database stays open when a node closes it, because other nodes use it.
#[derive(Debug)]
pub(crate) struct ScriptedDriver {
    inner: MemDriver,
    clock: Clock,
    /// While this is set, no keyspace can be opened.
    pub(crate) is_out_of_reach: AtomicBool,
    /// The number of attempts to open an application that fail.
    pub(crate) refused_opens: AtomicUsize,
    /// While this is set, opening an application waits.
    pub(crate) is_held: AtomicBool,
    /// The stall between nodes and the keyspaces of applications.
    pub(crate) stall: OnceLock<StallingStorage>,
    pub(crate) never_closes: AtomicBool,
    /// Cancelled when the driver cannot go on.
    pub(crate) failed: CancellationToken,
    /// The fault of each write in keyspaces of applications.
    pub(crate) writes: Arc<Mutex<Fault>>,
    /// The fault of each conditional write of document numbers.
    pub(crate) numbers: Arc<Mutex<Fault>>,
    /// While this is set, no lease can be deleted.
    pub(crate) keeps_leases: Arc<AtomicBool>,
    /// The keyspace of the application, without faults and stalls.
    pub(crate) keyspace: OnceLock<SharedStorage>,
    pub(crate) journal: Journal,
}

impl ScriptedDriver {
    /// The database itself, without the faults of nodes.
    pub(crate) fn database(&self) -> Arc<dyn StorageDriver> {
        Arc::new(self.inner.clone())
    }
}

#[async_trait]
impl StorageDriver for ScriptedDriver {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> istorage::Result<()> {
        self.inner.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> istorage::Result<Option<SharedStorage>> {
        if self.is_out_of_reach.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the storage does not answer"));
        }
        let opened = self.inner.open(keyspace, deadline).await?;
        if keyspace.as_str() == "sysvvm" {
            let faulty = |inner| {
                let (clock, fault) = (self.clock.clone(), Arc::clone(&self.numbers));
                let keeps_leases = Arc::clone(&self.keeps_leases);
                found::with_defect(Arc::new(FaultySystem { inner, clock, fault, keeps_leases }))
            };
            return Ok(opened.map(faulty));
        }
        let less = |left: usize| left.checked_sub(1);
        if self.refused_opens.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(Error::unavailable("a server hangs"));
        }
        while self.is_held.load(Ordering::SeqCst) {
            self.clock.sleep(Duration::from_millis(2)).await;
        }
        let stalled = |storage| {
            let storage = self.keyspace.get_or_init(|| storage);
            let writes = Arc::clone(&self.writes);
            let script = move |op| match op {
                CallKind::WriteAtomic | CallKind::WriteIf | CallKind::PutOrdered => {
                    *writes.lock().unwrap()
                }
                _ => Fault::None,
            };
            let faulty = Faulty::scripted(Arc::clone(storage), self.clock.clone(), script);
            let stall = self.stall.get_or_init(|| StallingStorage::new(Arc::new(faulty)));
            Arc::new(stall.clone()) as SharedStorage
        };
        Ok(opened.map(stalled))
    }

    async fn drop_keyspace(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> istorage::Result<()> {
        self.inner.drop_keyspace(keyspace, deadline).await
    }

    async fn failed(&self) -> Error {
        self.failed.cancelled().await;
        Error::unavailable("a thread of the storage panicked")
    }

    async fn close(&self) {
        if self.never_closes.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.journal.lock().unwrap().push("the storage");
    }
}

/// How a service binds its port.
#[derive(Debug, Default)]
pub(crate) enum BindBehaviour {
    #[default]
    Well,
    Taken,
    Never,
    Panics,
}

/// A service that a test controls.
#[derive(Debug, Default)]
pub(crate) struct ScriptedService {
    pub(crate) binds: BindBehaviour,
    pub(crate) hangs: bool,
    pub(crate) fails: Arc<Notify>,
    pub(crate) panics: bool,
    pub(crate) stopped: Arc<AtomicUsize>,
    pub(crate) journal: Journal,
    pub(crate) noted_as: &'static str,
}

#[async_trait]
impl Service for ScriptedService {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn bind(&mut self) -> Result<(), ServiceError> {
        match self.binds {
            BindBehaviour::Well => Ok(()),
            BindBehaviour::Taken => Err("the port is taken".into()),
            BindBehaviour::Never => std::future::pending().await,
            BindBehaviour::Panics => panic!("the script says so"),
        }
    }

    async fn run(self: Box<Self>, _: Node, stop: CancellationToken) -> Result<(), ServiceError> {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.fails.notified() => {
                assert!(!self.panics, "the script says so");
                return Err("the script says so".into());
            }
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        self.stopped.fetch_add(1, Ordering::SeqCst);
        self.journal.lock().unwrap().push(self.noted_as);
        Ok(())
    }
}

/// Sends a command. The future of the answer may be awaited on another task.
pub(crate) fn send(
    launched: &Launched,
    command: Command,
) -> impl Future<Output = Result<Done, Refused>> + Send + use<> {
    let node = launched.node().clone();
    async move {
        node.app("acme", "shop").unwrap().at(command.ws).unwrap().commands().run(command).await
    }
}

/// The address of the owner of partition 0, if another node owns it.
pub(crate) async fn owner(node: &Node) -> Option<SocketAddr> {
    node.find_owner(node.app("acme", "shop").unwrap(), 0).await
}

pub(crate) async fn run(launched: &Launched, command: Command) -> Done {
    send(launched, command).await.unwrap()
}
