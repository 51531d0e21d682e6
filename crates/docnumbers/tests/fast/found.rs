//! Wrong nodes. The random histories, or a test for the mistake, must find each mistake.

use std::cell::Cell;

use docnumbers::{DocNumber, DocNumberError};
use futures::FutureExt;
use tck::trial::finding_of;

use super::{
    wrong::{DrawDefect, WrongReserver},
    *,
};

/// How many histories may pass before a mistake is found.
const HISTORIES: u64 = 60;

/// A mistake in the order of draws, or in their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServingDefect {
    /// A draw waits beyond its deadline.
    DeadlineIgnored,
    /// The draw that came last is served first.
    LastIsFirst,
    /// A block is drawn number by number.
    BlockBySingles,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Draw(DrawDefect),
    Serving(ServingDefect),
}

thread_local! {
    /// What is wrong. The runtime of a test runs on the thread of the test.
    static WRONG: Cell<Option<Wrong>> = const { Cell::new(None) };
    /// The number of draws so far.
    static DRAWS: Cell<usize> = const { Cell::new(0) };
}

/// The storage as a node uses it.
pub(crate) fn with_defect(storage: SharedStorage) -> SharedStorage {
    match WRONG.get() {
        Some(Wrong::Draw(defect)) => WrongReserver::of(storage, defect),
        _ => storage,
    }
}

/// Draws a block from a node.
pub(crate) async fn block(
    node: &FastSeries,
    ws: WsId,
    count: u32,
    until: Instant,
) -> Result<Vec<DocNumber>, DocNumberError> {
    match WRONG.get() {
        Some(Wrong::Serving(ServingDefect::DeadlineIgnored)) => {
            node.block(ws, count, until + CALL).await
        }
        Some(Wrong::Serving(ServingDefect::LastIsFirst)) => {
            let before = DRAWS.replace(DRAWS.get() + 1);
            for _ in before..20 {
                tokio::task::yield_now().await;
            }
            node.block(ws, count, until).await
        }
        Some(Wrong::Serving(ServingDefect::BlockBySingles)) => {
            let mut drawn = Vec::new();
            for _ in 0..count {
                drawn.push(node.next(ws, until).await?);
            }
            Ok(drawn)
        }
        _ => node.block(ws, count, until).await,
    }
}

/// The finding of a test with something wrong.
fn finding(wrong: Wrong, test: impl FnOnce()) -> Option<String> {
    WRONG.set(Some(wrong));
    DRAWS.set(0);
    let found = finding_of(async { test() }).now_or_never().expect("a test has a runtime");
    WRONG.set(None);
    found
}

#[test]
fn random_histories_find_every_mistake() {
    use DrawDefect::*;
    let mut wrong = Vec::new();
    for (defect, expected) in [
        (ReservesWithoutCondition, "was drawn twice"),
        (GivesBackWithoutCondition, "was drawn twice"),
        (GivesNothingBack, "is unexplained"),
        (NoLedger, "is unexplained"),
        (UnsettledForgotten, "is lost"),
    ] {
        let history = |seed| {
            let found = finding(Wrong::Draw(defect), || _ = simulation::run(seed, 60));
            found.map(|found| (seed, found))
        };
        let found = (0..HISTORIES).find_map(history);
        if !found.as_ref().is_some_and(|(_, found)| found.contains(expected)) {
            wrong.push(format!("{defect:?}: expected `{expected}`, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_mistake_is_found_by_the_test_for_it() {
    use DrawDefect::*;
    use ServingDefect::*;
    use Wrong::{Draw, Serving};
    let tests: &[(Wrong, fn(), &str)] = &[
        (
            Draw(UnsettledForgotten),
            faults::a_reservation_that_was_given_up_is_used_by_the_next_draw,
            "left: [30, 31]",
        ),
        (
            Draw(UnsettledForgotten),
            faults::a_node_that_stops_gives_back_a_reservation_without_an_answer,
            "left: (0, 0, 0)",
        ),
        (
            Draw(GivesNothingBack),
            faults::giving_back_twice_takes_nothing_from_the_next_node,
            "left: [20, 21]",
        ),
        (
            Draw(GivesNothingBack),
            ledger::a_node_goes_on_with_the_number_at_which_another_stopped,
            "left: [30, 31]",
        ),
        (
            Draw(GivesBackWithoutCondition),
            ledger::counters_that_cannot_be_given_back_are_in_the_ledger,
            "left: SeriesEnd { given_back: 19",
        ),
        (Draw(NoLedger), ledger::a_crash_leaves_its_ranges_in_the_ledger, "left: []"),
        (Draw(PeriodIgnored), periods::orders_count_from_00000_each_day, "ORDER2026-0102-00300"),
        (
            Draw(PeriodIgnored),
            periods::a_clock_that_goes_back_repeats_no_number,
            "ORDER2026-0102-00001",
        ),
        (
            Draw(WorkspaceIgnored),
            periods::each_workspace_counts_on_its_own_unless_the_application_counts,
            "E2-20",
        ),
        (
            Serving(DeadlineIgnored),
            faults::no_draw_waits_longer_than_its_deadline,
            "the draw waited for 1.05s",
        ),
        (Serving(LastIsFirst), waiting::draws_that_wait_are_served_in_their_order, "left: [1701"),
        (Serving(BlockBySingles), waiting::a_block_does_not_starve_beside_single_draws, "TimedOut"),
    ];
    let mut wrong = Vec::new();
    for (defect, test, expected) in tests {
        let found = finding(*defect, test);
        if !found.as_ref().is_some_and(|found| found.contains(expected)) {
            wrong.push(format!("{defect:?}: expected `{expected}`, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
