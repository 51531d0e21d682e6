//! The trials of ownership rows. The bytes of the rows are written here by hand: the bytes are the
//! format, and must not follow the code.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use ielections::{ElectionRow, Epoch, Incarnation, Lease, Seat, TtlStore};
use istorage::{AppStorageExt, Consistency, Key};
use sysvvm::{
    OwnerRows,
    ownership::{
        Owner, OwnerChange, OwnerEpoch, OwnerRow, OwnerRowsView, OwnershipAnswer, OwnershipCall,
        PartitionId,
    },
};
use tck::trial::{Trial, trials};

use crate::database::{Database, NODES};

pub(crate) const TRIALS: &[Trial<Database>] = trials!(owners:
    rows_have_the_documented_bytes = bytes,
    as_many_rows_as_one_call_changes_are_changed_together = together,
    a_row_that_is_not_as_expected_refuses_all_changes = all_or_nothing,
    each_partition_has_one_winner_in_each_epoch = one_winner,
    a_lease_that_exists_is_among_the_living = living,
);

/// The number of nodes that race for the partitions, and the number of partitions.
const TAKERS: u128 = 8;
const PARTITIONS: u16 = 100;

/// The number of partitions that one change of a race names.
const AT_ONCE: usize = 5;

async fn of_node(database: &Database, node: usize) -> OwnerRows {
    database.open(node).await.unwrap().owners()
}

fn id(partition: u16) -> PartitionId {
    PartitionId { app: 1, partition }
}

fn row(epoch: u32, incarnation: u128) -> OwnerRow {
    let owner = Owner {
        incarnation: Incarnation(incarnation),
        advertised: "10.0.0.5:8822".parse().unwrap(),
        cluster: Some("[2001:db8::7]:9000".parse().unwrap()),
    };
    OwnerRow { epoch: OwnerEpoch(epoch), owner: Some(owner) }
}

async fn change(database: &Database, rows: &OwnerRows, all: &[OwnerChange]) -> OwnershipAnswer {
    rows.answer(&OwnershipCall::Change(all.to_vec()), database.soon()).await.unwrap()
}

async fn stored(database: &Database, rows: &OwnerRows) -> OwnerRowsView {
    rows.read(Consistency::Linearizable, database.soon()).await.unwrap().rows
}

async fn bytes(database: &Database) {
    let rows = of_node(database, 0).await;
    let partition = PartitionId { app: 0x0102, partition: 0x0304 };
    let take = OwnerChange { partition, from: OwnerRow::default(), to: row(0x0506, 0x0708) };
    assert_eq!(change(database, &rows, &[take]).await, OwnershipAnswer::Changed);
    let key = Key::new(vec![0, 0, 0, 9], vec![0, 0, 1, 2, 3, 4]);
    let mut expected = [0; 57];
    (expected[0], expected[3], expected[4], expected[19], expected[20]) = (1, 5, 6, 7, 8);
    expected[31..39].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 5, 0x22, 0x76]);
    expected[39..47].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0]);
    expected[54..].copy_from_slice(&[7, 0x23, 0x28]);
    let system = database.open(1).await.unwrap();
    assert_eq!(database.get(&system, &key).await, expected.as_slice());
}

async fn together(database: &Database) {
    let rows = of_node(database, 0).await;
    let count = u16::try_from(rows.rows_at_once()).unwrap();
    let mut from = OwnerRow::default();
    for epoch in 1..=3 {
        let to = row(epoch, u128::MAX);
        let all: Vec<_> = (0..count).map(|n| OwnerChange { partition: id(n), from, to }).collect();
        assert_eq!(change(database, &rows, &all).await, OwnershipAnswer::Changed);
        from = to;
    }
    let all: OwnerRowsView = (0..count).map(|n| (id(n), from)).collect();
    for consistency in [Consistency::Plain, Consistency::Linearizable] {
        let read = of_node(database, 1).await.read(consistency, database.soon()).await.unwrap();
        assert_eq!((read.rows, read.corrupt), (all.clone(), Vec::new()));
    }
}

