//! A node that is restarted after a crash leads again at once, if a lock file proves that its
//! former process is gone.

use std::{
    fs,
    future::pending,
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::{
    ConditionalOutcome, ElectionRow, Elections, Epoch, Leadership, Lease, LockError, LockFile,
    ObservedLease, Seat, StoreError, Timing, TtlStore,
};
use tck::elections::MemStore;
use tokio::sync::Notify;

const LEASE: Duration = Duration::from_secs(4);

fn node(store: &Arc<MemStore>) -> Elections {
    let owner = SocketAddr::from(([10, 0, 0, 1], 1));
    Elections::new(Arc::clone(store) as _, Clock::system(), owner, Timing::of(LEASE)).unwrap()
}

async fn lead(node: &Elections, within: Duration) -> Option<Leadership> {
    node.acquire(Seat::new(1).unwrap(), Clock::system().now() + within).await.ok()
}

fn new_store() -> Arc<MemStore> {
    Arc::new(MemStore::new(Clock::system()))
}

/// The other process. It leads, reports its lease, and waits to be killed.
#[tokio::test]
#[ignore = "the other process; the tests below start it"]
#[expect(clippy::disallowed_methods, reason = "the tests tell the process they start what to do")]
async fn child() {
    let folder = std::env::var_os("LOCK_FOLDER").unwrap();
    let store = new_store();
    let node = node(&store).with_comeback(LockFile::lock(Path::new(&folder)).unwrap());
    let _leadership = lead(&node, LEASE).await.unwrap();
    let leaders = node.observer().leaders().await.unwrap();
    let lease = leaders[&Seat::new(1).unwrap()].to_bytes();
    println!("\nleads {}", String::from_utf8(lease.to_vec()).unwrap());
    pending::<()>().await;
}

/// Starts another process that leads, and returns the process and its lease.
fn start_child(folder: &Path) -> (Child, Lease) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["comeback::child", "--exact", "--ignored", "--nocapture"])
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

/// Takes the lock as soon as it is free. An aborted task, or a process that another test forks, may
/// hold the lock for a moment.
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
    assert_eq!(lock_when_free(folder.path()).await.former(), [lease]);
}

/// A folder that was copied, or restored from a backup, may belong to a node that still runs on
/// another machine.
#[tokio::test]
async fn a_copied_folder_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, _) = start_child(folder.path());
    let copies = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("lease.lock"), copies.path().join("lease.lock")).unwrap();
    assert_eq!(LockFile::lock(copies.path()).unwrap().former(), []);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_file_of_another_machine_or_another_boot_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, lease) = start_child(folder.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let path = folder.path().join("lease.lock");
    let text = fs::read_to_string(&path).unwrap();
    let former = async |text: &str| {
        fs::write(&path, text).unwrap();
        lock_when_free(folder.path()).await.former().to_vec()
    };
    for word in ["vvm lease 2", "machine ", "boot ", "device ", "inode "] {
        assert!(text.contains(word), "{text}");
        assert_eq!(former(&text.replace(word, &format!("{word}7"))).await, [], "{word}");
    }
    // A full disk may cut the file anywhere.
    let end_of_lease = text.trim_end().len() + 1;
    for end in 0..end_of_lease {
        assert_eq!(former(&text[..end]).await, [], "{end} bytes");
    }
    assert_eq!(former(&text[..end_of_lease]).await, [lease]);
    assert_eq!(former(&text).await, [lease]);
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
    // Writes of the former process may land meanwhile.
    let late_write = again.budget().timing().late_write;
    assert!(took >= late_write, "{took:?}");
}

/// The lease was released and taken by another node meanwhile. The comeback does not take the seat
/// from that node.
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

/// In an earlier version only the elections held the lock. They were dropped while a leader was at
/// work, and a second process got the lock.
/// The file was a named pipe. The node waited for a writer of the pipe, and SIGTERM did not end it.
#[test]
fn a_lock_file_that_is_no_regular_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lease.lock");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let error = LockFile::lock(folder.path()).unwrap_err();
    assert!(matches!(error, LockError::Io { .. }), "{error:?}");
}

