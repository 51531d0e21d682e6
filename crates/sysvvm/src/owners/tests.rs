use std::sync::Arc;

use ielections::{Epoch, Seat, TtlStore};
use istorage::{CallKind, KeyspaceName, StorageDriver, mem::MemDriver};
use ownership::{Owner, OwnerEpoch};
use tck::storage::{Fault, Faulty};

use super::*;
use crate::ElectionRows;

const SOON: Instant = Instant::FAR_FUTURE;

async fn storage() -> SharedStorage {
    let driver = MemDriver::new(Clock::system());
    let name = KeyspaceName::new("sys_test").unwrap();
    driver.create(&name, SOON).await.unwrap();
    driver.open(&name, SOON).await.unwrap().unwrap()
}

fn owners(storage: &SharedStorage) -> OwnerRows {
    OwnerRows::new(Arc::clone(storage), Clock::system())
}

fn id(partition: u16) -> PartitionId {
    PartitionId { app: 7, partition }
}

fn row(epoch: u32, incarnation: u128) -> OwnerRow {
    let (incarnation, advertised) = (Incarnation(incarnation), "10.0.0.5:80".parse().unwrap());
    let owner = Owner { incarnation, advertised, cluster: None };
    OwnerRow { epoch: OwnerEpoch(epoch), owner: Some(owner) }
}

fn change(partition: u16, from: OwnerRow, to: OwnerRow) -> OwnershipCall {
    OwnershipCall::Change(vec![OwnerChange { partition: id(partition), from, to }])
}

async fn rows(owners: &OwnerRows) -> OwnerRowsView {
    owners.read(Consistency::Linearizable, SOON).await.unwrap().rows
}

#[tokio::test]
async fn a_change_is_made_only_from_exactly_the_row_that_was_read() {
    let owners = owners(&storage().await);
    let (nobody, a, b) = (OwnerRow::default(), row(1, 0xa), row(2, 0xb));
    let answer = async |call| owners.answer(&call, SOON).await.unwrap();
    assert_eq!(answer(change(0, nobody, a)).await, OwnershipAnswer::Changed);
    let refused = |there| OwnershipAnswer::Refused(OwnerRowsView::from([(id(0), there)]));
    assert_eq!(answer(change(0, nobody, b)).await, refused(a));
    assert_eq!(answer(change(0, row(1, 0xb), b)).await, refused(a));
    assert_eq!(answer(change(0, a, b)).await, OwnershipAnswer::Changed);
    assert_eq!(answer(change(0, a, b)).await, refused(b));
    let absent = OwnershipAnswer::Refused(OwnerRowsView::from([(id(1), nobody)]));
    assert_eq!(answer(change(1, a, b)).await, absent);
    let all = OwnerRowsView::from([(id(0), b)]);
    assert_eq!(answer(OwnershipCall::LookAtRows).await, OwnershipAnswer::Rows(all.clone()));
    assert_eq!(answer(OwnershipCall::ReadRows).await, OwnershipAnswer::Rows(all));
}

#[tokio::test]
async fn several_changes_are_made_together_or_not_at_all() {
    let owners = owners(&storage().await);
    let (nobody, a) = (OwnerRow::default(), row(1, 0xa));
    assert!(owners.answer(&change(3, nobody, row(1, 0xb)), SOON).await.is_ok());
    let to_a = |partition| OwnerChange { partition: id(partition), from: nobody, to: a };
    let all = OwnershipCall::Change((0..10).map(to_a).collect());
    let there = OwnerRowsView::from([(id(3), row(1, 0xb))]);
    assert_eq!(owners.answer(&all, SOON).await.unwrap(), OwnershipAnswer::Refused(there.clone()));
    assert_eq!(rows(&owners).await, there);
    let others = OwnershipCall::Change((4..10).map(to_a).collect());
    assert_eq!(owners.answer(&others, SOON).await.unwrap(), OwnershipAnswer::Changed);
    assert_eq!(rows(&owners).await.len(), 7);
}

