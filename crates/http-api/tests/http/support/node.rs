//! A node in this process, with its rows in memory. It has a log and metrics of its own.

use std::{
    io::{self, Write},
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use clock::Clock;
use http_admin::{AdminEndpoint, AdminSettings, MetricsRenderer};
use http_api::{HttpApi, HttpApiSettings};
use metrics_exporter_prometheus::PrometheusBuilder;
use processor::{Application, Declarations, SeriesPolicy};
use serde_json::Value;
use shop::http_client::{self, command_path, request, try_request};
use tck::trial::free_address;
use tokio::runtime::{Builder, Runtime};
use tracing::Dispatch;
use vvm::{
    AppSettings, Launched, NodeSettings, Problem, Stage, Vvm,
    docnumbers::{Definition, FastSettings, Overflow, Scope, Series},
    eventlog::RecordId,
    isequencer::{Sequence, WsKind, standard},
    istorage::{StorageDriver, mem::MemDriver},
    sysvvm::AppName,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The number of the workspace.
pub(crate) const WS: u64 = 1;

/// The body of a command that makes one record.
pub(crate) const ROW: &str = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;

/// A node with the API and the admin endpoint.
pub(crate) struct TestNode {
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    launched: Launched,
    pub(crate) runtime: Runtime,
    pub(crate) driver: Arc<MemDriver>,
    log: ShownLog,
    metrics: MetricsRenderer,
}

impl TestNode {
    /// Starts a node with the default limits, and with one workspace.
    pub(crate) fn start() -> TestNode {
        TestNode::with(|_| {})
    }

    /// Starts a node with changed settings of the API, and with one workspace.
    pub(crate) fn with(change: impl FnOnce(&mut HttpApiSettings)) -> TestNode {
        let node = TestNode::with_admin(|api, _| change(api));
        let body = r#"{"args":{"kind":"Shop"}}"#;
        let (status, answer) = node.command(WS, "sys.CreateWorkspace", body);
        assert_eq!(status, 200, "{answer}");
        node
    }

    /// Starts a node with changed settings of both ports, and without a workspace.
    pub(crate) fn with_admin(
        change: impl FnOnce(&mut HttpApiSettings, &mut AdminSettings),
    ) -> TestNode {
        TestNode::with_clock(Clock::system(), change)
    }

    /// Starts a node with a clock and changed settings of both ports, and without a workspace.
    pub(crate) fn with_clock(
        clock: Clock,
        change: impl FnOnce(&mut HttpApiSettings, &mut AdminSettings),
    ) -> TestNode {
        let deadline = clock.now() + PATIENCE;
        let node = TestNode::launch(change, Arc::new(MemDriver::new(clock.clone())), clock);
        node.runtime.block_on(node.launched.ready(deadline)).unwrap();
        node
    }

    /// Starts a node with an admin endpoint that shows the storage, and without a workspace.
    pub(crate) fn with_storage() -> TestNode {
        let driver = Arc::new(MemDriver::new(Clock::system()));
        TestNode::with_storage_of(Arc::clone(&driver), driver)
    }

    /// Starts such a node, whose admin endpoint sees the rows of the node through `storage`.
    pub(crate) fn with_storage_of(
        driver: Arc<MemDriver>,
        storage: Arc<dyn StorageDriver>,
    ) -> TestNode {
        let clock = Clock::system();
        let deadline = clock.now() + PATIENCE;
        let node = TestNode::launch(|_, admin| admin.storage = Some(storage), driver, clock);
        node.runtime.block_on(node.launched.ready(deadline)).unwrap();
        node
    }

    /// Starts a second node over the rows of this node, and waits until the second one is a
    /// standby.
    pub(crate) fn start_standby(&self) -> TestNode {
        let standby = TestNode::launch(|_, _| {}, Arc::clone(&self.driver), Clock::system());
        let (start, node) = (Instant::now(), standby.launched.node());
        while node.stage() != Stage::Waiting {
            assert!(start.elapsed() < PATIENCE, "{:?}", node.stage());
            sleep(Duration::from_millis(5));
        }
        standby
    }

    fn launch(
        change: impl FnOnce(&mut HttpApiSettings, &mut AdminSettings),
        driver: Arc<MemDriver>,
        clock: Clock,
    ) -> TestNode {
        let (api, admin) = (free_address(), free_address());
        let mut settings = HttpApiSettings::new(api);
        let log = Arc::new(Log::default());
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let metrics = Arc::new(move || metrics.render());
        let mut admin_settings = AdminSettings::new(admin, Arc::clone(&metrics) as _, "1.2.3");
        change(&mut settings, &mut admin_settings);
        // Each thread of the node writes into the log and the metrics of this node.
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::clone(&log));
        let dispatch = Dispatch::new(lines.finish());
        let recorder: &'static _ = Box::leak(Box::new(recorder));
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(move || {
                mem::forget(tracing::dispatcher::set_default(&dispatch));
                mem::forget(metrics::set_default_local_recorder(recorder));
            })
            .build()
            .unwrap();
        let rows = Arc::clone(&driver);
        let launched = runtime.spawn(async move { launch(settings, admin_settings, rows, clock) });
        let launched = runtime.block_on(launched).unwrap();
        TestNode { api, admin, launched, runtime, driver, log: ShownLog(log), metrics }
    }

    /// Sends a command.
    pub(crate) fn command(&self, ws: u64, name: &str, body: &str) -> (u16, Value) {
        request(self.api, "POST", &command_path(ws, name), &[], body)
    }

    /// Returns the ids of the requests in the log of a workspace.
    pub(crate) fn logged(&self, ws: u64) -> Vec<String> {
        http_client::logged(self.api, ws)
    }

    /// Returns the metrics as the admin endpoint sends them.
    pub(crate) fn metrics(&self) -> String {
        try_request(self.admin, "GET", "/metrics", &[], "").unwrap().1
    }

    /// Returns the value of a metric, with its labels as Prometheus writes them.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = (self.metrics)();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Returns the log that the node wrote.
    pub(crate) fn log_text(&self) -> String {
        self.log.0.text()
    }

    /// Stops the node in order.
    pub(crate) fn stop(self) {
        self.end().unwrap();
    }

    /// Stops the node, and returns the problem that the node had.
    pub(crate) fn end(self) -> Result<(), Arc<Problem>> {
        self.runtime.block_on(self.launched.shutdown())
    }
}

fn launch(
    settings: HttpApiSettings,
    admin: AdminSettings,
    driver: Arc<MemDriver>,
    clock: Clock,
) -> Launched {
    Vvm::builder(driver, clock, NodeSettings::new(settings.listen))
        .with_app(demo_app())
        .with_service(HttpApi::new(settings))
        .with_admin(AdminEndpoint::new(admin))
        .build()
        .unwrap()
        .launch()
}

/// A node with the tables of the demo application and with series, and without services.
pub(crate) fn demo_node(driver: Arc<dyn StorageDriver>, settings: NodeSettings) -> vvm::Builder {
    Vvm::builder(driver, Clock::system(), settings).with_app(demo_app())
}

/// The settings of the demo application with series.
pub(crate) fn demo_app() -> AppSettings {
    let demo = include_str!("../../../../../config/demo.toml");
    let more = r#"
[tables."shop.Slip"]
kind = "WDoc"
fields = { article = "ref" }
numbers = { number = "slip" }

[tables."shop.Ware"]
kind = "WDoc"
fields.name = { type = "string", required = true, immutable = true, max_length = 10 }
fields.stock = { type = "int64", min = 0, default = 0 }
fields.like = { type = "ref", to = ["shop.Ware"], immutable = true }
fields.seal = { type = "bytes", max_length = 3 }
fields.size = { type = "string", one_of = ["s", "l"] }
fields.state = { type = "string", one_of = ["new", "old"], required = true, default = "new" }
fields.made = { type = "int64", stamp = "created" }
fields.year = { type = "string", from = "made", format = "yyyy" }

[tables."shop.Entry"]
kind = "WDoc"
append_only = true
fields = { text = "string" }
"#;
    let schema = format!("{demo}\n{more}").parse().unwrap();
    let delivery = Sequence::counting_from(standard::FIRST_OF_APPLICATIONS, 1).unwrap();
    let sequences = [("Delivery".parse().unwrap(), delivery)];
    let shop = Declarations::new(schema).unwrap();
    let shop = shop.with_workspaces("Shop", WsKind(1), sequences).unwrap();
    let shop = Application::new(with_series(shop));
    AppSettings::new(AppName::new("demo", "shop").unwrap(), Arc::new(shop))
}

/// Adds series whose counters never start again: `order`, `tiny` with ten numbers, and `ticket` of
/// the whole application, with large blocks, are fast; `bill`, and `slip` with two numbers, are
/// gapless.
fn with_series(shop: Declarations) -> Declarations {
    let fast = || SeriesPolicy::Fast(FastSettings::default());
    let large = SeriesPolicy::Fast(FastSettings { max_block: 5_000, ..FastSettings::default() });
    let gapless = |counter| SeriesPolicy::Gapless { counter: RecordId(counter) };
    let new = |id, template| Definition::new(id, template);
    [
        (new("order", "O-{counter:5}"), fast()),
        (Definition { overflow: Overflow::Error, ..new("tiny", "N{counter:1}") }, fast()),
        (Definition { scope: Scope::Application, ..new("ticket", "T{counter:5}") }, large),
        (new("bill", "BILL-{counter:4}"), gapless(65_601)),
        (
            Definition { start: 8, overflow: Overflow::Error, ..new("slip", "S{counter:1}") },
            gapless(65_602),
        ),
    ]
    .into_iter()
    .fold(shop, |shop, (definition, policy)| {
        shop.with_series(Series::new(definition).unwrap(), policy).unwrap()
    })
}

/// The log of a node.
#[derive(Default)]
struct Log(Mutex<Vec<u8>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Shows the log if the test fails.
struct ShownLog(Arc<Log>);

impl Drop for ShownLog {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.0.text());
        }
    }
}

impl Write for &Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
