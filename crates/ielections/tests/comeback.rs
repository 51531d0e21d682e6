//! A node that is started again after a crash leads again at once, if a lock file proves that its former process is gone.

#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use clock::Clock;
use ielections::{
    Elections, Epoch, Leadership, Lease, LockError, LockFile, MemStore, Slot, Timing,
};

const LEASE: Duration = Duration::from_secs(4);

fn node(store: &Arc<MemStore>) -> Elections {
    let owner = SocketAddr::from(([10, 0, 0, 1], 1));
    Elections::new(Arc::clone(store) as _, Clock::system(), owner, Timing::of(LEASE)).unwrap()
}

async fn lead(node: &Elections, within: Duration) -> Option<Leadership> {
    node.acquire(Slot::new(1).unwrap(), Clock::system().now() + within).await.ok()
}

fn new_store() -> Arc<MemStore> {
    Arc::new(MemStore::new(Clock::system()))
}

/// The part of the other process. It leads, says so, and waits to be killed.
#[tokio::test]
#[ignore = "the other process; the tests below start it"]
#[expect(clippy::disallowed_methods, reason = "the tests tell the process they start what to do")]
async fn child() {
    let folder = std::env::var_os("LOCK_FOLDER").unwrap();
    let store = new_store();
    let node = node(&store).with_comeback(LockFile::lock(Path::new(&folder)).unwrap());
    let _leadership = lead(&node, LEASE).await.unwrap();
    let leaders = node.observer().leaders().await.unwrap();
    let lease = leaders[&Slot::new(1).unwrap()].to_bytes();
    println!("\nleads {}", String::from_utf8(lease.to_vec()).unwrap());
    std::future::pending::<()>().await;
}

/// Another process that leads, and its lease.
fn start_child(folder: &Path) -> (Child, Lease) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env("LOCK_FOLDER", folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lease = lines.find_map(|line| {
        line.unwrap().strip_prefix("leads ").map(|lease| Lease::from_bytes(lease.as_bytes()))
    });
    (child, lease.unwrap().unwrap())
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// The lock, as soon as all that had it is gone: an aborted task, or a process that another test forks, may have it for a moment.
async fn lock_when_free(folder: &Path) -> LockFile {
    let clock = Clock::system();
    let end = clock.now() + LEASE;
    loop {
        match LockFile::lock(folder) {
            Err(LockError::Held(_)) if clock.now() < end => clock.sleep(LEASE / 400).await,
            locked => return locked.unwrap(),
        }
    }
}

fn is_held(folder: &Path) -> bool {
    matches!(LockFile::lock(folder), Err(LockError::Held(_)))
}

#[tokio::test]
async fn a_process_that_lives_or_stands_still_keeps_the_lock_and_one_that_was_killed_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, lease) = start_child(folder.path());
    assert!(is_held(folder.path()));
    signal(&child, "-STOP");
    assert!(is_held(folder.path()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(lock_when_free(folder.path()).await.former(), Some(lease));
}

/// A folder that was copied, or put back from a backup, may be that of a node that lives elsewhere.
#[tokio::test]
async fn a_copied_folder_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, _) = start_child(folder.path());
    let copies = tempfile::tempdir().unwrap();
    std::fs::copy(folder.path().join("lease.lock"), copies.path().join("lease.lock")).unwrap();
    assert_eq!(LockFile::lock(copies.path()).unwrap().former(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn what_another_machine_or_another_time_wrote_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, lease) = start_child(folder.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let path = folder.path().join("lease.lock");
    let text = std::fs::read_to_string(&path).unwrap();
    let former = async |text: &str| {
        std::fs::write(&path, text).unwrap();
        lock_when_free(folder.path()).await.former()
    };
    for word in ["vvm lease 1", "machine ", "boot ", "device ", "inode "] {
        assert!(text.contains(word), "{text}");
        assert_eq!(former(&text.replace(word, &format!("{word}7"))).await, None, "{word}");
    }
    // Each beginning of it may be all that was written.
    for end in 0..text.len() {
        assert_eq!(former(&text[..end]).await, None, "{end} bytes");
    }
    assert_eq!(former(&text).await, Some(lease));
}

#[tokio::test]
async fn a_node_leads_again_long_before_its_lease_expires() {
    let (folder, store, clock) = (tempfile::tempdir().unwrap(), new_store(), Clock::system());
    let first = node(&store).with_comeback(LockFile::lock(folder.path()).unwrap());
    drop(lead(&first, LEASE).await.unwrap());
    drop(first);

    let lock = lock_when_free(folder.path()).await;
    let start = clock.now();
    let again = node(&store).with_comeback(lock);
    let leadership = lead(&again, LEASE).await.unwrap();
    let took = clock.now() - start;
    assert!(took < LEASE / 4, "{took:?}");
    assert_eq!(leadership.epoch(), Epoch(2));
    // What the former process sent may land meanwhile.
    let late_writes = again.budget().timing().late_writes;
    assert!(took >= late_writes, "{took:?}");
}

/// The lease was given to another node meanwhile: nothing is taken from it.
#[tokio::test]
async fn only_the_very_lease_that_was_recorded_is_taken_over() {
    let (folder, store) = (tempfile::tempdir().unwrap(), new_store());
    let first = node(&store).with_comeback(LockFile::lock(folder.path()).unwrap());
    let leadership = lead(&first, LEASE).await.unwrap();
    leadership.stopped(Clock::system().now()).await.unwrap().release().await;
    drop(first);
    let other = lead(&node(&store), LEASE).await.unwrap();
    assert_eq!(other.epoch(), Epoch(2));

    let again = node(&store).with_comeback(lock_when_free(folder.path()).await);
    assert!(lead(&again, LEASE / 4).await.is_none());
    assert_eq!(other.lost(), None);
}

/// Once the lock belonged to the elections alone: dropped beside a leader at work, they let a second one in.
#[tokio::test]
async fn the_lock_is_held_as_long_as_anybody_leads_or_works() {
    let (folder, store) = (tempfile::tempdir().unwrap(), new_store());
    let node = node(&store).with_comeback(LockFile::lock(folder.path()).unwrap());
    let leadership = lead(&node, LEASE).await.unwrap();
    let work = leadership.work().unwrap();
    drop(node);
    assert!(is_held(folder.path()));
    drop(leadership);
    assert!(is_held(folder.path()));
    work.finish();
}
