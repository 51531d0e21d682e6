//! Test that a node gives back its threads and tasks. The test is alone in its binary, because it
//! counts the threads of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::{fs, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use ielections::Timing;
use istorage::mem::MemDriver;
use shop::{create_workspace, shop};
use sysvvm::AppName;
use tokio::runtime::{Builder, Handle};
use vvm::{AppSettings, NodeSettings, Vvm};

const PATIENCE: Duration = Duration::from_secs(30);

/// The killer is a thread. A killer that outlived its leadership would stay until the process ends,
/// and a host that loses and regains its leadership would gather killers.
#[test]
fn nodes_that_have_stopped_leave_no_thread_and_no_task() {
    let of = |threads: usize| {
        Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
    };
    let (control, requests) = (of(1), of(2));
    let clock = Clock::system();
    let requests_handle = requests.handle().clone();
    let held = || {
        let threads = fs::read_dir("/proc/self/task").unwrap().count();
        let tasks = |runtime: &Handle| runtime.metrics().num_alive_tasks();
        (threads, tasks(control.handle()), tasks(&requests_handle))
    };
    // The first node leads once, so that each runtime has started all its threads.
    control.block_on(lead(&clock, &requests_handle));
    let settle = |before: Option<_>| {
        let deadline = clock.now() + PATIENCE;
        loop {
            let now = held();
            if before.is_none_or(|before| before == now) && (now.1, now.2) == (0, 0) {
                return now;
            }
            assert!(clock.now() < deadline, "{now:?} are held, and before: {before:?}");
            control.block_on(clock.sleep(Duration::from_millis(5)));
        }
    };
    // A killer of the first node may still be there; it ends by its own bound.
    control.block_on(clock.sleep(Duration::from_secs(1)));
    let before = settle(None);
    for _ in 0..20 {
        control.block_on(lead(&clock, &requests_handle));
    }
    settle(Some(before));
}

/// Leads with a killer, does some work, and stops.
async fn lead(clock: &Clock, requests: &Handle) {
    let settings = NodeSettings {
        lease: Timing::of(Duration::from_secs(60)),
        ..NodeSettings::new("127.0.0.1:7000".parse().unwrap())
    };
    let driver = Arc::new(MemDriver::new(clock.clone()));
    let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
    let node = Vvm::builder(Arc::clone(&driver) as _, clock.clone(), settings)
        .with_requests_on(requests.clone(), driver)
        .with_killer(Arc::new(|why| panic!("killed: {why}")))
        .with_app(app);
    let node = node.build().unwrap().launch();
    let soon: Instant = clock.now() + PATIENCE;
    node.ready(soon).await.unwrap();
    let partition = node.node().app("acme", "shop").unwrap().at(eventlog::WsId(7));
    partition.unwrap().commands().run(create_workspace(7, soon)).await.unwrap();
    node.shutdown().await.unwrap();
}
