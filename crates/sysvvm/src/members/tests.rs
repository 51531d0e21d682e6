use std::sync::Arc;

use clock::{ManualClock, WallTime};
use futures::FutureExt;
use istorage::{CallKind, ErrorKind, KeyspaceName, StorageDriver, mem::MemDriver};
use ownership::{OwnerEpoch, PartitionId};
use tck::storage::{Fault, Faulty};

use super::*;
use crate::Error;

const SOON: Instant = Instant::FAR_FUTURE;
const TTL: Duration = Duration::from_secs(10);

async fn storage(clock: &Clock) -> SharedStorage {
    let driver = MemDriver::new(clock.clone());
    let name = KeyspaceName::new("sys_test").unwrap();
    driver.create(&name, SOON).await.unwrap();
    driver.open(&name, SOON).await.unwrap().unwrap()
}

async fn rows() -> (MemberRows, SharedStorage, ManualClock) {
    let manual = ManualClock::new(1);
    let storage = storage(&manual.clock()).await;
    (MemberRows::new(Arc::clone(&storage), manual.clock()), storage, manual)
}

async fn beat(rows: &MemberRows, id: u128, heartbeat: u64, bytes: &'static str) {
    rows.put_member(id, heartbeat, bytes.as_bytes(), TTL, SOON).await.unwrap();
}

fn seen(id: u128, heartbeat: u64, bytes: &'static str) -> SeenMember {
    SeenMember { id, heartbeat, bytes: bytes.into() }
}

fn a_move() -> OperatorOrder {
    let partition = PartitionId { app: 7, partition: 3 };
    OperatorOrder::Move { partition, epoch: OwnerEpoch(5), to: 0xab }
}

/// The bytes at a place, as this module has written them.
async fn stored(storage: &SharedStorage, ccols: Bytes) -> Bytes {
    let key = Key::new(layout::members(), ccols);
    storage.get_linearizable(&key, SOON).await.unwrap().unwrap()
}

async fn put(storage: &SharedStorage, ccols: &[u8], value: &'static str) {
    let key = Key::new(layout::members(), ccols.to_vec());
    storage.put(key, value.into(), SOON).await.unwrap();
}

#[tokio::test]
async fn a_member_is_seen_with_its_last_heartbeat_until_its_row_expires() {
    let (rows, storage, clock) = rows().await;
    assert_eq!(rows.read(SOON).await.unwrap(), ClusterRows::default());
    beat(&rows, 2, 1, "b").await;
    beat(&rows, 1, 8, "new").await;
    beat(&rows, 1, 7, "late").await;
    let read = rows.read(SOON).await.unwrap();
    let members = vec![seen(1, 8, "new"), seen(2, 1, "b")];
    assert_eq!(read, ClusterRows { members, ..ClusterRows::default() });
    assert_eq!(stored(&storage, layout::member(1)).await[..], *b"\0\0\0\0\0\0\0\x08new");

    clock.advance(TTL - Duration::from_secs(1));
    beat(&rows, 2, 2, "").await;
    clock.advance(Duration::from_secs(3));
    assert_eq!(rows.read(SOON).await.unwrap().members, [seen(2, 2, "")]);
    clock.advance(TTL);
    assert_eq!(rows.read(SOON).await.unwrap(), ClusterRows::default());

    let refused = rows.put_member(1, 0, b"", TTL, SOON).await.unwrap_err();
    assert!(matches!(refused, Error::Storage(error) if error.kind() == ErrorKind::Invalid));
}

