//! Commands that a partition refuses because it is busy, on a storage that is slow, fails and
//! recovers: status, code and `Retry-After` of the answer, and what status and readiness say.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use http_admin::{AdminEndpoint, AdminSettings};
use http_api::{HttpApi, HttpApiSettings};
use processor::{Command, RowChange};
use serde_json::json;
use shop::http_client::{command_path, request, workspace_path};
use tck::trial::free_address;
use tokio::{sync::watch, task::spawn_blocking};
use vvm::{
    Launched, NodeSettings, Stage,
    eventlog::{AppRow, Fields, Offset, RecordId, WsId},
    ielections::Timing,
    istorage::{
        AppStorageExt, Call, CallAnswer, Error, Result, SharedStorage, StorageWrapper,
        WrappedDriver, Write, mem::MemDriver,
    },
    processor::PartitionSettings,
};

use crate::{
    batches::statuses,
    support::{Answer, PATIENCE, WS, answer_to, demo_app},
};

/// How the storage of a test behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Works,
    /// Writes of numbers are not answered.
    NumbersHang,
    /// Writes of numbers fail.
    NumbersFail,
    /// Writes of groups are not answered.
    GroupsHang,
    /// Reads fail.
    ReadsFail,
}

#[derive(Debug)]
struct BusyStorage {
    inner: SharedStorage,
    mode: watch::Receiver<Mode>,
}

impl StorageWrapper for BusyStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        // Only a group has conditions.
        let (is_group, is_numbers) = match &call {
            Call::Write(Write::Atomic(batch)) => {
                (!batch.conditionals.is_empty(), batch.conditionals.is_empty())
            }
            Call::Write(Write::PutOrdered(_)) => (false, true),
            _ => (false, false),
        };
        let is_read = matches!(call, Call::Get(..) | Call::GetBatch(_) | Call::GetValues(_));
        let mode = *self.mode.borrow();
        match mode {
            Mode::NumbersFail if is_numbers => {
                return Err(Error::unavailable("the numbers are refused"));
            }
            Mode::ReadsFail if is_read => return Err(Error::unavailable("reads are refused")),
            Mode::NumbersHang if is_numbers => self.until_other(mode).await,
            Mode::GroupsHang if is_group => self.until_other(mode).await,
            _ => {}
        }
        call.send(&self.inner, deadline).await
    }
}

impl BusyStorage {
    async fn until_other(&self, mode: Mode) {
        let _ = self.mode.clone().wait_for(|now| *now != mode).await;
    }
}

struct BusyNode {
    launched: Launched,
    /// The keyspaces that the node opened, without their mode.
    opened: Arc<Mutex<Vec<SharedStorage>>>,
    api: SocketAddr,
    admin: SocketAddr,
    mode: watch::Sender<Mode>,
}

impl BusyNode {
    /// Starts a node with one workspace.
    async fn start(change: impl FnOnce(&mut PartitionSettings)) -> BusyNode {
        let node = BusyNode::launch(Mode::Works, change);
        node.launched.ready(Clock::system().now() + PATIENCE).await.unwrap();
        node.create_workspace().await;
        node
    }

