//! Reads of a node when its storage does not answer, or when the node itself stands still.

use std::{
    future::pending,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use clock::{Clock, Instant};
use futures::{StreamExt, stream};
use httpapi::{HttpApi, HttpApiSettings};
use serde_json::Value;
use shop::http_client::{command_path, request, workspace_path};
use tokio::task::spawn_blocking;
use vvm::{
    Launched, NodeSettings,
    ielections::Timing,
    istorage::{
        Call, CallAnswer, CallKind, RangeRead, Result, RowStream, SharedStorage, StorageWrapper,
        WrappedDriver, mem::MemDriver,
    },
};

use crate::support::{PATIENCE, WS, code, demo_node};

const RECORD_PATH: &str = "docs/shop.Article/322685000131099";

/// The time for which a suspended node stands still.
const SUSPENDED: Duration = Duration::from_millis(1_500);

/// What stalls at a read.
#[derive(Clone, Copy, Debug)]
enum Stall {
    /// The storage does not answer.
    StorageHangs,
    /// The only thread of the node stands still when it gets the answer.
    NodeSuspended,
}

/// A storage that stalls at a read.
#[derive(Debug)]
struct StallingReads {
    inner: SharedStorage,
    /// While this is set, the next read stalls.
    is_armed: Arc<AtomicBool>,
    stall: Stall,
}

impl StorageWrapper for StallingReads {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let stalls = call.kind() == CallKind::Get && self.is_armed.swap(false, Ordering::SeqCst);
        let answer = call.send(&self.inner, deadline).await;
        match self.stall {
            Stall::NodeSuspended if stalls => sleep(SUSPENDED),
            Stall::StorageHangs if stalls => pending().await,
            _ => {}
        }
        answer
    }

    fn read(&self, read: RangeRead) -> RowStream {
        match self.is_armed.swap(false, Ordering::SeqCst) {
            true => stream::pending().boxed(),
            false => read.send(&self.inner),
        }
    }
}

/// A node on the only thread of a runtime.
struct StallingNode {
    launched: Launched,
    api: SocketAddr,
    is_armed: Arc<AtomicBool>,
}

impl StallingNode {
    /// Starts a node with one workspace.
    async fn start(lease: Duration, command_time: Duration, stall: Stall) -> StallingNode {
        let api = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (clock, is_armed) = (Clock::system(), Arc::new(AtomicBool::new(false)));
        let armed = Arc::clone(&is_armed);
        let stalling = move |inner| {
            Arc::new(StallingReads { inner, is_armed: Arc::clone(&armed), stall }) as _
        };
        let driver = WrappedDriver::new(Arc::new(MemDriver::new(clock.clone())), stalling);
        let settings = NodeSettings {
            lease: Timing::of(lease),
            request_call_timeout: lease / 10,
            ..NodeSettings::new(api)
        };
        let api_settings = HttpApiSettings { command_time, ..HttpApiSettings::new(api) };
        let node = demo_node(Arc::new(driver), settings).with_service(HttpApi::new(api_settings));
        let launched = node.build().unwrap().launch();
        launched.ready(clock.now() + PATIENCE).await.unwrap();
        let node = StallingNode { launched, api, is_armed };
        let body = r#"{"args":{"kind":"Shop"}}"#;
        let create = command_path(WS, "sys.CreateWorkspace");
        let (status, answer) = node.request("POST", create, body).await;
        assert_eq!(status, 200, "{answer}");
        node
    }

    async fn request(
        &self,
        method: &'static str,
        path: String,
        body: &'static str,
    ) -> (u16, Value) {
        let api = self.api;
        spawn_blocking(move || request(api, method, &path, &[], body)).await.unwrap()
    }

    /// Reads from the workspace. The first read of the storage stalls. Returns the status and the
    /// code of the answer.
    async fn stalled_read(&self, path: &str) -> (u16, String) {
        self.is_armed.store(true, Ordering::SeqCst);
        let answer = self.request("GET", format!("{}/{path}", workspace_path(WS)), "").await;
        assert!(!self.is_armed.load(Ordering::SeqCst), "nothing was read");
        code(answer)
    }
}

/// A read of a document took as long as the storage took, without regard to the time limit of a
/// request.
#[tokio::test]
async fn a_read_that_the_storage_does_not_answer_ends_in_time() {
    let (lease, command_time) = (Duration::from_secs(20), Duration::from_millis(300));
    let node = StallingNode::start(lease, command_time, Stall::StorageHangs).await;
    for path in [RECORD_PATH, "cdocs/shop.Article"] {
        assert_eq!(node.stalled_read(path).await, (503, "timed_out".to_owned()));
    }
    node.launched.shutdown().await.unwrap();
}

/// The node answered that there was no such record. But the node had stood still past its lease,
/// and the present leader may have that record.
#[tokio::test]
async fn a_node_that_was_suspended_does_not_answer_that_a_record_is_missing() {
    let node = StallingNode::start(Duration::from_secs(2), PATIENCE, Stall::NodeSuspended).await;
    assert_eq!(node.stalled_read(RECORD_PATH).await, (503, "not_leader".to_owned()));
    node.launched.shutdown().await.unwrap_err();
}