#[tokio::test]
async fn the_rows_of_one_change_fit_into_one_write_of_the_storage() {
    let owners = owners(&storage().await);
    let most = u16::try_from(owners.rows_at_once()).unwrap();
    let addressed = Owner {
        incarnation: Incarnation(u128::MAX),
        advertised: "[2001:db8::1]:65535".parse().unwrap(),
        cluster: Some("[2001:db8::1]:65534".parse().unwrap()),
    };
    let mut from = OwnerRow::default();
    for epoch in 1..3 {
        let to = OwnerRow { epoch: OwnerEpoch(epoch), owner: Some(addressed) };
        let all = (0..most).map(|partition| OwnerChange { partition: id(partition), from, to });
        let answer = owners.answer(&OwnershipCall::Change(all.collect()), SOON).await.unwrap();
        assert_eq!(answer, OwnershipAnswer::Changed);
        from = to;
    }
}

#[tokio::test]
async fn the_leases_that_exist_are_the_living() {
    let storage = storage().await;
    let elections = ElectionRows::new(Arc::clone(&storage), Clock::system());
    for (seat, incarnation) in [(1, 0xa), (9, 0xb)] {
        let owner = "10.0.0.5:80".parse().unwrap();
        let lease = Lease { owner, incarnation: Incarnation(incarnation), epoch: Epoch(4) };
        let place = ielections::ElectionRow::Lease(Seat::new(seat).unwrap());
        let ttl = Some(Duration::from_secs(1_000));
        elections.insert_if_not_exists(place, lease.to_bytes(), ttl, SOON).await.unwrap();
    }
    let owners = owners(&storage);
    let living = owners.answer(&OwnershipCall::ReadLeases, SOON).await.unwrap();
    let both = BTreeSet::from([Incarnation(0xa), Incarnation(0xb)]);
    assert_eq!(living, OwnershipAnswer::Leases(both));

    // The lease may be that of an owner: a newer program may have written it.
    let key = Key::new(layout::leases(), vec![0, 0, 0, 5]);
    storage.put(key, "new".into(), SOON).await.unwrap();
    let error = owners.answer(&OwnershipCall::ReadLeases, SOON).await.unwrap_err();
    assert_eq!(OwnerRows::partition_of(&error), None, "it is no ownership row");
    let Error::Storage(error) = error else { panic!("{error:?}") };
    let row = error.row().unwrap().to_string();
    assert!(row.starts_with("the lease of a seat (key 00000001/00000005) is not a lease"), "{row}");
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_named_and_never_replaced() {
    let storage = storage().await;
    let owners = owners(&storage);
    assert!(owners.answer(&change(0, OwnerRow::default(), row(1, 0xa)), SOON).await.is_ok());
    for ccols in [layout::owner(id(1)), "odd".into()] {
        storage.put(Key::new(layout::owners(), ccols), "?".into(), SOON).await.unwrap();
    }
    let read = owners.read(Consistency::Plain, SOON).await.unwrap();
    assert_eq!(read.rows, OwnerRowsView::from([(id(0), row(1, 0xa))]));
    let corrupt: Vec<String> = read.corrupt.iter().map(ToString::to_string).collect();
    assert_eq!(corrupt.len(), 2, "{corrupt:?}");
    let text = "the owner of the partition 7/1 (key 00000009/000000070001) is not an ownership row";
    assert!(corrupt[0].starts_with(text), "{corrupt:?}");
    let take = change(1, OwnerRow::default(), row(1, 0xb));
    let error = owners.answer(&take, SOON).await.unwrap_err();
    assert_eq!(OwnerRows::partition_of(&error), Some(id(1)), "{error:?}");
    assert_eq!(owners.read(Consistency::Plain, SOON).await.unwrap(), read);
}

/// A write that was sent a second time would hide from the engine that the first one was made.
#[tokio::test]
async fn the_outcome_of_a_call_is_the_outcome_of_one_write() {
    let storage = storage().await;
    let take = change(0, OwnerRow::default(), row(1, 0xa));
    for (fault, expected) in [
        (Fault::Unavailable, OwnershipAnswer::Unavailable),
        (Fault::NotAppliedButError, OwnershipAnswer::Unknown),
        (Fault::AppliedButError, OwnershipAnswer::Unknown),
    ] {
        let mut faults = [fault].into_iter();
        let script = move |kind| match kind {
            CallKind::WriteIf => faults.next().expect("one write"),
            _ => Fault::None,
        };
        let faulty = Faulty::scripted(Arc::clone(&storage), Clock::system(), script);
        let owners = owners(&(Arc::new(faulty) as SharedStorage));
        assert_eq!(owners.answer(&take, SOON).await.unwrap(), expected, "{fault:?}");
        let made = fault == Fault::AppliedButError;
        assert_eq!(rows(&owners).await.len(), usize::from(made), "{fault:?}");
    }
    storage.close().await;
    let closed = owners(&storage).answer(&take, SOON).await.unwrap_err();
    assert!(matches!(closed, Error::Storage(error) if error.kind() == ErrorKind::Closed));
}

#[tokio::test]
async fn partitions_of_a_copied_log_begin_above_its_epochs() {
    let storage = storage().await;
    let owners = owners(&storage);
    let logs: Vec<_> = (0..300).map(|n| (id(n), OwnerEpoch(u32::from(n) + 5))).collect();
    owners.begin_above(&logs, SOON).await.unwrap();
    // An import repeats the call if the storage failed in the middle.
    owners.begin_above(&logs, SOON).await.unwrap();
    let there = rows(&owners).await;
    assert_eq!(there.len(), 300);
    assert_eq!(there[&id(299)], OwnerRow { epoch: OwnerEpoch(304), owner: None });
    let again = owners.begin_above(&[(id(7), OwnerEpoch(1))], SOON).await;
    assert!(matches!(again, Err(Error::Foreign { .. })), "{again:?}");
    assert_eq!(rows(&owners).await[&id(7)].epoch, OwnerEpoch(12));
}

/// The command that changes a trust level takes all partitions. A row that changes between its read
/// and its write belongs to a node that works.
#[tokio::test]
async fn all_partitions_of_an_application_get_one_epoch_and_no_owner() {
    let storage = storage().await;
    let owners = owners(&storage);
    let (nobody, app, four) = (OwnerRow::default(), AppNumber(7), NonZeroU16::new(4).unwrap());
    let answer = async |call| owners.answer(&call, SOON).await.unwrap();
    for (partition, row) in [(0, row(3, 0xa)), (2, row(8, 0xb))] {
        assert_eq!(answer(change(partition, nobody, row)).await, OwnershipAnswer::Changed);
    }
    let of_another_app = PartitionId { app: 8, partition: 0 };
    let other = OwnerChange { partition: of_another_app, from: nobody, to: row(30, 0xc) };
    assert_eq!(answer(OwnershipCall::Change(vec![other])).await, OwnershipAnswer::Changed);
    let lease = Lease {
        owner: "10.0.0.5:80".parse().unwrap(),
        incarnation: Incarnation(0xb),
        epoch: Epoch(1),
    };
    let elections = ElectionRows::new(Arc::clone(&storage), Clock::system());
    let held = ielections::ElectionRow::Lease(Seat::FIRST);
    let ttl = Some(Duration::from_secs(1_000));
    let _ = elections.insert_if_not_exists(held, lease.to_bytes(), ttl, SOON).await.unwrap();
    let owned = owners.free_all(app, four, SOON).await.unwrap_err();
    assert!(matches!(owned, Error::Owned { partition: 2, .. }), "{owned:?}");
    let _ = elections.compare_and_delete(held, lease.to_bytes(), SOON).await.unwrap();
    for epoch in [9, 10] {
        assert_eq!(owners.free_all(app, four, SOON).await.unwrap(), OwnerEpoch(epoch));
        let free = OwnerRow { epoch: OwnerEpoch(epoch), owner: None };
        let mut expected: OwnerRowsView = (0..4).map(|partition| (id(partition), free)).collect();
        expected.insert(of_another_app, row(30, 0xc));
        assert_eq!(rows(&owners).await, expected);
    }
    let last = OwnerRow { epoch: OwnerEpoch::MAX, owner: None };
    let free = OwnerRow { epoch: OwnerEpoch(10), owner: None };
    assert_eq!(answer(change(1, free, last)).await, OwnershipAnswer::Changed);
    let none_left = owners.free_all(app, four, SOON).await.unwrap_err();
    assert!(matches!(none_left, Error::NoEpochLeft { partition: 1 }), "{none_left:?}");
}