    /// Launches a node on an empty storage.
    fn launch(mode: Mode, change: impl FnOnce(&mut PartitionSettings)) -> BusyNode {
        let (api, admin) = (free_address(), free_address());
        let (clock, (mode, current)) = (Clock::system(), watch::channel(mode));
        let opened = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&opened);
        let wrap = move |inner: SharedStorage| -> SharedStorage {
            kept.lock().unwrap().push(Arc::clone(&inner));
            Arc::new(BusyStorage { inner, mode: current.clone() })
        };
        let driver = WrappedDriver::new(Arc::new(MemDriver::new(clock.clone())), wrap);
        let lease = Duration::from_secs(60);
        let settings = NodeSettings {
            lease: Timing::of(lease),
            request_call_timeout: NodeSettings::usual_request_call_timeout(lease),
            ..NodeSettings::new(api)
        };
        let mut app = demo_app();
        app.partition.queue_wait = Duration::from_millis(200);
        change(&mut app.partition);
        let api_settings = HttpApiSettings { command_time: COMMAND, ..HttpApiSettings::new(api) };
        let metrics: http_admin::MetricsRenderer = Arc::new(String::new);
        let node = vvm::Vvm::builder(Arc::new(driver), clock.clone(), settings)
            .with_app(app)
            .with_service(HttpApi::new(api_settings))
            .with_admin(AdminEndpoint::new(AdminSettings::new(admin, metrics, "test")));
        BusyNode { launched: node.build().unwrap().launch(), opened, api, admin, mode }
    }

    async fn create_workspace(&self) {
        let create = self.send("sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#).await;
        assert_eq!(create.status, 200, "{create:?}");
    }

    async fn send(&self, name: &str, body: &'static str) -> Answer {
        let (api, path) = (self.api, command_path(WS, name));
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {api}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        spawn_blocking(move || answer_to(api, &(head + body))).await.unwrap()
    }

    /// Creates an article, which draws numbers.
    async fn create(&self) -> Answer {
        self.send("sys.CUD", ARTICLE).await
    }

    /// The status of the partition of the workspace, and the answer of `readyz`.
    async fn status(&self) -> (String, u16) {
        let admin = self.admin;
        let ask = move |path: &'static str| request(admin, "GET", path, &[], "");
        let [(_, status), (ready, _)] =
            spawn_blocking(move || [ask("/status"), ask("/readyz")]).await.unwrap();
        let here = &status["node"]["apps"][0]["here"][WS as usize];
        (here["status"].as_str().unwrap_or("not here").to_owned(), ready)
    }

    /// The text of `readyz`.
    async fn ready(&self) -> String {
        let admin = self.admin;
        let ask = move || shop::http_client::try_request(admin, "GET", "/readyz", &[], "");
        spawn_blocking(ask).await.unwrap().unwrap().1
    }

    async fn until_ready(&self) {
        let start = std::time::Instant::now();
        while self.status().await != ("ready".to_owned(), 200) {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.status().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The number of events of the workspace.
    async fn events(&self) -> usize {
        let api = self.api;
        spawn_blocking(move || shop::http_client::logged(api, WS).len()).await.unwrap()
    }
}

/// A new article, which draws numbers.
const ARTICLE: &str = r#"{"rows":[{"id":1,"table":"shop.Article","fields":{}}]}"#;

/// The time limit of a command.
const COMMAND: Duration = Duration::from_secs(2);

fn refused(answer: &Answer) -> (u16, String, Option<u64>) {
    let after = answer.header("retry-after").map(|after| after.parse().unwrap());
    (answer.status, answer.code(), after)
}

/// The storage took numbers slowly. Commands waited for a second without a sign, and were then
/// refused with `storage`, although the storage had no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_whose_numbers_wait_is_full_until_they_are_stored() {
    let node = BusyNode::start(|partition| {
        partition.sequencer.max_unflushed = std::num::NonZeroUsize::MIN;
    })
    .await;
    node.mode.send_replace(Mode::NumbersHang);
    assert_eq!(node.create().await.status, 200, "the numbers of this command wait");
    let start = std::time::Instant::now();
    let full = node.create().await;
    let waited = start.elapsed();
    let (status, code, after) = refused(&full);
    assert_eq!((status, &*code), (503, "queue_full"), "{full:?}");
    assert!(full.body.contains("too many numbers wait to be stored"), "{full:?}");
    assert!(after.is_some_and(|after| (1..=60).contains(&after)), "{full:?}");
    let wait = Duration::from_millis(200);
    assert!(waited >= wait && waited < 4 * wait, "the command waited for {waited:?}");
    assert_eq!(node.status().await, ("full: too many numbers wait to be stored".to_owned(), 503));

    node.mode.send_replace(Mode::Works);
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    assert_eq!(node.events().await, 3, "nothing of the refused command was done");

    // An error of the storage is another reason.
    node.mode.send_replace(Mode::NumbersFail);
    assert_eq!(node.create().await.status, 200, "the numbers of this command wait");
    let failed = node.create().await;
    assert_eq!(refused(&failed), (503, "storage".to_owned(), Some(1)), "{failed:?}");
    let (status, ready) = node.status().await;
    assert!(status.starts_with("stalled: numbers cannot be stored") && ready == 503, "{status}");
    // No row is in the way, but the list of repairs still has the partition.
    let admin = node.admin;
    let list = spawn_blocking(move || request(admin, "GET", "/repairs", &[], "").1).await.unwrap();
    assert_eq!(
        (list["stuck"][0]["status"].as_str(), &list["stuck"][0]["row"]),
        (Some(&*status), &json!(null)),
        "{list}"
    );
    node.mode.send_replace(Mode::Works);
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    node.launched.shutdown().await.unwrap();
}

/// One command is being written, and one waits. The next ones wait for a place, and are then
/// refused. The command that waits is refused at its own time limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_waits_for_a_place_in_the_queue_but_not_for_long() {
    let node = BusyNode::start(|partition| partition.queue = 1).await;
    node.mode.send_replace(Mode::GroupsHang);
    let writing = node.create();
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let waiting = node.create();
        let third = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let start = std::time::Instant::now();
            let full = node.create().await;
            assert_eq!((full.status, &*full.code()), (503, "queue_full"), "{full:?}");
            assert!(full.body.contains("too many commands wait"), "{full:?}");
            let waited = start.elapsed();
            assert!(waited >= Duration::from_millis(200), "the command waited for {waited:?}");
            // The other partitions of the node go on.
            assert_eq!(node.status().await, ("full: too many commands wait".to_owned(), 200));
            assert_eq!(node.ready().await, "ready, full partitions: 1\n");
        };
        let (waiting, ()) = tokio::join!(waiting, third);
        assert_eq!(refused(&waiting), (503, "timed_out".to_owned(), Some(1)), "{waiting:?}");
        node.mode.send_replace(Mode::Works);
    };
    let (writing, ()) = tokio::join!(writing, others);
    assert_eq!((writing.status, &*writing.code()), (504, "unknown"), "{writing:?}");
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    assert_eq!(node.events().await, 3, "the refused commands were not done");
    node.launched.shutdown().await.unwrap();
}

