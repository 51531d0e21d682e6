//! A node that does not stop is killed, even if its runtime is blocked and its store hangs.

#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio, exit},
    sync::Arc,
    time::Duration,
};

use clock::Clock;
use ielections::{Elections, MemStore, Slot, Timing};

const LEASE: Duration = Duration::from_secs(2);
const KILLED: i32 = 86;

/// The part of the other process: it leads, works, and blocks the only thread of its runtime.
#[test]
#[ignore = "the other process; the test below starts it"]
fn child() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, clock) = (Arc::new(MemStore::new(Clock::system())), Clock::system());
        let owner = SocketAddr::from(([10, 0, 0, 1], 1));
        let node = Elections::new(store, clock.clone(), owner, Timing::of(LEASE)).unwrap();
        #[expect(clippy::disallowed_methods, reason = "this is the process that is to be killed")]
        let node = node.with_killer(Arc::new(|_| exit(KILLED)));
        let leadership = node.acquire(Slot::FIRST, clock.now() + LEASE).await.unwrap();
        let _work = leadership.work().unwrap();
        println!("\nleads");
        loop {
            std::thread::park();
        }
    });
}

#[test]
fn a_blocked_process_is_dead_before_its_lease_expires() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "leads"));
    let (clock, leads) = (Clock::system(), Clock::system().now());
    let status = child.wait().unwrap();
    let lived = clock.now() - leads;
    assert_eq!(status.code(), Some(KILLED));
    // Work may go on for three quarters of a lease.
    assert!(lived > LEASE / 2 && lived < LEASE, "{lived:?}");
}
