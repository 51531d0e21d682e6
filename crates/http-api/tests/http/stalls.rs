//! Reads of a node when its storage does not answer, or when the node itself stands still.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use clock::{Clock, Instant};
use http_api::{HttpApi, HttpApiSettings};
use serde_json::Value;
use shop::http_client::{command_path, request, workspace_path};
use tck::{
    storage::{Fault, Faulty},
    trial::free_address,
};
use tokio::task::spawn_blocking;
use vvm::{
    Launched, NodeSettings,
    ielections::Timing,
    istorage::{
        Call, CallAnswer, CallKind, Result, SharedStorage, StorageWrapper, WrappedDriver,
        mem::MemDriver,
    },
};

use crate::support::{PATIENCE, WS, code, demo_node};

const RECORD_PATH: &str = "docs/shop.Article/322685000131099";

/// How long a suspended node stands still.
const SUSPENDED: Duration = Duration::from_millis(1_500);

/// A storage whose node stands still after a read.
#[derive(Debug)]
struct SuspendingStorage {
    inner: SharedStorage,
    is_armed: Arc<AtomicBool>,
}

impl StorageWrapper for SuspendingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let suspends = call.kind() == CallKind::Get && self.is_armed.swap(false, Ordering::SeqCst);
        let answer = call.send(&self.inner, deadline).await;
        if suspends {
            // This blocks the only thread of the node.
            sleep(SUSPENDED);
        }
        answer
    }
}

/// A node on the only thread of a runtime.
struct StallingNode {
    launched: Launched,
    api: SocketAddr,
    /// While this is set, the next read stalls.
    is_armed: Arc<AtomicBool>,
}

impl StallingNode {
    /// Starts a node with one workspace. `wrap` makes the storage that stalls while its flag is
    /// set.
    async fn start(
        lease: Duration,
        command_time: Duration,
        wrap: impl Fn(SharedStorage, Arc<AtomicBool>) -> SharedStorage + Send + Sync + 'static,
    ) -> StallingNode {
        let api = free_address();
        let (clock, is_armed) = (Clock::system(), Arc::new(AtomicBool::new(false)));
        let armed = Arc::clone(&is_armed);
        let stalling = move |inner| wrap(inner, Arc::clone(&armed));
        let driver = WrappedDriver::new(Arc::new(MemDriver::new(clock.clone())), stalling);
        let settings = NodeSettings {
            lease: Timing::of(lease),
            request_call_timeout: NodeSettings::usual_request_call_timeout(lease),
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

/// A read of a document took as long as the storage took, whatever the time limit of the request
/// was.
#[tokio::test]
async fn a_read_that_the_storage_does_not_answer_ends_in_time() {
    let (lease, command_time) = (Duration::from_secs(20), Duration::from_millis(300));
    let hanging = |inner, is_armed: Arc<AtomicBool>| -> SharedStorage {
        let script = move |kind| match kind {
            CallKind::Get | CallKind::Read if is_armed.swap(false, Ordering::SeqCst) => Fault::Hang,
            _ => Fault::None,
        };
        Arc::new(Faulty::scripted(inner, Clock::system(), script))
    };
    let node = StallingNode::start(lease, command_time, hanging).await;
    for path in [RECORD_PATH, "cdocs/shop.Article"] {
        assert_eq!(node.stalled_read(path).await, (503, "timed_out".to_owned()));
    }
    node.launched.shutdown().await.unwrap();
}

/// The node answered that there was no such record. But the node had stood still past its lease,
/// and the present leader may have that record.
#[tokio::test]
async fn a_node_that_was_suspended_does_not_answer_that_a_record_is_missing() {
    let suspending =
        |inner, is_armed| -> SharedStorage { Arc::new(SuspendingStorage { inner, is_armed }) };
    let node = StallingNode::start(Duration::from_secs(2), PATIENCE, suspending).await;
    assert_eq!(node.stalled_read(RECORD_PATH).await, (503, "not_owner".to_owned()));
    node.launched.shutdown().await.unwrap_err();
}
