//! The trials of numbers. The bytes of the rows are written here by hand: the bytes are the format,
//! and must not follow the code.

use std::{future::ready, num::NonZeroU16};

use bytes::Bytes;
use futures::future::join_all;
use istorage::{AppStorageExt, Consistency, Key, Order};
use sysvvm::{AppName, LastNumber, NumberRows, StoredOffset, System};
use tck::trial::{Trial, trials};

use crate::database::Database;

pub(crate) const TRIALS: &[Trial<Database>] = trials!(numbers:
    a_number_that_was_never_stored_is_absent = absent,
    rows_have_the_documented_bytes = bytes,
    numbers_never_go_down = never_down,
    offsets_are_ordered_by_leader_and_then_by_themselves = offsets,
    each_partition_workspace_and_application_has_numbers_of_its_own = their_own,
    more_numbers_than_fit_into_one_write_are_stored = many,
    concurrent_writes_keep_the_highest_number = side_by_side,
    rows_that_hide_ordered_writes_go_on = hidden,
    a_row_that_an_earlier_leader_writes_late_does_not_go_down = hidden_late,
    deleted_rows_are_written_again = deleted,
);

async fn of_app(database: &Database, node: usize, name: &str) -> NumberRows {
    let system = database.open(node).await.unwrap();
    let name = AppName::new("acme", name).unwrap();
    let app = match system.open_app(&name, database.soon()).await {
        Ok(app) => app,
        Err(_) => system.init_app(&name, NonZeroU16::MIN, database.soon()).await.unwrap(),
    };
    system.numbers(&app.entry)
}

fn at(ws: u64, seq: u16, number: u64) -> LastNumber {
    LastNumber { ws, seq, number }
}

fn replayed(epoch: u64, next: u64) -> StoredOffset {
    StoredOffset { partition: 0, epoch, next }
}

async fn store(database: &Database, rows: &NumberRows, numbers: &[LastNumber], to: StoredOffset) {
    rows.store(numbers, to, || ready(Ok(database.soon()))).await.unwrap();
}

async fn last(database: &Database, rows: &NumberRows, ws: u64, seqs: &[u16]) -> Vec<Option<u64>> {
    rows.last(ws, seqs, database.soon()).await.unwrap()
}

async fn next(database: &Database, rows: &NumberRows, partition: u16) -> Option<u64> {
    rows.next_offset(partition, database.soon()).await.unwrap()
}

async fn absent(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    assert_eq!(last(database, &rows, 1, &[1, 2]).await, [None, None]);
    assert_eq!(next(database, &rows, 0).await, None);
    store(database, &rows, &[at(1, 2, 5)], replayed(1, 2)).await;
    assert_eq!(last(database, &rows, 1, &[1, 2, 3]).await, [None, Some(5), None]);
    assert_eq!(last(database, &rows, 1, &[2, 1]).await, [Some(5), None]);
    assert_eq!(last(database, &rows, 1, &[]).await, []);
}

async fn bytes(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    let replayed = StoredOffset { partition: 0x0102, epoch: 3, next: 0x0405 };
    store(database, &rows, &[at(0x0607, 0x0809, 0x0a0b)], replayed).await;
    let system = database.open(1).await.unwrap();
    let get = async |pkey: &[u8], ccols: &[u8]| {
        let key = Key::new(pkey.to_vec(), ccols.to_vec());
        system.storage().get(&key, Consistency::Plain, database.soon()).await.unwrap().unwrap()
    };
    let offset = get(&[0, 0, 0, 2, 0, 0, 0, 1, 1, 2], &[0; 4]).await;
    assert_eq!(offset, [0, 0, 0, 0, 0, 0, 4, 5].as_slice());
    let number = get(&[0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 6, 7], &[8, 9]).await;
    assert_eq!(number, [0, 0, 0, 0, 0, 0, 0x0a, 0x0b].as_slice());
}

