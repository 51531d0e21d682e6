use std::time::Duration;

use bytes::Bytes;
use clock::ManualClock;
use istorage::{KeyspaceName, StorageDriver, mem::MemDriver};

use super::{
    counter::CounterName,
    held::{HeldRange, StoredRange},
    *,
};
use crate::Definition;

async fn open(settings: FastSettings) -> FastSeries {
    let clock = ManualClock::new(1).clock();
    let (driver, name) = (MemDriver::new(clock.clone()), KeyspaceName::new("numbers").unwrap());
    driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
    let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
    let rows = DocNumberRows::new(storage, clock, "n", Duration::from_secs(1));
    let series = Series::new(Definition::new("ticket", "T{counter:5}")).unwrap();
    FastSeries::open(series, rows, "node", settings, Instant::FAR_FUTURE).await.unwrap()
}

/// A node held a counter again that waited to be given back, and did not check the limit. So it
/// could hold twice as many counters. Now the counter takes the place of another one. No value is
/// lost when the queue is full.
#[tokio::test]
async fn a_counter_that_waits_to_be_given_back_is_held_again_within_the_limit() {
    const MOST: u64 = 10;
    let node = open(FastSettings { counters_held: MOST as usize, ..FastSettings::default() }).await;
    let shared = node.shared();
    let period = node.series().day(shared.context.rows.clock().wall()).unwrap().period();
    let name = |ws| CounterName { period, ws: Some(WsId(ws)) };
    // No task runs while this test holds the lock, so all counters wait.
    let mut held = shared.held();
    let hold = |held: &mut HeldCounters, ws| {
        shared.hold(held, name(ws)).unwrap();
        let ledger = StoredRange { first: 0, row: Bytes::new() };
        held.unissued += 5;
        held.find(name(ws)).unwrap().ranges.push(HeldRange { ledger, next: 0, until: 5 });
    };
    let most = (MOST as usize, MOST as usize);
    (0..MOST).for_each(|ws| hold(&mut held, ws));
    (0..MOST).for_each(|ws| shared.retire(&mut held, name(ws)));
    (100..100 + MOST).for_each(|ws| hold(&mut held, ws));
    assert_eq!((held.names().len(), held.waiting()), most);

    shared.hold(&mut held, name(3)).unwrap();
    assert_eq!((held.names().len(), held.waiting()), most);
    assert!(held.find(name(3)).is_some(), "it is held");
    assert_eq!(held.next_value(name(3), 1), Some(0), "with its range");
    assert!(held.find(name(100)).is_none(), "the oldest one gave up its place");
    assert_eq!(held.next_value(name(100), 1), Some(0), "and waits to be given back");
    assert_eq!((held.lost, held.unissued), (0, 5 * MOST));
}
