//! Nodes in this process over one database in memory. Each node has metrics of its own.

use std::{
    io::Write as _,
    mem,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use clock::{Clock, Instant as Deadline};
use http_api::{ClusterSettings, HttpApi, HttpApiSettings};
use http_server::ClusterTls;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use processor::{
    Application, CommandContext, Declarations, Handler, HandlerError, RowChange, SeriesPolicy,
    bytes::Bytes,
};
use serde_json::Value;
use shop::http_client::{command_path, request};
pub(crate) use tck::trial::free_address;
use tokio::runtime::{Builder, Runtime};
use vvm::{
    AppSettings, ClusterOrder, Launched, NodeSettings, OrderError, Stage, Vvm, async_trait,
    docnumbers::{Definition, FastSettings, Series},
    eventlog::{RecordId, WsId},
    ielections::Timing,
    isequencer::{Sequence, WsKind, standard},
    istorage::{
        Call, CallAnswer, KeyspaceName, Result, SharedStorage, StorageDriver, StorageWrapper,
        WrappedDriver, mem::MemDriver,
    },
    sysvvm::{AppName, ownership::MemberId},
};

use super::{Answer, WS, connect};

const PATIENCE: Duration = Duration::from_secs(20);

/// The workspace whose reads hang while a test says so.
pub(crate) const HANGING_WS: u64 = 0x0102_0304_0506_0708;

/// A database in memory.
pub(crate) struct TestCluster {
    driver: Arc<dyn StorageDriver>,
    hangs: Arc<AtomicBool>,
}

/// A storage whose reads of one workspace hang while a test says so.
#[derive(Debug)]
struct HangingStorage {
    inner: SharedStorage,
    hangs: Arc<AtomicBool>,
}

impl StorageWrapper for HangingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Deadline) -> Result<CallAnswer> {
        let ws = HANGING_WS.to_be_bytes();
        let is_of_ws = matches!(&call, Call::Get(key, _) if key.pkey.windows(8).any(|it| it == ws));
        while is_of_ws && self.hangs.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        call.send(&self.inner, deadline).await
    }
}

/// A database that stays open when a node closes it, because other nodes use it.
#[derive(Debug)]
struct SharedDriver(MemDriver);

#[async_trait]
impl StorageDriver for SharedDriver {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Deadline) -> Result<()> {
        self.0.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Deadline,
    ) -> Result<Option<SharedStorage>> {
        self.0.open(keyspace, deadline).await
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Deadline) -> Result<()> {
        self.0.drop_keyspace(keyspace, deadline).await
    }

    async fn close(&self) {}
}

/// The differences of a node from the usual node.
#[derive(Default)]
pub(crate) struct NodeOptions {
    /// The number of seats; usually one.
    pub(crate) seats: Option<u32>,
    /// The address that peers use instead of the cluster port.
    pub(crate) proxy: Option<SocketAddr>,
    /// The address of the cluster port.
    pub(crate) cluster: Option<SocketAddr>,
    pub(crate) tls: Option<ClusterTls>,
    pub(crate) change: Option<fn(&mut HttpApiSettings)>,
}

/// A node with the API and the cluster port.
pub(crate) struct ClusterNode {
    pub(crate) api: SocketAddr,
    pub(crate) cluster: SocketAddr,
    pub(crate) launched: Launched,
    runtime: Runtime,
    metrics: PrometheusHandle,
}

impl TestCluster {
    pub(crate) fn new() -> TestCluster {
        let hangs = Arc::new(AtomicBool::new(false));
        let driver = Arc::new(SharedDriver(MemDriver::new(Clock::system()))) as _;
        let of_storage = Arc::clone(&hangs);
        let driver = WrappedDriver::new(driver, move |inner| {
            Arc::new(HangingStorage { inner, hangs: Arc::clone(&of_storage) })
        });
        TestCluster { driver: Arc::new(driver), hangs }
    }

    /// Lets reads of [`HANGING_WS`] hang, or go on.
    pub(crate) fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    /// Starts a node that owns all partitions, with one workspace, and a second node that owns
    /// none. The second node reaches the first one through a proxy, if there is one.
    pub(crate) fn owner_and_entry(proxy: Option<SocketAddr>) -> (ClusterNode, ClusterNode) {
        let cluster = TestCluster::new();
        let owner = cluster.owner(NodeOptions { proxy, ..NodeOptions::default() });
        let entry = cluster.entry(NodeOptions::default());
        (owner, entry)
    }

    /// Starts a node that owns its partitions, with one workspace.
    pub(crate) fn owner(&self, options: NodeOptions) -> ClusterNode {
        let node = self.launch(options);
        node.wait_for(|node| node.launched.node().stage() == Stage::Leading);
        node.create_workspace(WS);
        node
    }

    /// Starts a second node beside an owner, which owns no partition until it takes one. The
    /// cluster moves no partitions by itself.
    pub(crate) fn beside(&self, owner: &ClusterNode, options: NodeOptions) -> ClusterNode {
        owner.order(ClusterOrder::Pause);
        let node = self.launch(options);
        let is_open = |node: &ClusterNode| {
            node.launched.node().app("demo", "shop").unwrap().reader().is_some()
        };
        node.wait_for(|node| node.launched.node().incarnation().is_some() && is_open(node));
        node
    }

    /// Starts a node that owns no partition, because all seats are taken, and waits until it knows
    /// the owner.
    pub(crate) fn entry(&self, options: NodeOptions) -> ClusterNode {
        let node = self.launch(options);
        node.wait_for(|node| {
            let node = node.launched.node();
            let app = node.app("demo", "shop").unwrap();
            node.stage() == Stage::Waiting && node.owner_of(app, 1).owner.is_some()
        });
        node
    }