/// A recovery ends with a write of numbers. Commands do not wait for the end of a recovery: it may
/// take longer than their clients wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_recovers_refuses_commands_at_once() {
    let node = BusyNode::launch(Mode::NumbersHang, |_| {});
    let start = std::time::Instant::now();
    // The ports are bound before the node leads.
    while node.launched.node().stage() != Stage::Recovering || node.status().await.0 != "recovering"
    {
        assert!(start.elapsed() < PATIENCE, "the partition does not recover");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let start = std::time::Instant::now();
    let busy = node.create().await;
    assert_eq!(refused(&busy), (503, "recovering".to_owned(), Some(1)), "{busy:?}");
    assert!(start.elapsed() < COMMAND / 2, "the command waited for {:?}", start.elapsed());
    assert_eq!(node.status().await, ("recovering".to_owned(), 503));
    node.mode.send_replace(Mode::Works);
    node.until_ready().await;
    node.create_workspace().await;
    assert_eq!(node.create().await.status, 200);
    node.launched.shutdown().await.unwrap();
}

/// A foreign row is in the place of the next event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_with_a_foreign_row_refuses_commands_until_the_row_is_gone() {
    let node = BusyNode::start(|_| {}).await;
    let (soon, foreign) = (Clock::system().now() + PATIENCE, Bytes::from_static(b"foreign"));
    let key = AppRow::Plog(WS as u16, Offset(2)).key();
    // The application is opened last.
    let storage = Arc::clone(node.opened.lock().unwrap().last().unwrap());
    storage.put(key.clone(), foreign.clone(), soon).await.unwrap();
    let busy = node.create().await;
    assert_eq!(refused(&busy), (503, "violation".to_owned(), Some(1)), "{busy:?}");
    let (status, ready) = node.status().await;
    assert!(status.starts_with("violation: event 2 of the log"), "{status}");
    assert_eq!(ready, 200, "the other partitions go on");
    let gone = storage.compare_and_delete(key, foreign, soon).await.unwrap();
    assert!(gone.is_applied());
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    node.launched.shutdown().await.unwrap();
}

/// A partition that can read nothing refuses commands with the error of the storage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_reads_nothing_names_the_storage() {
    let node = BusyNode::start(|_| {}).await;
    let path = command_path(WS, "sys.CUD");
    let api = node.api;
    node.mode.send_replace(Mode::ReadsFail);
    let keyed = spawn_blocking(move || {
        let key = [("idempotency-key", "k")];
        request(api, "POST", &path, &key, ARTICLE)
    });
    let (status, answer) = keyed.await.unwrap();
    assert_eq!((status, &answer["code"]), (503, &json!("storage")), "{answer}");
    let start = std::time::Instant::now();
    while node.status().await.1 != 503 {
        assert!(start.elapsed() < PATIENCE, "the node is ready");
    }
    let next = node.create().await;
    assert_eq!(refused(&next), (503, "storage".to_owned(), Some(1)), "{next:?}");
    node.mode.send_replace(Mode::Works);
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    node.launched.shutdown().await.unwrap();
}