async fn never_down(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    for (number, stays) in [(5, 5), (3, 5), (5, 5), (7, 7), (1, 7), (Order::MAX, Order::MAX)] {
        store(database, &rows, &[at(1, 1, number)], replayed(1, 2)).await;
        assert_eq!(last(database, &rows, 1, &[1]).await, [Some(stays)]);
    }
    for refused in [0, 1 << 62] {
        let deadline = || ready(Ok(database.soon()));
        let refused = rows.store(&[at(1, 1, refused)], replayed(1, 3), deadline).await;
        assert!(refused.is_err());
    }
    assert_eq!(next(database, &rows, 0).await, Some(2), "nothing of it is stored");
}

async fn offsets(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    let last = (1 << 40) - 1;
    for (epoch, offset, stays) in [
        (5, 10, 10),
        (5, 9, 10),
        (5, 11, 11),
        (6, 2, 2),
        (5, last, 2),
        (6, 3, 3),
        (6, last, last),
        (7, 1, 1),
    ] {
        store(database, &rows, &[], replayed(epoch, offset)).await;
        assert_eq!(next(database, &rows, 0).await, Some(stays), "after {epoch}, {offset}");
    }
}

async fn their_own(database: &Database) {
    let (shop, other) = (of_app(database, 0, "shop").await, of_app(database, 0, "other").await);
    store(database, &shop, &[at(1, 1, 5), at(2, 1, 6)], replayed(1, 2)).await;
    let to = StoredOffset { partition: 1, epoch: 1, next: 9 };
    store(database, &shop, &[at(1, 2, 7)], to).await;
    let again = of_app(database, 1, "shop").await;
    assert_eq!(last(database, &again, 1, &[1, 2]).await, [Some(5), Some(7)]);
    assert_eq!(last(database, &again, 2, &[1, 2]).await, [Some(6), None]);
    let offsets = [next(database, &again, 0).await, next(database, &again, 1).await];
    assert_eq!(offsets, [Some(2), Some(9)]);
    assert_eq!(last(database, &other, 1, &[1, 2]).await, [None, None]);
    assert_eq!(next(database, &other, 0).await, None);
}

/// Stores twice as many numbers as any driver writes at once.
async fn many(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    let numbers: Vec<LastNumber> = (0..600).map(|n| at(n / 3, (n % 3) as u16, n + 1)).collect();
    store(database, &rows, &numbers, replayed(1, 7)).await;
    for ws in [0, 100, 199] {
        let expected = [1, 2, 3].map(|n| Some(3 * ws + n));
        assert_eq!(last(database, &rows, ws, &[0, 1, 2]).await, expected);
    }
    assert_eq!(next(database, &rows, 0).await, Some(7));
}

async fn side_by_side(database: &Database) {
    of_app(database, 0, "shop").await;
    let nodes = join_all((0..4).map(|node| of_app(database, node, "shop"))).await;
    let nodes = &nodes;
    let writes = (0..40_u64).map(|n| async move {
        // The numbers come in no order.
        let number = n * 23 % 40 + 1;
        let rows = &nodes[n as usize % 4];
        store(database, rows, &[at(1, 1, number)], replayed(1, number)).await;
    });
    join_all(writes).await;
    assert_eq!(last(database, &nodes[0], 1, &[1]).await, [Some(40)]);
    assert_eq!(next(database, &nodes[1], 0).await, Some(40));
}

/// The keys of the number of sequence 1 of workspace 1, and of the stored offset of partition 0.
fn keys() -> [Key; 2] {
    let number = [0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    let offset = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0];
    [Key::new(number.to_vec(), vec![0, 1]), Key::new(offset.to_vec(), vec![0; 4])]
}

/// Writes a row with a condition, as an operator did to repair it. The row hides ordered writes
/// from then on.
async fn rewrite(database: &Database, system: &System, key: &Key, new: impl Into<Bytes>) {
    let old = database.get(system, key).await;
    database.swap(system, key, &old, &new.into()).await;
}

