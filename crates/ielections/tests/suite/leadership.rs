//! A leadership from its beginning to its end, over a store in memory and a clock that the tests
//! move.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant, ManualClock};
use ielections::{
    AcquireError, ConditionalOutcome, ElectionRow, Elections, Epoch, GiveUpReason, Leadership,
    Lease, LossReason, ReleaseOutcome, Seat, Timing, TtlStore, UnprovedStop,
};
use tck::{elections::MemStore, trial::LogLines};

const LEASE: Duration = Duration::from_secs(4);
const SECOND: Duration = Duration::from_secs(1);

struct World {
    time: ManualClock,
    clock: Clock,
    store: Arc<MemStore>,
}

impl World {
    fn new() -> World {
        let time = ManualClock::new(3);
        let clock = time.clock();
        let store = Arc::new(MemStore::new(clock.clone()));
        World { time, clock, store }
    }

    fn node(&self, port: u16) -> Elections {
        let store: Arc<dyn TtlStore> = Arc::clone(&self.store) as _;
        let owner = SocketAddr::from(([10, 0, 0, 1], port));
        Elections::new(store, self.clock.clone(), owner, Timing::of(LEASE)).unwrap()
    }

    /// Makes a node with a killer that reports the reason, and does not end the process.
    fn node_that_is_killed(&self) -> (Elections, Receiver<String>) {
        let (killed, was_killed) = sync_channel(1);
        let node = self.node(1).with_killer(Arc::new(move |why| {
            let _ = killed.send(why.to_owned());
        }));
        (node, was_killed)
    }

    async fn lead(&self, node: &Elections) -> Leadership {
        self.passing(node.acquire(seat(1), self.clock.now() + 100 * SECOND)).await.unwrap()
    }

    /// Lets time pass while a call waits.
    async fn passing<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                output = &mut call => return output,
                () = tokio::task::yield_now() => self.time.advance(Duration::from_millis(10)),
            }
        }
    }

    async fn pass(&self, time: Duration) {
        self.passing(self.clock.sleep(time)).await;
    }

    async fn lease(&self) -> Option<Bytes> {
        self.store.get(ElectionRow::Lease(seat(1)), Instant::FAR_FUTURE).await.unwrap()
    }

    async fn replace_lease(&self, by: Option<&'static str>) {
        let (row, old) = (ElectionRow::Lease(seat(1)), self.lease().await.unwrap());
        let written = match by {
            Some(by) => {
                let ttl = Some(100 * SECOND);
                self.store.compare_and_swap(row, old, by.into(), ttl, Instant::FAR_FUTURE).await
            }
            None => self.store.compare_and_delete(row, old, Instant::FAR_FUTURE).await,
        };
        assert_eq!(written.unwrap(), ConditionalOutcome::Done);
    }
}

fn seat(number: u32) -> Seat {
    Seat::new(number).unwrap()
}

#[tokio::test]
async fn a_lead_is_kept_as_long_as_it_is_renewed() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    assert_eq!((leadership.seat(), leadership.epoch()), (seat(1), Epoch(1)));
    world.pass(100 * LEASE).await;
    assert_eq!(leadership.lost(), None);
    let lease = Lease::from_bytes(&world.lease().await.unwrap()).unwrap();
    assert_eq!((lease.owner.port(), lease.epoch), (1, Epoch(1)));
}