    pub(crate) fn launch(&self, options: NodeOptions) -> ClusterNode {
        let (api, cluster) = (free_address(), options.cluster.unwrap_or_else(free_address));
        let mut settings = HttpApiSettings::new(api);
        if let Some(change) = options.change {
            change(&mut settings);
        }
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let recorder: &'static _ = Box::leak(Box::new(recorder));
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(move || mem::forget(metrics::set_default_local_recorder(recorder)))
            .build()
            .unwrap();
        let driver = Arc::clone(&self.driver);
        let launched = runtime.spawn(async move {
            let port = ClusterSettings { tls: options.tls, ..ClusterSettings::new(cluster) };
            let (http, port) = HttpApi::with_cluster(settings, port).unwrap();
            let mut node = NodeSettings::new(api);
            node.cluster = Some(options.proxy.unwrap_or(cluster));
            node.seats = NonZeroU32::new(options.seats.unwrap_or(1)).unwrap();
            node.acquire_within = None;
            node.lease = Timing::of(Duration::from_secs(5));
            node.request_call_timeout = Duration::from_millis(500);
            Vvm::builder(driver, Clock::system(), node)
                .with_app(demo_app())
                .with_service(http)
                .with_service(port)
                .build()
                .unwrap()
                .launch()
        });
        let launched = runtime.block_on(launched).unwrap();
        ClusterNode { api, cluster, launched, runtime, metrics }
    }
}

impl ClusterNode {
    pub(crate) fn wait_for(&self, is_so: impl Fn(&ClusterNode) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            let status = self.runtime.block_on(self.launched.node().status());
            assert!(start.elapsed() < PATIENCE && status.problem.is_none(), "{status:?}");
            sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn create_workspace(&self, ws: u64) {
        let (status, answer) =
            self.command(ws, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
        assert_eq!(status, 200, "{answer}");
    }

    pub(crate) fn command(&self, ws: u64, name: &str, body: &str) -> (u16, Value) {
        request(self.api, "POST", &command_path(ws, name), &[], body)
    }

    /// Gives the order of an operator. A node that has just started, and an owner that has just
    /// taken its partitions, are not known at once.
    pub(crate) fn order(&self, order: ClusterOrder) {
        let start = Instant::now();
        let node = self.launched.node();
        while let Err(error) = self.runtime.block_on(order.clone().give(node)) {
            assert!(!matches!(error, OrderError::Storage(_)), "{error}");
            assert!(start.elapsed() < PATIENCE, "{error}");
            sleep(Duration::from_millis(10));
        }
    }

    /// The id of this node among the members of the cluster.
    pub(crate) fn member(&self) -> MemberId {
        self.launched.node().cluster_status().this_member.parse().unwrap()
    }

    /// Orders that the partition of a workspace moves to this node, and waits until it has moved.
    pub(crate) fn take(&self, ws: u64) {
        let app = "demo/shop".to_owned();
        let partition = u16::try_from(ws).unwrap();
        self.wait_for(|node| {
            let members = node.launched.node().cluster_status().members;
            members.iter().any(|member| member.id == node.member().to_string() && member.fresh)
        });
        self.order(ClusterOrder::Move { app, partition, to: self.member() });
        self.wait_for(|node| node.owns(ws));
    }

    /// Whether this node owns the partition of a workspace.
    pub(crate) fn owns(&self, ws: u64) -> bool {
        self.launched.node().app("demo", "shop").unwrap().at(WsId(ws)).is_ok()
    }

    /// Sends a request on a new connection, and returns its whole answer.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        ask(self.api, method, path, headers, body)
    }

    /// The value of a metric, with its labels as Prometheus writes them.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.metrics.render();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    pub(crate) fn metrics(&self) -> String {
        self.metrics.render()
    }

    pub(crate) fn stop(self) {
        self.runtime.block_on(self.launched.shutdown()).unwrap();
    }
}

/// Sends a request on a new connection, and returns its whole answer.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Answer {
    let mut stream = connect(address);
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    Answer::read(&mut stream).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// Returns a JSON text with as many bytes as its params say.
#[derive(Debug)]
struct ResultHandler;

#[async_trait]
impl Handler for ResultHandler {
    async fn run(
        &self,
        params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> std::result::Result<Bytes, HandlerError> {
        context.write(rows).await?;
        let bytes: usize = serde_json::from_slice(params).unwrap();
        Ok(format!("\"{}\"", "x".repeat(bytes - 2)).into())
    }
}

/// The demo application with its series, the fast series `order`, and the command `shop.Result`.
fn demo_app() -> AppSettings {
    let schema = include_str!("../../../../../config/demo.toml").parse().unwrap();
    let delivery = Sequence::counting_from(standard::FIRST_OF_APPLICATIONS, 1).unwrap();
    let sequences = [("Delivery".parse().unwrap(), delivery)];
    let shop = Declarations::new(schema).unwrap();
    let shop = shop.with_workspaces("Shop", WsKind(1), sequences).unwrap();
    let bill = Series::new(Definition::new("bill", "BILL-{counter:4}")).unwrap();
    let counter = RecordId(65_601);
    let shop = shop.with_series(bill, SeriesPolicy::Gapless { counter }).unwrap();
    let order = Series::new(Definition::new("order", "O-{counter:5}")).unwrap();
    let fast = FastSettings { max_block: 2_000, ..FastSettings::default() };
    let shop = shop.with_series(order, SeriesPolicy::Fast(fast)).unwrap();
    let shop = Application::new(shop);
    let shop = shop.with_command("shop.Result".parse().unwrap(), ResultHandler).unwrap();
    AppSettings::new(AppName::new("demo", "shop").unwrap(), Arc::new(shop))
}