/// The documented repair of the row of a number wrote the row with a client of the database. Such a
/// row hides every ordered write. The node went on to put the number with its order: each put was
/// acknowledged, and the row kept the number of the repair. After a restart the numbers 11, 12 and
/// 13 were given again. A stored offset stood still in the same way, so each recovery read more.
async fn hidden(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    let system = database.open(1).await.unwrap();
    store(database, &rows, &[at(1, 1, 10), at(1, 2, 5), at(2, 1, 7)], replayed(3, 9)).await;
    let [number, offset] = keys();
    rewrite(database, &system, &number, 10_u64.to_be_bytes().to_vec()).await;
    rewrite(database, &system, &offset, 4_u64.to_be_bytes().to_vec()).await;
    for more in 1..4 {
        let numbers = [at(1, 1, 10 + more), at(1, 2, 5 + more), at(2, 1, 7 + more)];
        store(database, &rows, &numbers, replayed(3, 9 + more)).await;
        let stored = last(database, &rows, 1, &[1, 2]).await;
        assert_eq!(stored, [Some(10 + more), Some(5 + more)]);
        assert_eq!(last(database, &rows, 2, &[1]).await, [Some(7 + more)]);
        assert_eq!(next(database, &rows, 0).await, Some(9 + more));
    }
    // The next leader goes on with these rows, even if it stores a lower offset.
    store(database, &rows, &[], replayed(4, 6)).await;
    assert_eq!(next(database, &rows, 0).await, Some(6));
    // A repair may have left a number that is too high.
    rewrite(database, &system, &number, 90_u64.to_be_bytes().to_vec()).await;
    store(database, &rows, &[at(1, 1, 14)], replayed(4, 7)).await;
    assert_eq!(last(database, &rows, 1, &[1]).await, [Some(90)]);
    // Bytes that are no number, and that hide the number that was given: the caller knows it.
    for (key, bytes) in [(&number, "damaged"), (&offset, "")] {
        rewrite(database, &system, key, bytes).await;
    }
    store(database, &rows, &[at(1, 1, 91)], replayed(4, 8)).await;
    assert_eq!(last(database, &rows, 1, &[1]).await, [Some(91)]);
    assert_eq!(next(database, &rows, 0).await, Some(8));
    rows.raise(&[at(1, 1, 95)], || ready(Ok(database.soon()))).await.unwrap();
    assert_eq!(last(database, &rows, 1, &[1]).await, [Some(95)]);
}

/// Leader A stalls after its fence permitted a write; leader B stores numbers and its offset; A's
/// write lands. The rows hide ordered writes, so their orders do not protect them.
async fn hidden_late(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    let system = database.open(1).await.unwrap();
    store(database, &rows, &[at(1, 1, 10)], replayed(3, 9)).await;
    for key in keys() {
        let there = database.get(&system, &key).await;
        rewrite(database, &system, &key, there).await;
    }
    store(database, &rows, &[at(1, 1, 15)], replayed(4, 12)).await;
    store(database, &rows, &[at(1, 1, 13)], replayed(3, 50)).await;
    assert_eq!(last(database, &rows, 1, &[1]).await, [Some(15)]);
    assert_eq!(next(database, &rows, 0).await, Some(12));
    // The swap of A was sent before that of B, and lands after it.
    let [_, offset] = keys();
    let (old, new) = (9_u64.to_be_bytes().to_vec(), (3 << 40 | 50_u64).to_be_bytes().to_vec());
    let late =
        system.storage().compare_and_swap(offset, old.into(), new.into(), None, database.soon());
    assert!(!late.await.unwrap().is_applied());
    assert_eq!(next(database, &rows, 0).await, Some(12));
}

/// On Cassandra a deletion hides later ordered writes, too.
async fn deleted(database: &Database) {
    let rows = of_app(database, 0, "shop").await;
    let system = database.open(1).await.unwrap();
    store(database, &rows, &[at(1, 1, 10)], replayed(3, 9)).await;
    for key in keys() {
        let there = database.get(&system, &key).await;
        let deleted = system.storage().compare_and_delete(key, there, database.soon());
        assert!(deleted.await.unwrap().is_applied());
    }
    for more in 1..3 {
        store(database, &rows, &[at(1, 1, 10 + more)], replayed(3, 9 + more)).await;
        assert_eq!(last(database, &rows, 1, &[1]).await, [Some(10 + more)]);
        assert_eq!(next(database, &rows, 0).await, Some(9 + more));
    }
}
