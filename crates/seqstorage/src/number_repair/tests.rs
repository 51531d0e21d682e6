//! Numbers of events that are in the log of the partition, but not yet in that of the workspace.

use std::num::NonZeroU16;

use clock::{Clock, Instant, WallTime};
use eventlog::{
    DrawnNumber, Epoch, Event, EventPlace, LogSettings, LogWriter, Marker, SingleNodeFence,
    TrustLevel,
};
use istorage::{
    AppStorageExt, KeyspaceName, Order, OrderedPut, SharedStorage, StorageDriver, mem::MemDriver,
};

use super::*;

const PARTITION: u16 = 3;
const WS: WsId = WsId(7);
const SOON: Instant = Instant::FAR_FUTURE;
const DAMAGED: Bytes = Bytes::from_static(b"damaged");

/// A sequence of the application.
const TICKETS: SeqId = SeqId(256);

/// A leader in epoch 5. Level 2 wrote the epochs before 4.
async fn partition() -> (SharedStorage, PartitionStorage) {
    let driver = MemDriver::new(Clock::system());
    let keyspace = KeyspaceName::new("shop").unwrap();
    driver.create(&keyspace, SOON).await.unwrap();
    let storage = driver.open(&keyspace, SOON).await.unwrap().unwrap();
    let settings = LogSettings {
        level: TrustLevel::Zero,
        stray_before: Epoch(4),
        ..LogSettings::new(NonZeroU16::new(4).unwrap())
    };
    let fence = std::sync::Arc::new(SingleNodeFence(Epoch(5)));
    let log =
        LogWriter::new(SharedStorage::clone(&storage), Clock::system(), fence, PARTITION, settings);
    (storage, PartitionStorage::in_view(log.into()))
}

/// The event at an offset of both logs. It drew ten numbers of a sequence.
fn event(epoch: u64, offset: u64) -> Event {
    event_of(WS, epoch, offset, offset)
}

fn event_of(ws: WsId, epoch: u64, plog: u64, wlog: u64) -> Event {
    let place = EventPlace { epoch: Epoch(epoch), plog: Offset(plog), ws, wlog: Offset(wlog) };
    let drawn = |SeqId(seq), last| DrawnNumber { seq, last };
    let time = WallTime::from_millis(1_000 + plog);
    Event {
        drawn: vec![drawn(standard::WLOG_OFFSET, wlog), drawn(TICKETS, 10 * wlog)],
        ..Event::new(place, time, "sys.CUD".parse().unwrap())
    }
}

fn place(SeqId(seq): SeqId) -> NumberPlace {
    NumberPlace::Last { ws: WS.0, seq }
}

/// Damages the row of a number.
async fn damage(storage: &SharedStorage, partition: &PartitionStorage, place: NumberPlace) {
    insert(storage, partition.numbers.key(PARTITION, place), DAMAGED).await;
}

async fn insert(storage: &SharedStorage, key: Key, value: Bytes) {
    assert!(storage.insert_if_not_exists(key, value, None, SOON).await.unwrap().is_applied());
}

async fn in_plog(storage: &SharedStorage, event: &Event) {
    insert(storage, AppRow::Plog(PARTITION, event.place.plog).key(), event.to_bytes()).await;
}

async fn in_wlog(storage: &SharedStorage, event: &Event) {
    insert(storage, AppRow::Wlog(event.place.ws, event.place.wlog).key(), event.to_bytes()).await;
}

async fn planned(partition: &PartitionStorage, seq: SeqId) -> u64 {
    partition.plan_number(place(seq), None, &[]).await.unwrap().number()
}

async fn refused(partition: &PartitionStorage, seq: SeqId, number: u64) -> NumberRepairError {
    partition.plan_number(place(seq), Some(number), &[]).await.unwrap_err()
}

