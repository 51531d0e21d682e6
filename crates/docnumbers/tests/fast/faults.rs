//! Storage calls that fail, hang, land late, or lose their answers.

use std::{collections::VecDeque, sync::Mutex};

use docnumbers::{DocNumberError, RangeState::Open};
use futures::FutureExt;

use super::*;

/// How long after a failed reservation draws fail at once.
const PAUSE: Duration = Duration::from_millis(200);

/// A database whose conditional writes have these faults, one after another.
async fn with_faults(manual: &ManualClock) -> (Database, Arc<Mutex<VecDeque<Fault>>>) {
    let faults = Arc::new(Mutex::new(VecDeque::new()));
    let script = Arc::clone(&faults);
    let database = Database::with_faults(manual, move |kind| match kind {
        CallKind::WriteIf => script.lock().unwrap().pop_front().unwrap_or(Fault::None),
        _ => Fault::None,
    });
    (database.await, faults)
}

/// The first answer is lost. The node finds its ledger row, and uses the range: it is not lost.
#[tokio::test]
async fn a_reservation_without_an_answer_is_used_if_it_was_applied() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let node = database.node(tickets(), "node", 10).await;
    for fault in [Fault::AppliedButError, Fault::NotAppliedButError] {
        faults.lock().unwrap().push_back(fault);
    }
    let drawn = while_time_passes(&manual, database.draw(&node, 25)).await;
    assert_eq!(drawn, (0..25).collect::<Vec<_>>());
}

/// All answers are lost until the reservation gives up; another node then reserves after it. The
/// next draw sends the same bytes again, finds its ledger row, and uses its range.
#[tokio::test]
pub(crate) async fn a_reservation_that_was_given_up_is_used_by_the_next_draw() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let (node, other) = (database.node(tickets(), "node", 10), database.node(tickets(), "b", 10));
    let (node, other) = (node.await, other.await);
    faults.lock().unwrap().push_back(Fault::AppliedButError);
    faults.lock().unwrap().extend([Fault::NotAppliedButError; 10_000]);
    let draw = node.next(WS, database.soon());
    let refused = while_time_passes(&manual, draw).await.unwrap_err();
    assert!(matches!(refused, DocNumberError::Storage(_)), "{refused:?}");
    faults.lock().unwrap().clear();
    manual.advance(PAUSE);
    assert_eq!(while_time_passes(&manual, database.draw(&other, 1)).await, [10]);
    assert_eq!(while_time_passes(&manual, database.draw(&node, 2)).await, [0, 1]);
    database.settle().await;
    let ledger = database.ledger(&node).await;
    assert!(ledger.contains(&(0, 10, "node".to_owned(), Open)), "{ledger:?}");
}

/// A node whose reservation has no answer stops. The reservation was applied, so it is given back.
#[tokio::test]
pub(crate) async fn a_node_that_stops_gives_back_a_reservation_without_an_answer() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let node = database.node(tickets(), "node", 10).await;
    faults.lock().unwrap().push_back(Fault::AppliedButError);
    faults.lock().unwrap().extend([Fault::NotAppliedButError; 10_000]);
    while_time_passes(&manual, node.next(WS, database.soon())).await.unwrap_err();
    faults.lock().unwrap().clear();
    let end = while_time_passes(&manual, node.close(database.soon())).await;
    assert_eq!((end.given_back, end.not_issued, end.not_given_back), (10, 0, 0));
    assert_eq!(database.ledger(&node).await, []);
    let next = database.node(tickets(), "next", 10).await;
    assert_eq!(while_time_passes(&manual, database.draw(&next, 1)).await, [0]);
}

/// The answer to the write that gives back is lost, and the next node reserves at once.
#[tokio::test]
pub(crate) async fn giving_back_twice_takes_nothing_from_the_next_node() {
    let manual = ManualClock::new(3);
    for fault in [Fault::AppliedButError, Fault::NotAppliedButError] {
        let (database, faults) = with_faults(&manual).await;
        let node = database.node(tickets(), "node", 10).await;
        assert_eq!(while_time_passes(&manual, database.draw(&node, 3)).await, [0, 1, 2]);
        while_time_passes(&manual, database.settle()).await;
        faults.lock().unwrap().push_back(fault);
        let end = while_time_passes(&manual, node.close(database.soon())).await;
        assert_eq!((end.given_back, end.not_issued, end.not_given_back), (17, 0, 0), "{fault:?}");
        let next = database.node(tickets(), "next", 10).await;
        assert_eq!(while_time_passes(&manual, database.draw(&next, 2)).await, [3, 4]);
    }
}