/// Another user locked the file, and the node said that another node uses the folder.
#[test]
fn only_the_owner_may_open_a_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let _lock = LockFile::lock(folder.path()).unwrap();
    let mode = fs::metadata(folder.path().join("lease.lock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn the_lock_is_held_while_a_leadership_or_work_exists() {
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

/// A write of a lease.
#[derive(Clone, Debug)]
struct LeaseWrite {
    row: ElectionRow,
    old: Option<Bytes>,
    new: Bytes,
    ttl: Option<Duration>,
}

impl LeaseWrite {
    async fn land(self, store: &MemStore) {
        let LeaseWrite { row, old, new, ttl } = self;
        let deadline = Clock::system().now() + LEASE;
        let written = match old {
            Some(old) => store.compare_and_swap(row, old, new, ttl, deadline).await,
            None => store.insert_if_not_exists(row, new, ttl, deadline).await,
        };
        written.unwrap();
    }
}

/// An event at a call of a node to its store.
#[derive(Debug)]
enum Event {
    /// The node is killed: no call is answered from then on. Either the call is done and its answer
    /// is lost, or the call never arrives.
    Kill { is_done: bool },
    /// A write of the former process lands before the call.
    Lands(Mutex<Option<LeaseWrite>>),
}

/// A store where an event happens at one of the calls of a node.
#[derive(Debug)]
struct Eventful {
    store: Arc<MemStore>,
    /// The number of calls that are answered before the event.
    answered: AtomicUsize,
    event: Event,
    killed: Notify,
    /// The lease that was sent last.
    sent: Mutex<Option<LeaseWrite>>,
}

impl Eventful {
    fn new(store: &Arc<MemStore>, at: usize, event: Event) -> Arc<Eventful> {
        let (store, answered) = (Arc::clone(store), AtomicUsize::new(at));
        Arc::new(Eventful { store, answered, event, killed: Notify::new(), sent: Mutex::default() })
    }

    fn note(&self, row: ElectionRow, old: Option<&Bytes>, new: &Bytes, ttl: Option<Duration>) {
        if matches!(row, ElectionRow::Lease(_)) {
            let write = LeaseWrite { row, old: old.cloned(), new: new.clone(), ttl };
            *self.sent.lock().unwrap() = Some(write);
        }
    }

    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let before =
            self.answered.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if before.is_ok() {
            return call.await;
        }
        match &self.event {
            Event::Lands(late) => {
                let late = late.lock().unwrap().take();
                if let Some(late) = late {
                    late.land(&self.store).await;
                }
                call.await
            }
            Event::Kill { is_done } => {
                if *is_done {
                    call.await;
                }
                self.killed.notify_one();
                pending().await
            }
        }
    }
}

#[async_trait]
impl TtlStore for Eventful {
    fn expiry_delay(&self) -> Duration {
        self.store.expiry_delay()
    }

    async fn leases(&self, deadline: Instant) -> Result<Vec<ObservedLease>, StoreError> {
        self.call(self.store.leases(deadline)).await
    }

    async fn get(&self, row: ElectionRow, deadline: Instant) -> Result<Option<Bytes>, StoreError> {
        self.call(self.store.get(row, deadline)).await
    }

    async fn insert_if_not_exists(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.note(row, None, &value, ttl);
        self.call(self.store.insert_if_not_exists(row, value, ttl, deadline)).await
    }

    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.note(row, Some(&old), &new, ttl);
        self.call(self.store.compare_and_swap(row, old, new, ttl, deadline)).await
    }

    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.call(self.store.compare_and_delete(row, old, deadline)).await
    }
}

/// Makes a node in a folder. The writes of the node land at once or never.
async fn node_in(folder: &Path, store: Arc<dyn TtlStore>) -> Elections {
    let owner = SocketAddr::from(([10, 0, 0, 1], 1));
    let timing = Timing { late_write: Duration::ZERO, ..Timing::of(LEASE) };
    let node = Elections::new(store, Clock::system(), owner, timing).unwrap();
    node.with_comeback(lock_when_free(folder).await)
}

/// The number of calls of a start: a look, the epoch, the lease, and the raise of the epoch.
const CALLS: usize = 4;

/// Starts a node, kills it at a call, and returns the lease that it sent, if it sent one.
async fn start_is_killed(
    folder: &Path,
    store: &Arc<MemStore>,
    at: usize,
    is_done: bool,
) -> Option<LeaseWrite> {
    let store = Eventful::new(store, at, Event::Kill { is_done });
    let node = node_in(folder, Arc::clone(&store) as _).await;
    tokio::select! {
        _ = lead(&node, LEASE) => panic!("it leads"),
        () = store.killed.notified() => {}
    }
    store.sent.lock().unwrap().take()
}