#[tokio::test]
async fn the_last_operator_decides_the_pause() {
    let (rows, storage, clock) = rows().await;
    let at = clock.clock().wall().as_millis();
    let first = rows.set_paused(true, "ops", SOON).await.unwrap();
    let expected =
        BalancingPause { paused: true, at: WallTime::from_millis(at), by: "ops".to_owned() };
    assert_eq!(first, expected);
    let bytes = format!(r#"{{"paused":true,"at":{at},"by":"ops"}}"#);
    assert_eq!(stored(&storage, layout::pause()).await, bytes);
    clock.advance(Duration::from_secs(1_000));
    let read = rows.read(SOON).await.unwrap();
    assert_eq!(read, ClusterRows { pause: Some(first.clone()), ..ClusterRows::default() });

    // The clock of the second operator is behind.
    clock.step_wall(-2_000_000);
    let second = rows.set_paused(false, "", SOON).await.unwrap();
    assert!(!second.paused && second.at > first.at, "{second:?} after {first:?}");
    assert_eq!(rows.read(SOON).await.unwrap().pause, Some(second));
}

/// A pause must be possible whatever the row holds: it is an operator's last resort.
#[tokio::test]
async fn a_pause_that_makes_no_sense_is_replaced() {
    let (rows, storage, _) = rows().await;
    put(&storage, &layout::pause(), "?").await;
    let read = rows.read(SOON).await.unwrap();
    assert_eq!((read.pause, read.corrupt.len()), (None, 1));
    let pause = rows.set_paused(true, "ops", SOON).await.unwrap();
    let read = rows.read(SOON).await.unwrap();
    assert_eq!((read.pause, read.corrupt.len()), (Some(pause), 0));
}

#[tokio::test]
async fn two_operators_at_once_are_both_answered() {
    let (rows, storage, clock) = rows().await;
    rows.set_paused(true, "first", SOON).await.unwrap();
    let other = rows.clone();
    // Another operator changes the row between each read and the write that follows.
    let (mut calls, inner) = (0, Arc::clone(&storage));
    let script = move |kind| {
        if kind == CallKind::WriteIf {
            calls += 1;
            if calls < 3 {
                let change = other.set_paused(false, "other", SOON);
                change.now_or_never().expect("memory answers at once").unwrap();
            }
        }
        Fault::None
    };
    let faulty: SharedStorage = Arc::new(Faulty::scripted(inner, clock.clock(), script));
    let raced = MemberRows::new(faulty, clock.clock());
    let pause = raced.set_paused(true, "ops", SOON).await.unwrap();
    assert_eq!(rows.read(SOON).await.unwrap().pause, Some(pause));
}

#[tokio::test]
async fn a_pause_without_an_answer_is_settled() {
    for fault in [Fault::NotAppliedButError, Fault::AppliedButError] {
        let clock = Clock::system();
        let storage = storage(&clock).await;
        let rows = MemberRows::new(Arc::clone(&storage), clock.clone());
        let mut faults = [fault].into_iter();
        let script = move |kind| match kind {
            CallKind::WriteIf => faults.next().unwrap_or(Fault::None),
            _ => Fault::None,
        };
        let faulty: SharedStorage = Arc::new(Faulty::scripted(storage, clock.clone(), script));
        let until = clock.now() + Duration::from_secs(60);
        let pause = MemberRows::new(faulty, clock).set_paused(true, "ops", until).await.unwrap();
        assert_eq!(rows.read(SOON).await.unwrap().pause, Some(pause), "{fault:?}");
    }
}

#[tokio::test]
async fn orders_are_read_in_their_order_until_they_expire() {
    let (rows, storage, clock) = rows().await;
    let mut given = Vec::new();
    for order in [
        a_move(),
        OperatorOrder::Drain { member: u128::MAX },
        OperatorOrder::CancelDrain { member: 1 },
    ] {
        given.push((rows.order(&order, TTL, SOON).await.unwrap(), order));
        clock.advance(Duration::from_millis(1));
    }
    let read = rows.read(SOON).await.unwrap();
    assert_eq!(read, ClusterRows { orders: given.clone(), ..ClusterRows::default() });
    assert!(given.is_sorted_by_key(|(id, _)| *id));
    let (ab, max, one) = (format!("{:032x}", 0xab), "f".repeat(32), format!("{:032x}", 1));
    let expected = [
        format!(r#"{{"kind":"move","app":7,"partition":3,"epoch":5,"to":"{ab}"}}"#),
        format!(r#"{{"kind":"drain","member":"{max}"}}"#),
        format!(r#"{{"kind":"cancel_drain","member":"{one}"}}"#),
    ];
    for ((id, _), expected) in given.iter().zip(expected) {
        let place = layout::order(id.at.as_micros(), id.random);
        assert_eq!(stored(&storage, place).await, expected);
    }
    clock.advance(TTL - Duration::from_secs(1));
    assert_eq!(rows.read(SOON).await.unwrap().orders, given);
    clock.advance(Duration::from_secs(3));
    assert_eq!(rows.read(SOON).await.unwrap(), ClusterRows::default());
}

#[tokio::test]
async fn rows_of_newer_programs_are_counted_and_rows_without_sense_are_named() {
    let (rows, storage, _) = rows().await;
    beat(&rows, 1, 1, "a").await;
    let new = r#"{"kind":"move","app":7,"partition":3,"epoch":5,"to":"000000000000000000000000000000ab","why":"?"}"#;
    put(&storage, &layout::order(1, 0), new).await;
    put(&storage, &layout::pause(), r#"{"at":5,"by":"","paused":true,"until":6}"#).await;
    for (random, unknown) in (1..).zip([r#"{"kind":"explode"}"#, r#"{"kind":"merge","of":[1]}"#]) {
        put(&storage, &layout::order(1, random), unknown).await;
    }
    put(&storage, &[4, 1], "?").await;
    for (random, odd) in (10..).zip([
        "?",
        "{}",
        r#"{"kind":"move"}"#,
        r#"{"kind":"drain","member":"1"}"#,
        r#"{"kind":"drain","member":"+0000000000000000000000000000001"}"#,
    ]) {
        put(&storage, &layout::order(1, random), odd).await;
    }
    put(&storage, &layout::member(2), "1234567").await;
    put(&storage, &[1, 2], "12345678").await;
    let read = rows.read(SOON).await.unwrap();
    assert_eq!(read.members, [seen(1, 1, "a")]);
    let of_newer = OrderId { at: WallTime::from_nanos(1_000), random: 0 };
    assert_eq!(read.orders, [(of_newer, a_move())]);
    assert!(read.pause.is_some_and(|pause| pause.paused && pause.at.as_millis() == 5));
    assert_eq!(read.unknown, 3);
    let corrupt: Vec<String> = read.corrupt.iter().map(ToString::to_string).collect();
    assert_eq!(corrupt.len(), 7, "{corrupt:#?}");
    let text = "the member 00000000000000000000000000000002 \
                (key 0000000a/0100000000000000000000000000000002) has no heartbeat";
    assert!(corrupt.iter().any(|row| row.starts_with(text)), "{corrupt:#?}");
}