/// The log said nothing of the wait, and the node looked as if it hung.
#[tokio::test]
async fn a_second_node_says_that_it_waits_and_gives_up_in_time() {
    let (lines, _lines) = LogLines::of_this_thread();
    let world = World::new();
    let _leadership = world.lead(&world.node(1)).await;
    let start = world.clock.now();
    let second = world.node(2);
    let refused = world.passing(second.acquire(seat(1), start + 10 * SECOND)).await.unwrap_err();
    assert!(matches!(refused, AcquireError::GaveUp(GiveUpReason::Waited)), "{refused}");
    let waited = world.clock.now() - start;
    assert!(waited >= 10 * SECOND && waited <= 11 * SECOND, "{waited:?}");
    let lines = lines.all();
    let said: Vec<&String> = lines.iter().filter(|line| line.contains("waiting for")).collect();
    let [said] = said[..] else { panic!("one line for all looks: {lines:?}") };
    for part in ["a node with another address", "seat=1", ":1 ", "expires_in="] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[tokio::test]
async fn a_released_seat_is_led_by_the_next_in_a_higher_epoch() {
    let (lines, _lines) = LogLines::of_this_thread();
    let world = World::new();
    let (first, second) = (world.node(1), world.node(2));
    let leadership = world.lead(&first).await;
    let token = leadership.token();
    let work = leadership.work().unwrap();
    work.finish();
    let stopped = leadership.stopped(Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(world.passing(stopped.release()).await, ReleaseOutcome::LeaseGone);
    assert!(token.is_cancelled());
    let ended = "INFO leadership ended seat=1 epoch=1 reason=the lease was released";
    assert!(lines.all().iter().any(|line| line == ended), "{:?}", lines.all());
    assert_eq!(world.lease().await, None);
    let start = world.clock.now();
    let next = world.lead(&second).await;
    assert!(world.clock.now() - start < SECOND);
    assert_eq!(next.epoch(), Epoch(2));
}

/// The log said "lease released", although nothing had deleted the lease.
#[tokio::test]
async fn a_release_that_comes_too_late_reports_that_the_lease_is_left_to_expire() {
    let world = World::new();
    let leadership = world.lead(&world.node(1).with_health(Arc::new(|| false))).await;
    // The node is unhealthy, so it loses the leadership at its first renewal, after a quarter of
    // the lease. A release deletes the lease until `kill_at`, and this release comes later.
    world.pass(LEASE * 7 / 8).await;
    assert_eq!(leadership.lost(), Some(LossReason::Unhealthy));
    let stopped = leadership.stopped(Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(world.passing(stopped.release()).await, ReleaseOutcome::LeftToExpire);
    assert!(world.lease().await.is_some());
}

/// Nothing is left to delete.
#[tokio::test]
async fn a_release_reports_a_lease_that_is_gone() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    world.replace_lease(None).await;
    let stopped = leadership.stopped(Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(world.passing(stopped.release()).await, ReleaseOutcome::LeaseGone);
}

#[tokio::test]
async fn work_that_is_not_finished_leaves_the_lease_to_expire() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    drop(leadership.work().unwrap());
    assert_eq!(leadership.stopped(Instant::FAR_FUTURE).await.unwrap_err(), UnprovedStop);
    assert!(world.lease().await.is_some());
    let start = world.clock.now();
    let next = world.lead(&world.node(2)).await;
    let waited = world.clock.now() - start;
    assert!(waited > LEASE / 2 && waited <= LEASE + SECOND, "{waited:?}");
    assert_eq!(next.epoch(), Epoch(2));
}

#[tokio::test]
async fn work_that_does_not_end_is_waited_for_no_longer_than_said() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    let _work = leadership.work().unwrap();
    let deadline = world.clock.now() + SECOND;
    assert_eq!(world.passing(leadership.stopped(deadline)).await.unwrap_err(), UnprovedStop);
}

#[tokio::test]
async fn a_lease_that_another_takes_ends_the_lead_by_the_next_renewal() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    let work = leadership.work().unwrap();
    work.may_send(LEASE / 20).unwrap();
    world.replace_lease(Some("somebody")).await;
    world.pass(LEASE / 4 + LEASE / 20).await;
    assert_eq!(leadership.lost(), Some(LossReason::Taken(None)));
    assert_eq!(leadership.over().await, LossReason::Taken(None));
    assert!(leadership.token().is_cancelled());
    assert_eq!(work.may_send(Duration::ZERO), Err(LossReason::Taken(None)));
    work.finish();
    let stopped = leadership.stopped(Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(world.passing(stopped.release()).await, ReleaseOutcome::LeaseGone);
}

#[tokio::test]
async fn a_lease_that_is_removed_ends_the_lead() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    world.replace_lease(None).await;
    world.pass(LEASE / 4 + LEASE / 20).await;
    assert_eq!(leadership.lost(), Some(LossReason::Gone));
    let stopped = leadership.stopped(Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(world.passing(stopped.release()).await, ReleaseOutcome::LeaseGone);
}

#[tokio::test]
async fn a_process_that_stood_still_knows_at_once_that_it_is_over() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    let work = leadership.work().unwrap();
    // No task runs in between.
    world.time.advance(LEASE);
    assert_eq!(work.may_send(Duration::ZERO), Err(LossReason::Expired));
    assert_eq!(leadership.lost(), Some(LossReason::Expired));
}

