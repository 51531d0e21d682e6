//! A node that does not stop is killed, even if its runtime is blocked and its store hangs.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio, exit},
    sync::Arc,
    time::Duration,
};

use clock::Clock;
use ielections::{
    ElectionRow, Elections, Leadership, LossReason, Seat, Timing, TtlStore, WorkGuard,
};
use tck::elections::MemStore;

const LEASE: Duration = Duration::from_secs(4);
const KILLED: i32 = 86;

/// Makes the leadership of the other process, and its work.
async fn leads(store: Arc<MemStore>) -> (Leadership, WorkGuard) {
    let clock = Clock::system();
    let owner = SocketAddr::from(([10, 0, 0, 1], 1));
    let node = Elections::new(store, clock.clone(), owner, Timing::of(LEASE)).unwrap();
    #[expect(clippy::disallowed_methods, reason = "this is the process that is to be killed")]
    let node = node.with_killer(Arc::new(|_| exit(KILLED)));
    let leadership = node.acquire(Seat::FIRST, clock.now() + LEASE).await.unwrap();
    let work = leadership.work().unwrap();
    println!("\nleads");
    (leadership, work)
}

/// The other process blocks the only thread of its runtime.
#[tokio::test]
#[ignore = "the other process; a test below starts it"]
async fn child_that_blocks() {
    let _leads = leads(Arc::new(MemStore::new(Clock::system()))).await;
    std::thread::park_timeout(2 * LEASE);
}

/// The lease of the other process is deleted. The process sees the loss, and its work continues.
#[tokio::test]
#[ignore = "the other process; a test below starts it"]
async fn child_that_loses_its_lease() {
    let (store, clock) = (Arc::new(MemStore::new(Clock::system())), Clock::system());
    let (leadership, _work) = leads(Arc::clone(&store)).await;
    let (row, deadline) = (ElectionRow::Lease(Seat::FIRST), clock.now() + LEASE);
    let lease = store.get(row, deadline).await.unwrap().unwrap();
    store.compare_and_delete(row, lease, deadline).await.unwrap();
    assert_eq!(leadership.over().await, LossReason::Gone);
    println!("\nlost");
    clock.sleep(2 * LEASE).await;
}

/// Returns how long a process stays alive after it has printed `since`.
fn lives(child: &str, since: &str) -> Duration {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([child, "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == since));
    let (clock, start) = (Clock::system(), Clock::system().now());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(KILLED));
    clock.now() - start
}

/// Work that sees no loss may continue for three quarters of a lease before it is killed.
#[test]
fn a_blocked_process_is_dead_before_its_lease_expires() {
    let lived = lives("killer::child_that_blocks", "leads");
    assert!(lived > LEASE * 5 / 8 && lived < LEASE * 7 / 8, "{lived:?}");
}

/// The killer waited as long as it would have without a notice of the loss. So the work continued
/// for half a lease beside that of the next leader.
#[test]
fn work_is_killed_a_quarter_of_a_lease_after_the_loss_is_seen() {
    let lived = lives("killer::child_that_loses_its_lease", "lost");
    assert!(lived > LEASE / 8 && lived < LEASE * 3 / 8, "{lived:?}");
}
