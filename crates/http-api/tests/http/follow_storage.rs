//! The reads of the storage that followers cause, and logs with a damaged event.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{StreamExt, stream};
use http_api::{HttpApi, HttpApiSettings};
use serde_json::Value;
use shop::{
    Follower,
    http_client::{command_path, request, workspace_path},
};
use tck::trial::free_address;
use tokio::runtime::Runtime;
use vvm::{
    Launched, NodeSettings,
    eventlog::{AppRow, Offset, WsId},
    istorage::{
        AppStorageExt, RangeRead, RowStream, SharedStorage, StorageWrapper, WrappedDriver,
        mem::MemDriver,
    },
};

use crate::support::{PATIENCE, WS, demo_node};

/// A storage that counts its reads of ranges, and can let them hang.
#[derive(Debug)]
struct CountedStorage {
    inner: SharedStorage,
    reads: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
}

impl StorageWrapper for CountedStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn read(&self, read: RangeRead) -> RowStream {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match self.hangs.load(Ordering::SeqCst) {
            true => stream::pending().boxed(),
            false => read.send(&self.inner),
        }
    }
}

struct CountedNode {
    api: SocketAddr,
    runtime: Runtime,
    launched: Launched,
    opened: Arc<Mutex<Vec<SharedStorage>>>,
    reads: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
}

impl CountedNode {
    /// Starts a node with one workspace.
    fn start() -> CountedNode {
        CountedNode::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HttpApiSettings)) -> CountedNode {
        let runtime = Runtime::new().unwrap();
        let entered = runtime.enter();
        let api = free_address();
        let (opened, reads) = (Arc::new(Mutex::new(Vec::new())), Arc::default());
        let hangs = Arc::<AtomicBool>::default();
        let (kept, counted, hang) = (Arc::clone(&opened), Arc::clone(&reads), Arc::clone(&hangs));
        let wrap = move |inner: SharedStorage| -> SharedStorage {
            kept.lock().unwrap().push(Arc::clone(&inner));
            let (reads, hangs) = (Arc::clone(&counted), Arc::clone(&hang));
            Arc::new(CountedStorage { inner, reads, hangs })
        };
        let clock = Clock::system();
        let driver = WrappedDriver::new(Arc::new(MemDriver::new(clock.clone())), wrap);
        let node = demo_node(Arc::new(driver), NodeSettings::new(api));
        let mut settings = HttpApiSettings::new(api);
        change(&mut settings);
        let node = node.with_service(HttpApi::new(settings)).build().unwrap();
        let launched = node.launch();
        runtime.block_on(launched.ready(clock.now() + PATIENCE)).unwrap();
        drop(entered);
        let node = CountedNode { api, runtime, launched, opened, reads, hangs };
        node.send("sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
        node
    }

    fn send(&self, command: &str, body: &str) {
        let (status, answer) = request(self.api, "POST", &command_path(WS, command), &[], body);
        assert_eq!(status, 200, "{answer}");
    }

    /// Writes an event with this many bytes of text.
    fn write(&self, bytes: usize) {
        let fields = format!(r#""fields":{{"name":"{}"}}"#, "x".repeat(bytes));
        let row = format!(r#"{{"id":1,"table":"shop.Article",{fields}}}"#);
        self.send("sys.CUD", &format!(r#"{{"rows":[{row}]}}"#));
    }

    fn open(&self, query: &str) -> Follower {
        Follower::open(self.api, &format!("{}/wlog?{query}", workspace_path(WS)), &[]).unwrap()
    }

    /// Damages an event in the log of the workspace.
    fn damage(&self, wlog: u64) {
        let (key, far) = (AppRow::Wlog(WsId(WS), Offset(wlog)).key(), Instant::FAR_FUTURE);
        let storages = self.opened.lock().unwrap().clone();
        self.runtime.block_on(async {
            let mut damaged = 0;
            for storage in storages {
                if let Some(there) = storage.get_linearizable(&key, far).await.unwrap() {
                    let new = Bytes::from_static(b"damaged");
                    let swap = storage.compare_and_swap(key.clone(), there, new, None, far).await;
                    damaged += usize::from(swap.unwrap().is_applied());
                }
            }
            assert!(damaged > 0, "there is no event {wlog}");
        });
    }

    fn stop(self) {
        self.runtime.block_on(self.launched.shutdown()).unwrap();
    }
}

fn offset(follower: &mut Follower) -> u64 {
    let line = follower.line().unwrap().expect("the answer has no end");
    serde_json::from_str::<Value>(&line).unwrap()["wlogOffset"].as_u64().unwrap()
}

/// Each follower read an event of more than 32 KiB itself.
#[test]
fn one_read_serves_all_followers_also_of_large_events() {
    const EVENTS: u64 = 3;
    let node = CountedNode::start();
    let mut followers: Vec<_> = (0..30).map(|_| node.open("follow=true&from=end")).collect();
    for event in 0..EVENTS {
        // New followers do not disturb the others.
        followers.push(node.open("follow=true&from=end"));
        let before = node.reads.load(Ordering::SeqCst);
        node.write(100_000);
        followers.iter_mut().for_each(|one| assert_eq!(offset(one), 2 + event));
        let reads = node.reads.load(Ordering::SeqCst) - before;
        assert!((1..10).contains(&reads), "{reads} reads");
    }
    drop(followers);
    node.stop();
}

/// The events before a damaged one were read, and dropped.
#[test]
fn the_events_in_front_of_a_damaged_one_are_sent() {
    let node = CountedNode::start();
    (0..4).for_each(|_| node.write(10));
    node.damage(4);
    for query in ["from=1", "follow=true&from=1"] {
        let mut log = node.open(query);
        assert_eq!(log.status, 200, "{}", log.head);
        assert_eq!([1, 2, 3].map(|_| offset(&mut log)), [1, 2, 3], "{query}");
        log.line().expect_err("the answer is cut");
        let query = query.replace("from=1", "from=4");
        assert_eq!(node.open(&query).status, 500, "{query}");
    }
    node.stop();
}

/// The tasks that read new events for followers took the memory of answers while the storage did
/// not answer them. So other requests found none.
#[test]
fn reads_of_new_events_that_hang_leave_the_memory_of_answers() {
    const LOGS: u64 = 12;
    // Documents have three times the memory of a read.
    let node = CountedNode::with(|settings| settings.answers_bytes = 8 << 20);
    let send = |ws, command, body| {
        let (status, answer) = request(node.api, "POST", &command_path(ws, command), &[], body);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let logs = 2..2 + LOGS;
    let followers: Vec<_> = logs
        .clone()
        .map(|ws| {
            send(ws, "sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
            let path = format!("{}/wlog?follow=true&from=end", workspace_path(ws));
            Follower::open(node.api, &path, &[]).unwrap()
        })
        .collect();
    let row = r#"{"rows":[{"id":1,"table":"shop.Article"}]}"#;
    let id = send(WS, "sys.CUD", row)["newIds"]["1"].as_u64().unwrap();
    let before = node.reads.load(Ordering::SeqCst);
    node.hangs.store(true, Ordering::SeqCst);
    logs.for_each(|ws| drop(send(ws, "sys.CUD", row)));
    let start = std::time::Instant::now();
    while node.reads.load(Ordering::SeqCst) < before + 3 {
        assert!(start.elapsed() < PATIENCE, "nobody reads");
    }
    let doc = format!("{}/docs/shop.Article/{id}", workspace_path(WS));
    let (status, answer) = request(node.api, "GET", &doc, &[], "");
    assert_eq!(status, 200, "{answer}");
    drop(followers);
    node.stop();
}
