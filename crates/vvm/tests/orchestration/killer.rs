//! The killer of a node: it ends a process whose work goes on after the leadership was lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use vvm::{Problem, Stage};

use crate::cluster::{Cluster, PATIENCE, hasty};

/// No page told a host that a node counts as work until the host has stopped it.
#[tokio::test]
async fn a_node_that_its_host_stops_too_late_is_killed() {
    let cluster = Cluster::new();
    let killed = Arc::new(AtomicBool::new(false));
    let kill = Arc::clone(&killed);
    let node = cluster.node(1, hasty);
    let node = node.with_killer(Arc::new(move |_| kill.store(true, Ordering::SeqCst)));
    let node = node.build().unwrap().launch();
    cluster.until(&node, Stage::Leading).await;
    cluster.usurp(1).await;
    node.problem().await;
    let deadline = cluster.clock.now() + PATIENCE;
    while !killed.load(Ordering::SeqCst) {
        assert!(cluster.clock.now() < deadline, "it was not killed");
        cluster.clock.sleep(Duration::from_millis(5)).await;
    }
    node.shutdown().await.unwrap_err();
}

/// A lease is over, and work goes on. The killer ends the process, although the runtime is blocked.
#[test]
fn the_killer_ends_a_process_with_work_that_does_not_stop() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let killed = Arc::new(AtomicBool::new(false));
    let kill = Arc::clone(&killed);
    runtime.block_on(async {
        let cluster = Cluster::new();
        let node = cluster.node(1, hasty);
        let node = node.with_killer(Arc::new(move |_| kill.store(true, Ordering::SeqCst)));
        let node = node.build().unwrap().launch();
        cluster.until(&node, Stage::Leading).await;
        // The only thread of the runtime is blocked: no lease can be renewed, and nothing can be
        // stopped.
        let clock = cluster.clock.clone();
        let end = clock.now() + PATIENCE;
        while !killed.load(Ordering::SeqCst) {
            assert!(clock.now() < end, "it was not killed");
            std::thread::yield_now();
        }
        assert!(matches!(*node.shutdown().await.unwrap_err(), Problem::LeadershipLost(_)));
    });
}

/// The variable that the next test sets for the process that it starts: the test binary again.
const STANDS_STILL: &str = "VVM_TEST_STANDS_STILL";

/// The exit code of a process that its killer ended.
const KILLED: i32 = 10;

/// All threads of the runtime, and the thread that waits for the runtime, stand still. Only a
/// thread of the operating system can end the process.
#[test]
fn a_process_with_a_suspended_runtime_is_killed() {
    if std::env::var_os(STANDS_STILL).is_some() {
        return stand_still();
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killer::a_process_with_a_suspended_runtime_is_killed", "--nocapture"])
        .env(STANDS_STILL, "yes")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if clock.now() > end {
            child.kill().unwrap();
            panic!("the killer did not end the process");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(KILLED));
}

/// Leads a seat, and then blocks all threads.
fn stand_still() {
    const THREADS: usize = 2;
    let forever = || loop {
        std::thread::park();
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(THREADS).enable_all().build().unwrap().block_on(async {
        let cluster = Cluster::new();
        let kill = Arc::new(|_: &str| std::process::exit(KILLED));
        let node = cluster.node(1, hasty).with_killer(kill).build().unwrap().launch();
        cluster.until(&node, Stage::Leading).await;
        for _ in 0..THREADS {
            tokio::spawn(async move { forever() });
        }
        forever();
    });
}