/// The write that gives back is applied, and its answer is lost. Before it is sent again, the next
/// node reserves. The first node finds its ledger rows gone, so it has given all back.
#[tokio::test]
async fn a_node_knows_that_it_gave_back_although_another_has_reserved_since() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let (node, next) = (database.node(tickets(), "node", 10), database.node(tickets(), "b", 10));
    let (node, next) = (node.await, next.await);
    assert_eq!(while_time_passes(&manual, database.draw(&node, 3)).await, [0, 1, 2]);
    while_time_passes(&manual, database.settle()).await;
    let pause = Duration::from_millis(100);
    faults.lock().unwrap().extend([Fault::AppliedButError, Fault::Slow(pause * 2)]);
    let start = database.clock.now();
    let reserve = async {
        database.clock.sleep(pause).await;
        database.draw(&next, 1).await
    };
    let both = async { tokio::join!(node.close(database.soon()), reserve) };
    let (end, drawn) = while_time_passes(&manual, both).await;
    assert_eq!((end.given_back, end.not_issued, end.not_given_back), (17, 0, 0));
    assert!(database.clock.now() - start < pause * 4, "the node did not know it");
    assert_eq!(drawn, [3]);
}

/// A storage that hangs makes a draw wait until its deadline, and no longer.
#[tokio::test]
pub(crate) async fn no_draw_waits_longer_than_its_deadline() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let node = database.node(tickets(), "node", 10).await;
    faults.lock().unwrap().extend([Fault::Hang; 10_000]);
    let start = database.clock.now();
    let patience = Duration::from_millis(50);
    let draw = found::block(&node, WS, 1, start + patience);
    let refused = while_time_passes(&manual, draw).await.unwrap_err();
    assert!(matches!(refused, DocNumberError::TimedOut), "{refused:?}");
    let waited = database.clock.now() - start;
    assert!(waited < patience * 2, "the draw waited for {waited:?}");
    faults.lock().unwrap().clear();
    assert_eq!(while_time_passes(&manual, database.draw(&node, 1)).await.len(), 1);
}

/// A reservation is a task of the series, and goes on when its draw is dropped. It ends with the
/// series, although the storage never answers.
#[tokio::test]
async fn a_series_that_is_dropped_leaves_no_task() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let node = database.node(tickets(), "node", 10).await;
    let before = tasks();
    faults.lock().unwrap().push_back(Fault::Hang);
    assert!(node.next(WS, database.soon()).now_or_never().is_none());
    database.settle().await;
    assert!(faults.lock().unwrap().is_empty(), "the reservation was not sent");
    assert!(tasks() > before);
    drop(node);
    database.settle().await;
    assert_eq!(tasks(), before);
}

/// While the storage refuses all writes, a node draws the values that it holds, and does not send a
/// write for each draw.
#[tokio::test]
async fn a_storage_that_is_down_is_not_asked_at_each_draw() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let node = database.node(tickets(), "node", 100).await;
    assert_eq!(while_time_passes(&manual, database.draw(&node, 1)).await, [0]);
    while_time_passes(&manual, database.settle()).await;
    let down = 10_000;
    faults.lock().unwrap().extend(vec![Fault::Unavailable; down]);
    for expected in 1..200 {
        assert_eq!(node.next(WS, database.soon()).await.unwrap().counter, expected);
        database.settle().await;
    }
    let refused = node.next(WS, database.soon()).await.unwrap_err();
    assert!(matches!(refused, DocNumberError::Storage(_)), "{refused:?}");
    assert_eq!(down - faults.lock().unwrap().len(), 1, "writes");
    manual.advance(PAUSE);
    assert!(node.next(WS, database.soon()).await.is_err());
    assert_eq!(down - faults.lock().unwrap().len(), 2, "writes");
    faults.lock().unwrap().clear();
    manual.advance(PAUSE);
    assert_eq!(while_time_passes(&manual, database.draw(&node, 1)).await, [200]);
    while_time_passes(&manual, database.settle()).await;
    let firsts: Vec<u64> = database.ledger(&node).await.iter().map(|entry| entry.0).collect();
    assert_eq!(firsts, [200, 300], "the ranges that were issued meanwhile left the ledger");
}

