//! Draws do not wait for the storage while a range lasts longer than its refill.

use std::time::Duration;

use docnumbers::{FastSettings, WsId};
use futures::FutureExt;
use tck::trial::{Trial, finding_of, trials};

use crate::database::Database;

pub(crate) const TRIALS: &[Trial<Database>] = trials!(waiting:
    a_draw_waits_for_no_refill_while_the_rate_is_below_a_range_per_round_trip
        = |database| steady_rate(database, FastSettings::with_range(5_000)),
);

/// A node that reserves the next range only when it has no number left.
pub(crate) const FOUND: &[Trial<Database>] = trials!(found_by_waiting: a_late_refill);

async fn a_late_refill(database: &Database) {
    let settings = FastSettings { refill_below: 0, ..FastSettings::with_range(5_000) };
    let found = finding_of(steady_rate(database, settings)).await;
    let found = found.expect("a node that refills late was not found");
    assert!(found.contains("waits for a range"), "{found}");
}

/// Draws at most ten numbers in a millisecond, so a range of 5,000 lasts half a second. Only the
/// first draw waits for the storage.
async fn steady_rate(database: &Database, settings: FastSettings) {
    let node = database.node(0, settings).await;
    let until = database.soon();
    let _ = node.next(WsId(1), until).await.unwrap();
    for turn in 0..2_500 {
        for _ in 0..10 {
            // A draw that must wait is pending when it is polled first.
            let drawn = node.next(WsId(1), until).now_or_never();
            assert!(drawn.is_some(), "a draw of turn {turn} waits for a range");
            let _ = drawn.unwrap().unwrap();
        }
        database.clock.sleep(Duration::from_millis(1)).await;
    }
}
