//! Draws that wait for a range at the same time.

use docnumbers::{DocNumber, DocNumberError, RangeState::Open};
use futures::future::join_all;

use super::*;

/// The time of a conditional write.
const WRITE: Duration = Duration::from_millis(20);

/// A node over a storage with slow conditional writes.
async fn slow_node(
    manual: &ManualClock,
    definition: Definition,
    settings: FastSettings,
) -> (Database, FastSeries) {
    let script = |kind| if kind == CallKind::WriteIf { Fault::Slow(WRITE) } else { Fault::None };
    let database = Database::with_faults(manual, script).await;
    let node = while_time_passes(manual, database.node_with(definition, "node", settings)).await;
    (database, node)
}

/// Draws numbers one by one from several callers, forever.
async fn draw_singles(database: &Database, node: &FastSeries, callers: usize) {
    let caller = async || {
        loop {
            let _ = node.next(WS, database.soon()).await.unwrap();
        }
    };
    join_all((0..callers).map(|_| caller())).await;
}

fn values(numbers: Result<Vec<DocNumber>, DocNumberError>) -> Vec<u64> {
    numbers.unwrap().into_iter().map(|number| number.counter).collect()
}

/// Callers of single numbers drew each range before a block had its numbers. They also began the
/// next reservation, which was again too short for the block. So the block waited until its
/// deadline.
#[tokio::test]
pub(crate) async fn a_block_does_not_starve_beside_single_draws() {
    let manual = ManualClock::new(3);
    let (database, node) = slow_node(&manual, tickets(), FastSettings::with_range(10)).await;
    let block = async {
        database.clock.sleep(WRITE * 10).await;
        let start = database.clock.now();
        let drawn = values(found::block(&node, WS, 500, start + WRITE * 50).await);
        assert!(drawn.is_sorted_by(|a, b| a < b));
        (drawn.len(), database.clock.now() - start)
    };
    let both = async {
        tokio::select! {
            drawn = block => drawn,
            () = draw_singles(&database, &node, 20) => unreachable!("the callers do not end"),
        }
    };
    let (drawn, took) = while_time_passes(&manual, both).await;
    assert_eq!(drawn, 500);
    // The reservation that was under way, and one more. The clock moves in steps of 2 ms.
    assert!(took <= WRITE * 2 + Duration::from_millis(8), "{took:?}");
}

/// Waiting draws are served in order of arrival, whatever their size.
#[tokio::test]
pub(crate) async fn draws_that_wait_are_served_in_their_order() {
    let manual = ManualClock::new(3);
    let (database, node) = slow_node(&manual, tickets(), FastSettings::with_range(10)).await;
    let draws = [1, 400, 2, 300, 700, 1, 1_000]
        .map(|count| found::block(&node, WS, count, database.soon()));
    let drawn = while_time_passes(&manual, join_all(draws)).await;
    let drawn: Vec<u64> = drawn.into_iter().flat_map(values).collect();
    assert_eq!(drawn, (0..2_404).collect::<Vec<_>>());
}

/// A single draw uses values that are too few for the block that waits, so it waits for nobody.
#[tokio::test]
async fn a_block_that_waits_does_not_stop_single_draws() {
    let manual = ManualClock::new(3);
    let settings = FastSettings { refill_below: 0, ..FastSettings::with_range(10) };
    let (database, node) = slow_node(&manual, tickets(), settings).await;
    assert_eq!(while_time_passes(&manual, database.draw(&node, 1)).await, [0]);
    let block = node.block(WS, 20, database.soon());
    let singles = async {
        tokio::task::yield_now().await;
        let start = database.clock.now();
        let drawn = database.draw(&node, 9).await;
        assert_eq!(database.clock.now(), start, "the draws waited");
        drawn
    };
    let (block, singles) = while_time_passes(&manual, async { tokio::join!(block, singles) }).await;
    assert_eq!(singles, (1..10).collect::<Vec<_>>());
    assert_eq!(values(block), (10..30).collect::<Vec<_>>());
}

/// A draw that gave up leaves its values to the others.
#[tokio::test]
async fn a_draw_that_gave_up_keeps_no_values() {
    let manual = ManualClock::new(3);
    let (database, node) = slow_node(&manual, tickets(), FastSettings::with_range(10)).await;
    let late = node.block(WS, 50, database.clock.now() + WRITE / 2);
    let refused = while_time_passes(&manual, late).await.unwrap_err();
    assert!(matches!(refused, DocNumberError::TimedOut), "{refused:?}");
    while_time_passes(&manual, database.clock.sleep(WRITE * 2)).await;
    let start = database.clock.now();
    let drawn = while_time_passes(&manual, node.block(WS, 50, database.soon())).await;
    assert_eq!(values(drawn), (0..50).collect::<Vec<_>>());
    assert_eq!(database.clock.now(), start, "nobody waits for the reserved values");
}

/// A reservation for many draws is no larger than one for the largest block. So draws that were
/// given up use up few values of a counter.
#[tokio::test]
async fn a_reservation_is_no_larger_than_the_largest_block() {
    let manual = ManualClock::new(3);
    let (database, node) = slow_node(&manual, tickets(), FastSettings::with_range(10)).await;
    let until = database.clock.now() + WRITE * 3 / 2;
    let draws = join_all((0..5).map(|_| node.block(WS, 1_000, until)));
    let drawn = while_time_passes(&manual, draws).await;
    let late = drawn.iter().filter(|drawn| matches!(drawn, Err(DocNumberError::TimedOut)));
    assert_eq!(late.count(), 4, "the first reservation was for the first draw: {drawn:?}");
    while_time_passes(&manual, database.clock.sleep(WRITE * 2)).await;
    assert_eq!(database.ledger(&node).await, [(1_000, 2_000, "node".to_owned(), Open)]);
}

/// `InMemorySequence.HasExpired`: a block waits over midnight, and gets the numbers of the next
/// day. It does not wait for a number of the first day any more.
#[tokio::test]
async fn a_draw_waits_over_midnight_in_the_queue_of_the_next_day() {
    const DAY_MS: u64 = 24 * 3_600_000;
    let manual = ManualClock::new(3);
    let settings = FastSettings { refill_below: 0, ..FastSettings::with_range(10) };
    let (database, node) = slow_node(&manual, Definition::daily("order", "O"), settings).await;
    let opened = database.clock.wall().as_millis() % DAY_MS;
    manual.advance(Duration::from_millis(DAY_MS - opened - 10));
    assert_eq!(
        while_time_passes(&manual, node.block(WS, 50, database.soon())).await.unwrap()[49].text,
        "O2026-0102-00049"
    );
    while_time_passes(&manual, database.clock.sleep(CALL)).await;
    manual.step_wall(-3_600_000);
    assert_eq!(while_time_passes(&manual, database.draw(&node, 1)).await, [0]);
    assert_eq!(database.ledger(&node).await, [(0, 10, "node".to_owned(), Open)]);
}