#[tokio::test]
async fn a_write_is_not_sent_that_could_outlive_the_lead() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    let work = leadership.work().unwrap();
    let left = leadership.valid_until() - world.clock.now();
    assert_eq!(work.may_send(left), Err(LossReason::Expired));
    assert_eq!(work.may_send(left - Duration::from_nanos(1)), Ok(()));
}

#[tokio::test]
async fn a_failed_health_check_ends_the_leadership_by_the_next_renewal() {
    let world = World::new();
    let is_healthy = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_healthy);
    let node = world.node(1).with_health(Arc::new(move || asked.load(Ordering::Relaxed)));
    let leadership = world.lead(&node).await;
    world.pass(3 * LEASE).await;
    assert_eq!(leadership.lost(), None);
    is_healthy.store(false, Ordering::Relaxed);
    world.pass(LEASE / 4 + LEASE / 20).await;
    assert_eq!(leadership.lost(), Some(LossReason::Unhealthy));
}

/// A process stood still for a moment, shorter than its lease. The renewal woke first and found
/// that the host was late. So the node lost its leadership, although the host went on at once.
#[tokio::test]
async fn a_host_that_is_late_for_a_moment_does_not_lose_the_leadership() {
    let world = World::new();
    let late = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&late);
    // The host is late once.
    let health = Arc::new(move || !asked.swap(false, Ordering::Relaxed));
    let leadership = world.lead(&world.node(1).with_health(health)).await;
    late.store(true, Ordering::Relaxed);
    world.pass(LEASE).await;
    assert!(!late.load(Ordering::Relaxed), "the host was not asked");
    assert_eq!(leadership.lost(), None);
}

#[tokio::test]
async fn a_dropped_leadership_is_renewed_no_more() {
    let world = World::new();
    drop(world.lead(&world.node(1)).await);
    world.pass(LEASE).await;
    assert_eq!(world.lease().await, None);
}

#[tokio::test]
async fn each_seat_has_a_leader_and_none_has_two() {
    let world = World::new();
    let mut led = Vec::new();
    for port in 1..=3 {
        let node = world.node(port);
        let until = world.clock.now() + SECOND;
        led.push(world.passing(node.acquire(seat(3), until)).await.unwrap());
    }
    let mut seats: Vec<u32> = led.iter().map(|leadership| leadership.seat().get()).collect();
    seats.sort_unstable();
    assert_eq!(seats, [1, 2, 3]);
    let node = world.node(4);
    let until = world.clock.now() + SECOND;
    assert!(world.passing(node.acquire(seat(3), until)).await.is_err());
}

#[tokio::test]
async fn work_that_goes_on_too_long_is_killed_although_no_task_runs() {
    let world = World::new();
    let (node, was_killed) = world.node_that_is_killed();
    let leadership = world.lead(&node).await;
    let _work = leadership.work().unwrap();
    let kill_at = node.budget().kill_at(leadership.valid_until());
    world.time.advance(kill_at - world.clock.now() - Duration::from_millis(1));
    assert!(was_killed.recv_timeout(SECOND / 4).is_err(), "too early");
    // This test itself blocks the runtime.
    world.time.advance(Duration::from_millis(1));
    let why = was_killed.recv_timeout(10 * SECOND).unwrap();
    assert!(why.contains("seat 1"), "{why}");
}

