//! The counter of a series starts again with each period, and at no other moment.

use docnumbers::RangeState::Open;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn orders() -> Definition {
    Definition::daily("order", "ORDER")
}

async fn texts(database: &Database, node: &FastSeries, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(node.next(WS, database.soon()).await.unwrap().text);
    }
    texts
}

/// `ISequenceService.GetNext` with the preset of the specification: a prefix, the date, and a
/// counter of five digits that begins with 00000 and starts again each day.
#[tokio::test]
pub(crate) async fn orders_count_from_00000_each_day() {
    let manual = ManualClock::new(1); // 2026-01-01
    let database = Database::new(manual.clock()).await;
    let node = database.node_with(orders(), "node", FastSettings::default()).await;
    let first = texts(&database, &node, 101).await;
    assert_eq!((&*first[0], &*first[1]), ("ORDER2026-0101-00000", "ORDER2026-0101-00001"));
    assert_eq!(first[100], "ORDER2026-0101-00100");
    manual.advance(HOUR * 24);
    assert_eq!(texts(&database, &node, 2).await, ["ORDER2026-0102-00000", "ORDER2026-0102-00001"]);
}

/// A range is reserved on one day, and its counters go on. The date is that of the draw, and not
/// that of the range or of the period.
#[tokio::test]
async fn the_date_is_that_of_the_draw_although_the_counter_goes_on() {
    for reset in [docnumbers::Reset::Never, docnumbers::Reset::Year] {
        let manual = ManualClock::new(1); // 2026-01-01
        let database = Database::new(manual.clock()).await;
        let node = database.node(Definition { reset, ..orders() }, "node", 10).await;
        assert_eq!(texts(&database, &node, 1).await, ["ORDER2026-0101-00000"]);
        database.settle().await;
        manual.advance(HOUR * 24);
        assert_eq!(texts(&database, &node, 1).await, ["ORDER2026-0102-00001"]);
        manual.step_wall(-24 * 3_600_000);
        assert_eq!(texts(&database, &node, 1).await, ["ORDER2026-0101-00002"]);
    }
}

/// The ranges of a day that is over are given back, so nothing of it stays in the ledger. A clock
/// that goes back finds the counter where it was.
#[tokio::test]
pub(crate) async fn a_clock_that_goes_back_repeats_no_number() {
    let manual = ManualClock::new(1);
    let database = Database::new(manual.clock()).await;
    let node = database.node(orders(), "node", 10).await;
    manual.advance(HOUR * 23);
    assert_eq!(texts(&database, &node, 1).await, ["ORDER2026-0101-00000"]);
    database.settle().await;
    manual.advance(HOUR * 2);
    assert_eq!(texts(&database, &node, 1).await, ["ORDER2026-0102-00000"]);
    database.settle().await;
    manual.step_wall(-2 * 3_600_000);
    assert_eq!(database.ledger(&node).await, [], "the first day was given back");
    assert_eq!(texts(&database, &node, 2).await, ["ORDER2026-0101-00001", "ORDER2026-0101-00002"]);
    manual.step_wall(2 * 3_600_000);
    assert_eq!(texts(&database, &node, 1).await, ["ORDER2026-0102-00001"]);
}

#[tokio::test]
pub(crate) async fn each_workspace_counts_on_its_own_unless_the_application_counts() {
    let database = Database::new(Clock::system()).await;
    let draw = async |definition: Definition| {
        let node = database.node(definition, "node", 10).await;
        let mut drawn = Vec::new();
        for ws in [1, 2, 1, 2] {
            drawn.push(node.next(WsId(ws), database.soon()).await.unwrap().text);
        }
        drawn
    };
    let each = Definition::new("each", "E{ws}-{counter:2}");
    assert_eq!(draw(each).await, ["E1-00", "E2-00", "E1-01", "E2-01"]);
    let scope = docnumbers::Scope::Application;
    let all = Definition { scope, ..Definition::new("all", "A{counter:2}") };
    assert_eq!(draw(all).await, ["A00", "A01", "A02", "A03"]);
}

/// A node that holds one counter gives back the other one, so the workspaces take turns without a
/// gap.
#[tokio::test]
async fn a_counter_that_was_not_used_for_long_is_given_back() {
    let database = Database::new(Clock::system()).await;
    let settings = FastSettings { counters_held: 1, ..FastSettings::with_range(10) };
    let node = database.node_with(tickets(), "node", settings).await;
    for turn in 0..5 {
        for ws in [WS, WsId(8)] {
            assert_eq!(node.next(ws, database.soon()).await.unwrap().counter, turn);
            database.settle().await;
        }
    }
    assert_eq!(database.ledger(&node).await, []);
    assert_eq!(database.draw(&node, 1).await, [5]);
    database.settle().await;
    let held = [(5, 15, "node".to_owned(), Open), (15, 25, "node".to_owned(), Open)];
    assert_eq!(database.ledger(&node).await, held);
}
