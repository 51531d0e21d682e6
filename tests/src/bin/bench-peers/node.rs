//! The commands of the node on redb, each with an empty file.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use clock::Clock;
use eventlog::TrustLevel;
use istorage::{KeyspaceName, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};
use rustix::process::Signal;
use serde_json::json;
use shop::http_client::command_path;
use tokio::sync::Mutex;
use vvm_tests::bench::{
    BenchBinary, BenchError, KeptConnection, Sample, ShopLoad, bill, request_bytes,
};

use crate::Load;

/// Runs the partitions and their clients in this process.
pub(crate) async fn in_process(
    folder: &Path,
    clock: &Clock,
    load: Load,
) -> Result<Sample, BenchError> {
    let config = RedbConfig::new(folder.join("bench.redb"));
    let driver: Arc<dyn StorageDriver> = Arc::new(RedbDriver::open(config, clock.clone()).await?);
    let (name, level) = (KeyspaceName::new("bench")?, TrustLevel::default());
    let shop =
        ShopLoad::new(&driver, name, level, load.workspaces, |storage| storage, clock).await?;
    let sample = shop.run(load.clients, load.span, bill(load.records)?).await;
    shop.stop().await;
    driver.close().await;
    sample
}

/// Runs a node as a process of its own. Each client has a connection.
pub(crate) async fn over_http(
    binary: &BenchBinary,
    folder: &Path,
    clock: &Clock,
    load: Load,
) -> Result<Sample, BenchError> {
    let node = binary.start(&["serve"], folder)?;
    let mut connected = Vec::new();
    for _ in 0..load.clients {
        connected.push(Mutex::new(KeptConnection::connect(node.api()).await?));
    }
    let kind = r#"{"args":{"kind":"Shop"}}"#;
    for ws in 0..load.workspaces {
        let path = command_path(1 + ws, "sys.CreateWorkspace");
        connected[0].get_mut().ask(&request_bytes("POST", &path, "", kind)).await?;
    }
    let body = order(load.records);
    let request = |ws| request_bytes("POST", &command_path(1 + ws, "sys.CUD"), "", &body);
    let requests: Arc<Vec<_>> = Arc::new((0..load.workspaces).map(request).collect());
    let (connected, next) = (Arc::new(connected), Arc::new(AtomicU64::new(0)));
    let call = move |client: usize| {
        let (connected, requests) = (Arc::clone(&connected), Arc::clone(&requests));
        let ws = next.fetch_add(1, Ordering::Relaxed) % load.workspaces;
        async move { connected[client].lock().await.ask(&requests[ws as usize]).await }
    };
    let sample = Sample::measure(clock, load.clients, load.span, call).await;
    node.end(Signal::TERM)?;
    sample
}

/// The record that the lines of an order refer to: the descriptor, which each workspace has.
const DESCRIPTOR: u64 = 65_536;

/// The body of a command that makes an order and its lines, like that of `vvm bench`.
fn order(records: u64) -> String {
    let order = json!({
        "id": 1, "table": "shop.Order",
        "fields": {
            "number": "ORDER2026-1123-00000",
            "customer": "a customer with a name of some length, as there are",
        },
    });
    let line = |id| {
        json!({
            "id": id, "table": "shop.Line", "parent": { "id": 1, "container": "lines" },
            "fields": { "article": DESCRIPTOR, "quantity": 2, "cents": 1_999 },
        })
    };
    let rows: Vec<_> = [order].into_iter().chain((2..=records).map(line)).collect();
    json!({ "rows": rows }).to_string()
}
