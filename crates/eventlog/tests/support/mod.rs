//! A log in memory with the events of one workspace. All events write the same record.

#![allow(dead_code, reason = "each suite uses a part of it")]

use std::{num::NonZeroU16, sync::Arc};

use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use eventlog::{
    AppRow, DamagedRow, DrawnNumber, Entry, Epoch, Error, Event, EventPlace, LogSettings,
    LogWriter, Offset, PreparedEvent, Record, RecordChange, RecordId, SingleNodeFence, TableKind,
    TrustLevel, Version, WsId,
};
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, KeyspaceName, Order, OrderedPut, SharedStorage, StorageDriver, mem::MemDriver,
};

pub(crate) const LEVELS: [TrustLevel; 3] = [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two];
pub(crate) const PARTITION: u16 = 3;
pub(crate) const PARTITIONS: NonZeroU16 = NonZeroU16::new(4).unwrap();
pub(crate) const WS: WsId = WsId(7);

pub(crate) async fn storage() -> SharedStorage {
    let driver = MemDriver::new(Clock::system());
    let keyspace = KeyspaceName::new("shop").unwrap();
    driver.create(&keyspace, Instant::FAR_FUTURE).await.unwrap();
    driver.open(&keyspace, Instant::FAR_FUTURE).await.unwrap().unwrap()
}

pub(crate) fn log(storage: &SharedStorage, level: TrustLevel, epoch: u64) -> LogWriter {
    log_after_level_2(storage, level, epoch, 0)
}

/// Returns a log. Level 2 wrote its epochs below `stray_before`.
pub(crate) fn log_after_level_2(
    storage: &SharedStorage,
    level: TrustLevel,
    epoch: u64,
    stray_before: u64,
) -> LogWriter {
    let stray_before = Epoch(stray_before);
    let settings = LogSettings { level, stray_before, ..LogSettings::new(PARTITIONS) };
    let fence = Arc::new(SingleNodeFence(Epoch(epoch)));
    LogWriter::new(Arc::clone(storage), Clock::system(), fence, PARTITION, settings)
}

pub(crate) fn record(text: &str) -> Record {
    Record {
        table: "shop.Article".parse().unwrap(),
        kind: TableKind::CDoc,
        id: RecordId(322_685_000_131_072),
        parent: None,
        is_active: true,
        fields: [("name".parse().unwrap(), eventlog::Value::String(text.to_owned()))].into(),
    }
}

/// Returns the event at an offset. The offset is the same in both logs. The event writes the one
/// record.
pub(crate) fn event(epoch: u64, offset: u64, replaces: Option<(u64, u64)>) -> Event {
    let place =
        EventPlace { epoch: Epoch(epoch), plog: Offset(offset), ws: WS, wlog: Offset(offset) };
    let version = |(epoch, plog)| Version { epoch: Epoch(epoch), plog: Offset(plog) };
    let time = WallTime::from_millis(1_000 + offset);
    Event {
        request: format!("request {offset}"),
        changes: vec![RecordChange {
            replaces: replaces.map(version),
            record: record(&format!("of {epoch} {offset}")),
        }],
        drawn: vec![DrawnNumber { seq: 1, last: offset }],
        ..Event::new(place, time, "sys.CUD".parse().unwrap())
    }
}

/// Returns events from an offset on. Each event replaces the record of the event before.
pub(crate) fn events(
    epoch: u64,
    from: u64,
    count: u64,
    mut before: Option<(u64, u64)>,
) -> Vec<Event> {
    let next = |offset| event(epoch, offset, before.replace((epoch, offset)));
    (from..from + count).map(next).collect()
}

/// Writes the events as one group. The first event replaces the stored record.
pub(crate) async fn write(storage: &SharedStorage, log: &LogWriter, events: &[Event]) {
    let key = AppRow::Record(WS, RecordId(322_685_000_131_072)).key();
    let before = storage.get_batch(&[key], Instant::FAR_FUTURE).await.unwrap().remove(0);
    let group: Vec<_> =
        events.iter().map(|event| PreparedEvent::new(event, |_| before.clone())).collect();
    let outcome = log.write(&group).await;
    assert_eq!(outcome.committed, events.len());
    outcome.applied.unwrap();
    assert!(outcome.commit_error.is_none());
}

pub(crate) async fn replayed(log: &LogWriter, from: u64) -> Result<Vec<Event>, Error> {
    let entries: Vec<Entry> = log.replay(Offset(from)).try_collect().await?;
    let event = |entry| match entry {
        Entry::Event(event) => *event,
        other => panic!("{other:?}"),
    };
    Ok(entries.into_iter().map(event).collect())
}

pub(crate) fn broken(error: Error) -> DamagedRow {
    match error {
        Error::DamagedRow(broken) => broken,
        other => panic!("{other:?}"),
    }
}

/// Writes an event into the log of the partition only, as a leader that crashed afterwards.
pub(crate) async fn only_in_plog(storage: &SharedStorage, level: TrustLevel, event: &Event) {
    put(storage, level, AppRow::Plog(PARTITION, event.place.plog), event.place, event.to_bytes())
        .await;
}

pub(crate) async fn put(
    storage: &SharedStorage,
    level: TrustLevel,
    row: AppRow,
    place: EventPlace,
    value: Bytes,
) {
    let key = row.key();
    if level == TrustLevel::Two {
        let order = Order::from_parts(place.epoch.0, place.plog.0).unwrap();
        let put = OrderedPut { key, value, order, ttl: None };
        storage.put_ordered(vec![put], Instant::FAR_FUTURE).await.unwrap();
    } else {
        let inserted = storage.insert_if_not_exists(key, value, None, Instant::FAR_FUTURE).await;
        assert!(inserted.unwrap().is_applied());
    }
}