async fn all_or_nothing(database: &Database) {
    let rows = of_node(database, 0).await;
    let first = OwnerChange { partition: id(2), from: OwnerRow::default(), to: row(1, 0xa) };
    assert_eq!(change(database, &rows, &[first]).await, OwnershipAnswer::Changed);
    let to_b = |n| OwnerChange { partition: id(n), from: OwnerRow::default(), to: row(1, 0xb) };
    let released = OwnerRow { epoch: OwnerEpoch(1), owner: None };
    let release = OwnerChange { partition: id(2), from: row(1, 0xa), to: released };
    let there = OwnerRowsView::from([(id(2), row(1, 0xa))]);
    let refused = change(database, &rows, &[to_b(1), to_b(2), to_b(3)]).await;
    assert_eq!(refused, OwnershipAnswer::Refused(there.clone()));
    assert_eq!(stored(database, &rows).await, there);
    assert_eq!(change(database, &rows, &[to_b(1), release]).await, OwnershipAnswer::Changed);
    let now = OwnerRowsView::from([(id(1), row(1, 0xb)), (id(2), released)]);
    assert_eq!(stored(database, &rows).await, now);
}

/// Each taker takes all partitions, a few at a time, from whatever the rows show.
async fn one_winner(database: &Database) {
    let mut nodes = Vec::new();
    for node in 0..NODES {
        nodes.push(of_node(database, node).await);
    }
    let takers = (0..TAKERS).map(|taker| {
        let rows = &nodes[usize::try_from(taker).unwrap() % NODES];
        async move {
            let mut won = Vec::new();
            let mut seen = OwnerRowsView::new();
            for first in (0..PARTITIONS).step_by(AT_ONCE) {
                let all: Vec<_> = (first..)
                    .take(AT_ONCE)
                    .map(|n| {
                        let from = seen.get(&id(n)).copied().unwrap_or_default();
                        OwnerChange { partition: id(n), from, to: row(from.epoch.0 + 1, taker) }
                    })
                    .collect();
                match change(database, rows, &all).await {
                    OwnershipAnswer::Changed => {
                        won.extend(all.iter().map(|one| (one.partition, one.to.epoch)));
                    }
                    OwnershipAnswer::Refused(_) => seen = stored(database, rows).await,
                    answer => panic!("{answer:?}"),
                }
            }
            won
        }
    });
    let mut winners = BTreeMap::new();
    for (taker, won) in (0..).zip(join_all(takers).await) {
        for place in won {
            let other = winners.insert(place, taker);
            assert_eq!(other, None, "two takers won {place:?}");
        }
    }
    let last = stored(database, &nodes[0]).await;
    assert_eq!(last.len(), usize::from(PARTITIONS));
    for (partition, row) in last {
        for epoch in 1..=row.epoch.0 {
            assert!(winners.contains_key(&(partition, OwnerEpoch(epoch))), "{partition} {epoch}");
        }
        let winner = winners[&(partition, row.epoch)];
        assert_eq!(row.owner.unwrap().incarnation, Incarnation(winner));
        assert!(!winners.contains_key(&(partition, row.epoch.next().unwrap())));
    }
}

async fn living(database: &Database) {
    let system = database.open(0).await.unwrap();
    let (elections, owners) = (system.elections(), of_node(database, 1).await);
    let alive = async || owners.answer(&OwnershipCall::ReadLeases, database.soon()).await.unwrap();
    assert_eq!(alive().await, OwnershipAnswer::Leases([].into()));
    let (ttl, seat) = (Some(Duration::from_secs(100)), Seat::new(3).unwrap());
    let lease = Lease {
        owner: "10.0.0.5:8822".parse().unwrap(),
        incarnation: Incarnation(0xa),
        epoch: Epoch(1),
    };
    let (place, value) = (ElectionRow::Lease(seat), lease.to_bytes());
    let insert = elections.insert_if_not_exists(place, value.clone(), ttl, database.soon());
    insert.await.unwrap();
    assert_eq!(alive().await, OwnershipAnswer::Leases([Incarnation(0xa)].into()));
    elections.compare_and_delete(place, value, database.soon()).await.unwrap();
    assert_eq!(alive().await, OwnershipAnswer::Leases([].into()));
    // Nobody can tell whose lease such a row is.
    let foreign = Key::new(vec![0, 0, 0, 1], vec![0, 0, 0, 4]);
    system.storage().put(foreign, "?".into(), database.soon()).await.unwrap();
    let failed = owners.answer(&OwnershipCall::ReadLeases, database.soon()).await;
    assert!(failed.is_err(), "{failed:?}");
}