/// Each counter that ran low began a reservation. So with many counters, a storage that hung had a
/// call of each of them under way.
#[tokio::test]
async fn a_storage_that_hangs_gets_a_limited_number_of_reservations() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let settings = FastSettings { refill_below: 5, ..FastSettings::with_range(10) };
    let node = database.node_with(tickets(), "node", settings).await;
    let draw_of_each = async |count| {
        for ws in 0..150 {
            let drawn = while_time_passes(&manual, node.block(WsId(ws), count, database.soon()));
            assert_eq!(drawn.await.unwrap().len(), count as usize);
        }
    };
    draw_of_each(1).await;
    faults.lock().unwrap().extend([Fault::Hang; 1_000]);
    draw_of_each(5).await;
    database.settle().await;
    assert_eq!(1_000 - faults.lock().unwrap().len(), 100, "writes");
    // All others are reserved by later draws.
    faults.lock().unwrap().clear();
    draw_of_each(5).await;
    draw_of_each(5).await;
}

/// While a reservation hangs, a node still gives back its other counters.
#[tokio::test]
async fn a_stop_gives_back_what_it_can_while_a_reservation_hangs() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let node = database.node(tickets(), "node", 10).await;
    assert_eq!(while_time_passes(&manual, database.draw(&node, 1)).await, [0]);
    while_time_passes(&manual, database.settle()).await;
    faults.lock().unwrap().push_back(Fault::Hang);
    let patience = database.clock.now() + Duration::from_millis(500);
    let other = node.next(WsId(8), database.clock.now() + Duration::from_millis(10));
    while_time_passes(&manual, other).await.unwrap_err();
    let end = while_time_passes(&manual, node.close(patience)).await;
    assert_eq!((end.given_back, end.not_issued, end.not_given_back), (19, 0, 10));
    assert_eq!(database.ledger(&node).await, []);
    assert_eq!(node.close(database.soon()).await, end, "a second call has the same result");
}

/// The runtime that drew first has ended, and the series still draws: its tasks run on the runtime
/// that opened it.
#[test]
fn a_draw_on_another_runtime_does_not_own_the_reservation() {
    let new = || {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    };
    let home = new();
    let (database, node) = home.block_on(async {
        let database = Database::new(Clock::system()).await;
        let node = database.node(tickets(), "node", 10).await;
        (database, node)
    });
    let guest = new();
    assert_eq!(guest.block_on(database.draw(&node, 15)).len(), 15);
    guest.shutdown_background();
    assert_eq!(home.block_on(database.draw(&node, 30)).last(), Some(&44));
}

/// The runtime that opened a series has ended. Draws fail, and do not wait for a lock forever.
#[test]
fn a_series_whose_runtime_ended_refuses_draws() {
    let new = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let home = new().unwrap();
    let (database, node) = home.block_on(async {
        let database = Database::new(Clock::system()).await;
        let settings = FastSettings { refill_below: 0, ..FastSettings::with_range(10) };
        let node = database.node_with(tickets(), "node", settings).await;
        assert_eq!(database.draw(&node, 4).await, [0, 1, 2, 3]);
        (database, node)
    });
    drop(home);
    let guest = new().unwrap();
    assert_eq!(guest.block_on(database.draw(&node, 6)), [4, 5, 6, 7, 8, 9]);
    for _ in 0..2 {
        let refused = guest.block_on(node.next(WS, database.soon())).unwrap_err();
        assert!(matches!(refused, DocNumberError::Closed), "{refused:?}");
    }
    assert!(guest.block_on(node.next(WsId(8), database.soon())).is_err());
    let end = guest.block_on(node.close(database.soon()));
    assert_eq!((end.given_back, end.not_given_back), (0, 0));
}

/// A range that is reserved over midnight is given back: no draw needs it any more.
#[tokio::test]
async fn a_range_that_arrives_after_its_day_is_given_back() {
    let manual = ManualClock::new(3);
    let (database, faults) = with_faults(&manual).await;
    let node = database.node(Definition::daily("order", "O"), "node", 10).await;
    manual.advance(Duration::from_millis(24 * 3_600_000 - 500));
    faults.lock().unwrap().push_back(Fault::Slow(Duration::from_millis(800)));
    let first_day = node.series().day(database.clock.wall()).unwrap().period();
    let key = node.series().counter_key(first_day, WS);
    let patience = database.clock.now() + Duration::from_millis(10);
    while_time_passes(&manual, node.next(WS, patience)).await.unwrap_err();
    manual.advance(Duration::from_millis(500));
    let drawn = while_time_passes(&manual, node.next(WS, database.soon())).await.unwrap();
    assert_eq!(drawn.text, "O2026-0102-00000");
    while_time_passes(&manual, database.clock.sleep(CALL)).await;
    let rows = database.rows();
    assert_eq!(rows.counter(&key, database.soon()).await.unwrap(), Some(0), "of the first day");
    assert_eq!(rows.ledger(&key, 0, 10, database.soon()).await.unwrap(), []);
}