/// A leader crashed after its write of event 3 into the log of the partition, and the next leader
/// met the damaged number before it applied the event. The safe number was that of event 2, and the
/// right one was refused.
#[tokio::test]
async fn an_event_that_is_not_applied_yet_counts() {
    for (stored, is_damaged) in [(None, false), (Some(3), false), (None, true)] {
        let (storage, partition) = partition().await;
        for offset in [1, 2] {
            in_plog(&storage, &event(4, offset)).await;
            in_wlog(&storage, &event(4, offset)).await;
        }
        in_plog(&storage, &event(4, 3)).await;
        // An event of another workspace comes after it.
        in_plog(&storage, &event_of(WsId(11), 4, 4, 9)).await;
        if let Some(next) = stored {
            let offset = StoredOffset { partition: PARTITION, epoch: 4, next };
            partition.numbers.store(&[], offset, async || Ok(SOON)).await.unwrap();
        } else if is_damaged {
            damage(&storage, &partition, NumberPlace::Offset).await;
        }
        for seq in [standard::WLOG_OFFSET, TICKETS] {
            damage(&storage, &partition, place(seq)).await;
        }
        let what = format!("stored offset {stored:?}, damaged: {is_damaged}");
        let offset = place(standard::WLOG_OFFSET);
        let given = partition.plan_number(offset, Some(3), &[]).await;
        assert!(given.is_ok(), "the right offset is refused: {given:?}, {what}");
        assert_eq!(planned(&partition, standard::WLOG_OFFSET).await, 3, "{what}");
        let low = refused(&partition, standard::WLOG_OFFSET, 2).await;
        assert!(matches!(low, NumberRepairError::NotLastEvent { last: 3 }), "{low:?}, {what}");
        let plan = partition.plan_number(offset, None, &[]).await.unwrap();
        partition.repair_number(&plan).await.unwrap();
        assert_eq!(planned(&partition, TICKETS).await, 30, "{what}");
        let low = refused(&partition, TICKETS, 29).await;
        assert!(matches!(low, NumberRepairError::TooLow { known: 30, .. }), "{low:?}, {what}");
    }
}

/// An operator marked event 2 without the number that it drew, and no leader has applied the marker
/// yet. Event 3 is in neither log, and event 4 is in that of the partition.
#[tokio::test]
async fn a_marker_that_is_not_applied_yet_tells_nothing() {
    let (storage, partition) = partition().await;
    in_plog(&storage, &event(4, 1)).await;
    in_wlog(&storage, &event(4, 1)).await;
    let marker = Marker {
        place: event(4, 2).place,
        marked: Epoch(4),
        drawn: vec![DrawnNumber { seq: standard::WLOG_OFFSET.0, last: 2 }],
        bytes: DAMAGED,
    };
    let key = AppRow::Plog(PARTITION, Offset(2)).key();
    insert(&storage, key, Entry::Marker(marker).to_bytes()).await;
    damage(&storage, &partition, place(TICKETS)).await;
    assert_eq!(planned(&partition, TICKETS).await, 10 + MOST_RECORDS);
    in_plog(&storage, &event_of(WS, 4, 3, 4)).await;
    assert_eq!(planned(&partition, TICKETS).await, 40 + 2 * MOST_RECORDS);
}

/// The next event of the workspace takes the place of a stray. An offset above it would leave a
/// hole in the log of the workspace.
#[tokio::test]
async fn a_stray_of_the_log_of_the_partition_does_not_count() {
    let (storage, partition) = partition().await;
    in_plog(&storage, &event(3, 1)).await;
    in_wlog(&storage, &event(3, 1)).await;
    let stray = event(2, 2);
    let (key, value) = (AppRow::Plog(PARTITION, Offset(2)).key(), stray.to_bytes());
    let put = OrderedPut { key, value, order: Order::from_parts(2, 2).unwrap(), ttl: None };
    storage.put_ordered(vec![put], SOON).await.unwrap();
    damage(&storage, &partition, place(standard::WLOG_OFFSET)).await;
    assert_eq!(planned(&partition, standard::WLOG_OFFSET).await, 1);
}

/// Marking the event needs the number. So a refusal until the event is marked would be a deadlock.
#[tokio::test]
async fn an_event_that_cannot_be_read_does_not_keep_a_number_from_its_repair() {
    let (storage, partition) = partition().await;
    in_plog(&storage, &event(4, 1)).await;
    in_wlog(&storage, &event(4, 1)).await;
    insert(&storage, AppRow::Plog(PARTITION, Offset(2)).key(), DAMAGED).await;
    damage(&storage, &partition, place(standard::WLOG_OFFSET)).await;
    let marker = async || {
        let none = Some(Vec::new());
        partition.plan_marker(Offset(2), WS, Offset(2), none, false, &[]).await
    };
    let early = marker().await.unwrap_err();
    assert!(matches!(early, crate::MarkError::Numbers(_)), "{early:?}");
    let plan = partition.plan_number(place(standard::WLOG_OFFSET), None, &[]).await.unwrap();
    assert_eq!(plan.number(), 1);
    partition.repair_number(&plan).await.unwrap();
    marker().await.unwrap();
}
