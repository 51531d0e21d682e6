//! The ledger explains each gap.

use docnumbers::{RangeState::*, SeriesEnd};

use super::*;

/// `SequenceReservationRange`: a node reserves ranges, and gives numbers from memory.
#[tokio::test]
pub(crate) async fn a_node_goes_on_with_the_number_at_which_another_stopped() {
    let database = Database::new(Clock::system()).await;
    let first = database.node(tickets(), "first", 10).await;
    assert_eq!(database.draw(&first, 13).await, (0..13).collect::<Vec<_>>());
    database.settle().await;
    let held = [(10, 20, "first".to_owned(), Open), (20, 30, "first".to_owned(), Open)];
    assert_eq!(database.ledger(&first).await, held);
    let end = first.close(database.soon()).await;
    assert_eq!(end, SeriesEnd { given_back: 17, not_issued: 0, not_given_back: 0 });
    assert_eq!(database.ledger(&first).await, []);
    let second = database.node(tickets(), "second", 10).await;
    assert_eq!(database.draw(&second, 2).await, [13, 14]);
}

/// Two nodes at work at the same time draw different numbers. A node that stops gives back only
/// counters after which nobody has reserved.
#[tokio::test]
pub(crate) async fn counters_that_cannot_be_given_back_are_in_the_ledger() {
    let database = Database::new(Clock::system()).await;
    let (a, b) = (database.node(tickets(), "a", 10), database.node(tickets(), "b", 10));
    let (a, b) = (a.await, b.await);
    assert_eq!(database.draw(&a, 3).await, [0, 1, 2]); // a has 0..10 and 10..20
    database.settle().await;
    assert_eq!(database.draw(&b, 1).await, [20]); // b has 20..30 and 30..40
    database.settle().await;
    assert_eq!(database.draw(&a, 18).await.last(), Some(&40)); // a has 40..50 and 50..60
    database.settle().await;
    let end = b.close(database.soon()).await;
    assert_eq!(end, SeriesEnd { given_back: 0, not_issued: 19, not_given_back: 0 });
    let (of_a, of_b) = ("a".to_owned(), "b".to_owned());
    let gaps = [(21, 30, of_b.clone(), NotIssued), (30, 40, of_b, NotIssued)];
    let held = [(40, 50, of_a.clone(), Open), (50, 60, of_a, Open)];
    assert_eq!(database.ledger(&a).await, [&gaps[..], &held].concat());
    assert_eq!(a.close(database.soon()).await.given_back, 19);
    assert_eq!(database.ledger(&a).await, gaps);
    let c = database.node(tickets(), "c", 10).await;
    assert_eq!(database.draw(&c, 1).await, [41]);
}

#[tokio::test]
pub(crate) async fn a_crash_leaves_its_ranges_in_the_ledger() {
    let database = Database::new(Clock::system()).await;
    let crashed = database.node(tickets(), "crashed", 10).await;
    assert_eq!(database.draw(&crashed, 4).await, [0, 1, 2, 3]);
    database.settle().await;
    drop(crashed);
    let next = database.node(tickets(), "next", 10).await;
    assert_eq!(database.draw(&next, 1).await, [20]);
    assert_eq!(next.close(database.soon()).await.given_back, 19);
    let lost = [(0, 10, "crashed".to_owned(), Open), (10, 20, "crashed".to_owned(), Open)];
    assert_eq!(database.ledger(&next).await, lost);
}

#[tokio::test]
async fn without_a_watermark_a_node_holds_one_range() {
    let database = Database::new(Clock::system()).await;
    let settings = FastSettings { refill_below: 0, ..FastSettings::with_range(10) };
    let node = database.node_with(tickets(), "node", settings).await;
    assert_eq!(database.draw(&node, 10).await.len(), 10);
    database.settle().await;
    assert_eq!(database.ledger(&node).await, [(0, 10, "node".to_owned(), Open)]);
    assert_eq!(database.draw(&node, 1).await, [10]);
    assert_eq!(database.ledger(&node).await, [(10, 20, "node".to_owned(), Open)]);
}

#[tokio::test]
async fn a_closed_series_draws_nothing() {
    let database = Database::new(Clock::system()).await;
    let node = database.node(tickets(), "node", 10).await;
    assert_eq!(database.draw(&node, 1).await, [0]);
    let again = node.clone();
    assert_eq!(node.close(database.soon()).await.given_back, 19);
    assert_eq!(again.close(database.soon()).await.given_back, 19, "the same result");
    let refused = again.next(WS, database.soon()).await.unwrap_err();
    assert!(matches!(refused, docnumbers::DocNumberError::Closed), "{refused:?}");
}

#[tokio::test]
async fn a_look_at_the_next_number_draws_nothing() {
    let database = Database::new(Clock::system()).await;
    let node = database.node(tickets(), "node", 10).await;
    let peek = async || node.peek(WS, database.soon()).await.unwrap().text;
    assert_eq!((peek().await, peek().await), ("T00000".to_owned(), "T00000".to_owned()));
    assert_eq!(database.ledger(&node).await, []);
    assert_eq!(database.draw(&node, 1).await, [0]);
    assert_eq!(peek().await, "T00001");
    let other = database.node(tickets(), "other", 10).await;
    database.settle().await;
    assert_eq!(other.peek(WS, database.soon()).await.unwrap().text, "T00020");
}