/// An earlier version recorded the lease when the node led. A start was killed before that, and the
/// next start waited until the lease expired.
#[tokio::test]
async fn a_start_that_was_killed_at_any_moment_does_not_delay_the_next() {
    let moments = || (0..CALLS).flat_map(|at| [(at, false), (at, true)]);
    let mut epochs = Vec::new();
    for has_led in [false, true] {
        for (first, second) in moments().flat_map(|first| moments().map(move |it| (first, it))) {
            let (folder, store) = (tempfile::tempdir().unwrap(), new_store());
            if has_led {
                let node = node_in(folder.path(), Arc::clone(&store) as _).await;
                drop(lead(&node, LEASE).await.unwrap());
            }
            start_is_killed(folder.path(), &store, first.0, first.1).await;
            start_is_killed(folder.path(), &store, second.0, second.1).await;
            let node = node_in(folder.path(), Arc::clone(&store) as _).await;
            let leadership = lead(&node, LEASE / 4).await;
            let Some(leadership) = leadership else {
                panic!("it waits after kills at {first:?} and {second:?}, has led: {has_led}")
            };
            epochs.push(leadership.epoch());
        }
    }
    // Up to three starts raised the epoch before.
    assert_eq!(epochs.iter().max(), Some(&Epoch(4)));
}

/// A process was killed after it had sent its lease. The store did the write later, while the next
/// process was already starting. The lease belongs to a former process of the node itself, so the
/// node does not wait until the lease expires.
#[tokio::test]
async fn a_lease_that_lands_after_its_process_was_killed_does_not_delay_the_next() {
    const TAKE: usize = 2;
    for has_led in [false, true] {
        for at in 0..CALLS {
            let (folder, store) = (tempfile::tempdir().unwrap(), new_store());
            if has_led {
                let node = node_in(folder.path(), Arc::clone(&store) as _).await;
                drop(lead(&node, LEASE).await.unwrap());
            }
            let late = start_is_killed(folder.path(), &store, TAKE, false).await;
            let event = Event::Lands(Mutex::new(Some(late.unwrap())));
            let node = node_in(folder.path(), Eventful::new(&store, at, event) as _).await;
            let leadership = lead(&node, LEASE / 4).await;
            assert!(leadership.is_some(), "it waits: landed before call {at}, has led: {has_led}");
        }
    }
}

/// The file holds a bounded number of leases. However many starts are killed before they replace
/// the lease in the store, the file does not forget that lease.
#[tokio::test]
async fn many_starts_that_were_killed_do_not_make_the_file_forget_the_lease_in_the_store() {
    let (folder, store) = (tempfile::tempdir().unwrap(), new_store());
    let node = node_in(folder.path(), Arc::clone(&store) as _).await;
    drop(lead(&node, LEASE).await.unwrap());
    drop(node);
    for _ in 0..40 {
        start_is_killed(folder.path(), &store, 2, false).await.unwrap();
    }
    let node = node_in(folder.path(), Arc::clone(&store) as _).await;
    assert!(lead(&node, LEASE / 4).await.is_some());
}

/// A write of the file may be torn anywhere: the file is then a mixture of the old page and the new
/// one. Both pages contain the lease that is in the store.
#[tokio::test]
async fn a_file_that_is_torn_between_two_writes_keeps_the_lease_of_both() {
    let (folder, store) = (tempfile::tempdir().unwrap(), new_store());
    let path = folder.path().join("lease.lock");
    let node = node_in(folder.path(), Arc::clone(&store) as _).await;
    drop(lead(&node, LEASE).await.unwrap());
    drop(node);
    let lock = lock_when_free(folder.path()).await;
    let [stored] = lock.former()[..] else { panic!("{:?}", lock.former()) };
    drop(lock);
    let old = fs::read(&path).unwrap();
    start_is_killed(folder.path(), &store, 2, false).await.unwrap();
    let new = fs::read(&path).unwrap();
    let differs = |at: &usize| old[*at] != new[*at];
    let last = (0..old.len()).rfind(differs).unwrap();
    for cut in 0..=last + 1 {
        for (first, second) in [(&old, &new), (&new, &old)] {
            fs::write(&path, [&first[..cut], &second[cut..]].concat()).unwrap();
            let former = lock_when_free(folder.path()).await.former().to_vec();
            assert!(former.contains(&stored), "torn at {cut}: {former:?}");
            assert!(former.len() <= 2, "torn at {cut}: {former:?}");
        }
    }
}