/// Five commands that each create an article, in one batch.
const BATCH: &str = r#"{"commands":[
    {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]},
    {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]},
    {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]},
    {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]},
    {"command":"sys.CUD","rows":[{"id":1,"table":"shop.Article"}]}]}"#;

impl BusyNode {
    async fn send_batch(&self) -> Answer {
        let (api, path) = (self.api, format!("{}/commands", workspace_path(WS)));
        let length = BATCH.len();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: {api}\r\ncontent-length: {length}\r\n\r\n");
        spawn_blocking(move || answer_to(api, &(head + BATCH))).await.unwrap()
    }
}

/// The time of the batch ends while its first group is being written. The commands of that group
/// may be done, and no other command is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_time_ends_says_which_commands_may_be_done() {
    let node = BusyNode::start(|partition| partition.group_commands = 2).await;
    node.mode.send_replace(Mode::GroupsHang);
    let answer = node.send_batch().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // The first group may have begun with one command.
    let statuses = statuses(&answer.json());
    let begun = statuses.iter().take_while(|status| **status == 504).count();
    assert!((1..=2).contains(&begun), "{answer:?}");
    assert!(statuses[begun..].iter().all(|status| *status == 503), "{answer:?}");
    assert_eq!(answer.json()["answers"][2]["code"], "timed_out");
    node.mode.send_replace(Mode::Works);
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    assert_eq!(node.events().await, begun + 2, "the workspace, what was begun, and the last one");
    node.launched.shutdown().await.unwrap();
}

/// A queue with fewer places than a batch takes the batch in parts. A batch that finds no place is
/// refused as a whole, and nothing of it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_places_in_the_queue_but_not_for_long() {
    let node = BusyNode::start(|partition| partition.queue = 2).await;
    let answer = node.send_batch().await;
    assert_eq!(statuses(&answer.json()), [200; 5], "{answer:?}");
    node.mode.send_replace(Mode::GroupsHang);
    let writing = node.create();
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (waiting, full) = tokio::join!(node.create(), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            node.send_batch().await
        });
        let (status, code, after) = refused(&full);
        assert_eq!((status, &*code), (503, "queue_full"), "{full:?}");
        assert!(after.is_some(), "{full:?}");
        assert_eq!(refused(&waiting), (503, "timed_out".to_owned(), Some(1)), "{waiting:?}");
        node.mode.send_replace(Mode::Works);
    };
    let (writing, ()) = tokio::join!(writing, others);
    assert_eq!(writing.status, 504, "{writing:?}");
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    assert_eq!(node.events().await, 8, "nothing of the refused batch was done");
    node.launched.shutdown().await.unwrap();
}

/// The sender of a batch goes away during the write of the first group. The partition does no
/// command that it has not begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_a_batch_is_not_done_if_its_sender_goes_away() {
    let node = BusyNode::start(|partition| {
        (partition.group_commands, partition.queue) = (2, 10);
    })
    .await;
    node.mode.send_replace(Mode::GroupsHang);
    let handle = node.launched.node();
    let app = handle.app("demo", "shop").unwrap();
    let commands = app.at(WsId(WS)).unwrap().commands().clone();
    let row = || RowChange::Create {
        raw: RecordId(1),
        table: "shop.Article".parse().unwrap(),
        parent: None,
        fields: Fields::new(),
    };
    let until = Clock::system().now() + PATIENCE;
    let command = || Command::new(WsId(WS), "sys.CUD".parse().unwrap(), until);
    let batch = (0..5).map(|_| command().with_rows(vec![row()])).collect();
    let begun = async {
        // All five were sent, and the group that left the queue is being written.
        while !(3..5).contains(&commands.waiting()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        5 - commands.waiting()
    };
    let begun = tokio::select! {
        answers = commands.run_batch(batch) => panic!("{answers:?}"),
        begun = begun => begun,
    };
    node.mode.send_replace(Mode::Works);
    node.until_ready().await;
    assert_eq!(node.create().await.status, 200);
    assert_eq!(node.events().await, begun + 2, "the workspace, what was begun, and the last one");
    node.launched.shutdown().await.unwrap();
}