#[tokio::test]
async fn work_that_keeps_its_lead_is_not_killed() {
    let world = World::new();
    let (node, was_killed) = world.node_that_is_killed();
    let leadership = world.lead(&node).await;
    let work = leadership.work().unwrap();
    world.pass(3 * LEASE).await;
    assert!(was_killed.recv_timeout(SECOND / 4).is_err());
    assert_eq!(leadership.lost(), None);
    work.finish();
}

#[tokio::test]
async fn one_unfinished_work_guard_leaves_the_lease_to_expire() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    let (unproved, proved) = (leadership.work().unwrap(), leadership.work().unwrap());
    drop(unproved);
    proved.finish();
    assert_eq!(leadership.stopped(Instant::FAR_FUTURE).await.unwrap_err(), UnprovedStop);
}

/// In an earlier version a caller got a work guard after the end. The killer took the guard for
/// work that continues after the end.
#[tokio::test]
async fn no_work_begins_after_the_end_of_the_leadership() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    world.time.advance(LEASE);
    assert_eq!(leadership.work().unwrap_err(), LossReason::Expired);
}

/// In an earlier version `stopped` did not cancel the token first. Work that waited for its token
/// waited until the deadline, and nothing was proved.
#[tokio::test]
async fn work_is_told_to_end_before_it_is_waited_for() {
    let world = World::new();
    let leadership = world.lead(&world.node(1)).await;
    let (work, token) = (leadership.work().unwrap(), leadership.token());
    let works = async {
        token.cancelled().await;
        // The work may still finish a write that it has begun.
        work.may_send(Duration::ZERO).unwrap();
        work.finish();
    };
    let (stopped, ()) = tokio::join!(leadership.stopped(Instant::FAR_FUTURE), works);
    world.passing(stopped.unwrap().release()).await;
    assert_eq!(world.lease().await, None);
}

/// In an earlier version the panic ended the renewals without any notice. The work was not told to
/// stop, and was killed.
#[tokio::test]
async fn a_health_check_that_panics_ends_the_lead() {
    let world = World::new();
    let node = world.node(1).with_health(Arc::new(|| panic!("on purpose")));
    let leadership = world.lead(&node).await;
    world.pass(LEASE / 4 + LEASE / 20).await;
    assert_eq!(leadership.lost(), Some(LossReason::Panicked));
    assert!(leadership.token().is_cancelled());
}

/// A second SIGTERM shut the runtime down. The log then showed the end of the leadership as a
/// panic.
#[test]
fn a_runtime_that_is_shut_down_ends_the_lead_without_a_panic() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let clock = Clock::system();
    let store = Arc::new(MemStore::new(clock.clone()));
    let owner = ([10, 0, 0, 1], 1).into();
    let node = Elections::new(store, clock.clone(), owner, Timing::of(LEASE)).unwrap();
    let leadership = runtime.block_on(node.acquire(Seat::FIRST, clock.now() + LEASE)).unwrap();
    runtime.shutdown_timeout(LEASE);
    assert_eq!(leadership.lost(), Some(LossReason::Dropped));
}

/// A runtime was shut down before the task that renews the lease had made its first step. The
/// leadership then seemed to last, although nothing renewed its lease.
#[test]
fn a_runtime_that_is_shut_down_at_once_ends_the_lead() {
    // The runtime of one thread takes no step of the task after `acquire` returns.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let clock = Clock::system();
    let store = Arc::new(MemStore::new(clock.clone()));
    let owner = ([10, 0, 0, 1], 1).into();
    let node = Elections::new(store, clock.clone(), owner, Timing::of(LEASE)).unwrap();
    let leadership = runtime.block_on(node.acquire(Seat::FIRST, clock.now() + LEASE)).unwrap();
    drop(runtime);
    assert_eq!(leadership.lost(), Some(LossReason::Dropped));
}
