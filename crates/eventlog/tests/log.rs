//! Logs that are written, and read on by the next leader: as they should be, and as they should not.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use eventlog::{
    Alone, Broken, Change, Corrupted, Drawn, Entry, Epoch, Error, Event, Log, Offset, Place,
    Prepared, Record, RecordId, Row, Settings, TableKind, TrustLevel, Version, WsId,
};
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, KeyspaceName, Order, OrderedPut, SharedStorage, StorageDriver, mem::MemDriver,
};

const LEVELS: [TrustLevel; 3] = [TrustLevel::Zero, TrustLevel::One, TrustLevel::Two];
const WS: WsId = WsId(7);
const PARTITION: u16 = 3;

async fn storage() -> SharedStorage {
    let driver = MemDriver::new(Clock::system());
    let keyspace = KeyspaceName::new("shop").unwrap();
    driver.create(&keyspace, Instant::FAR_FUTURE).await.unwrap();
    driver.open(&keyspace, Instant::FAR_FUTURE).await.unwrap().unwrap()
}

fn log(storage: &SharedStorage, level: TrustLevel, epoch: u64) -> Log {
    let settings = Settings { level, ..Settings::default() };
    let lead = Arc::new(Alone(Epoch(epoch)));
    Log::new(Arc::clone(storage), Clock::system(), lead, PARTITION, settings)
}

fn record(text: &str) -> Record {
    Record {
        table: "shop.Article".parse().unwrap(),
        kind: TableKind::CDoc,
        id: RecordId(322_685_000_131_072),
        parent: None,
        is_active: true,
        fields: [("name".parse().unwrap(), eventlog::Value::String(text.to_owned()))].into(),
    }
}

/// The event at an offset, which is the same in both logs, and which writes the one record.
fn event(epoch: u64, offset: u64, replaces: Option<(u64, u64)>) -> Event {
    let place = Place { epoch: Epoch(epoch), plog: Offset(offset), ws: WS, wlog: Offset(offset) };
    let version = |(epoch, plog)| Version { epoch: Epoch(epoch), plog: Offset(plog) };
    Event {
        place,
        time: WallTime::from_millis(1_000 + offset),
        request: format!("request {offset}"),
        idempotency: None,
        command: "sys.CUD".parse().unwrap(),
        params: Bytes::new(),
        changes: vec![Change {
            replaces: replaces.map(version),
            record: record(&format!("of {epoch} {offset}")),
        }],
        drawn: vec![Drawn { seq: 1, last: offset }],
    }
}

/// Events from an offset on, each of which replaces what the one before wrote.
fn events(epoch: u64, from: u64, count: u64, mut before: Option<(u64, u64)>) -> Vec<Event> {
    let next = |offset| event(epoch, offset, before.replace((epoch, offset)));
    (from..from + count).map(next).collect()
}

/// Writes them as one group. The first replaces what is stored.
async fn write(storage: &SharedStorage, log: &Log, events: &[Event]) {
    let key = Row::Record(WS, RecordId(322_685_000_131_072)).key();
    let before = storage.get_linearizable(&key, Instant::FAR_FUTURE).await.unwrap();
    let group: Vec<_> =
        events.iter().map(|event| Prepared::new(event, |_| before.clone())).collect();
    let fate = log.write(&group).await;
    assert_eq!(fate.committed, events.len());
    fate.applied.unwrap();
    assert!(fate.others.is_none());
}

async fn replayed(log: &Log, from: u64) -> Result<Vec<Event>, Error> {
    let entries: Vec<Entry> = log.replay(Offset(from)).try_collect().await?;
    let event = |entry| match entry {
        Entry::Event(event) => *event,
        Entry::Corrupted(corrupted) => panic!("{corrupted:?}"),
    };
    Ok(entries.into_iter().map(event).collect())
}

fn broken(error: Error) -> Broken {
    match error {
        Error::Broken(broken) => broken,
        other => panic!("{other:?}"),
    }
}

/// Writes an event into the log of the partition, and nowhere else, as a leader that crashed.
async fn only_in_plog(storage: &SharedStorage, level: TrustLevel, event: &Event) {
    put(storage, level, Row::Plog(PARTITION, event.place.plog), event.place, event.to_bytes())
        .await;
}

async fn put(storage: &SharedStorage, level: TrustLevel, row: Row, place: Place, value: Bytes) {
    let key = row.key();
    if level == TrustLevel::Two {
        let order = Order::of_two(place.epoch.0, place.plog.0).unwrap();
        let put = OrderedPut { key, value, order, ttl: None };
        storage.put_ordered(vec![put], Instant::FAR_FUTURE).await.unwrap();
    } else {
        let inserted = storage.insert_if_not_exists(key, value, None, Instant::FAR_FUTURE).await;
        assert!(inserted.unwrap().is_applied());
    }
}

#[tokio::test]
async fn what_one_leader_wrote_the_next_reads_on_from_anywhere() {
    for level in LEVELS {
        let storage = storage().await;
        // Over the end of a partition of the storage.
        let all = events(1, 1, 4_100, None);
        for group in all.chunks(1_000) {
            write(&storage, &log(&storage, level, 1), group).await;
        }
        let next = log(&storage, level, 2);
        for from in [1, 2, 4_000, 4_095, 4_096, 4_097, 4_100, 4_101] {
            let found = replayed(&next, from).await.unwrap();
            assert!(found == all[from as usize - 1..], "from {from}");
            let tail = next.tail();
            assert_eq!((tail.next, tail.epoch), (Offset(4_101), Epoch(1)));
            assert_eq!(tail.time, WallTime::from_millis(5_100));
        }
    }
}

#[tokio::test]
async fn what_a_leader_did_not_apply_the_next_one_does() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
        // One was made, and changed twice, and nothing of the last two was applied.
        let lost = events(1, 3, 2, Some((1, 2)));
        for event in &lost {
            only_in_plog(&storage, level, event).await;
        }
        let next = log(&storage, level, 2);
        // From before the last that is applied, as the stored offset may be behind.
        assert_eq!(replayed(&next, 2).await.unwrap().len(), 3);
        for event in &lost {
            let wlog = next.reader().wlog(WS, event.place.wlog);
            let found: Vec<Entry> = wlog.try_collect().await.unwrap();
            assert_eq!(found[0], Entry::Event(Box::new(event.clone())));
        }
        let id = RecordId(322_685_000_131_072);
        let found = next.reader().record(WS, id).await.unwrap().unwrap();
        assert_eq!((found.version.plog, found.record), (Offset(4), record("of 1 4")));
        // Again, and nothing changes.
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 4);
        let again = next.reader().record(WS, id).await.unwrap().unwrap();
        assert_eq!(again.record, record("of 1 4"));
    }
}

/// A record that was made and changed in the tail, of which only the first was applied: the new leader applies both together, and must not
/// take the record for one that somebody else made.
#[tokio::test]
async fn a_record_that_is_half_way_is_brought_to_its_end() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
        only_in_plog(&storage, level, &event(1, 2, Some((1, 1)))).await;
        let next = log(&storage, level, 2);
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        let found = next.reader().record(WS, record("").id).await.unwrap().unwrap();
        assert_eq!(found.record, record("of 1 2"));
    }
}

#[tokio::test]
async fn events_behind_one_that_is_missing_stop_it() {
    for level in LEVELS {
        // In the same partition of the storage, and in the next.
        for there in [4, 4_096] {
            let storage = storage().await;
            write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
            only_in_plog(&storage, level, &event(1, there, None)).await;
            let error = replayed(&log(&storage, level, 2), 1).await.unwrap_err();
            assert_eq!(broken(error), Broken::Missing(Row::Plog(PARTITION, Offset(3))));
        }
        let storage = storage().await;
        let error = replayed(&log(&storage, level, 2), 5).await.unwrap_err();
        let missing = Broken::Missing(Row::Plog(PARTITION, Offset(4)));
        assert_eq!(broken(error), missing, "what is stored of it says that it was there");
    }
}

#[tokio::test]
async fn an_event_of_an_earlier_leader_behind_a_later_one_is_never_taken() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
        write(&storage, &log(&storage, level, 3), &events(3, 2, 1, Some((1, 1)))).await;
        only_in_plog(&storage, level, &event(2, 3, None)).await;
        only_in_plog(&storage, level, &event(2, 5, None)).await;
        let next = log(&storage, level, 4);
        let replayed = replayed(&next, 1).await;
        if level == TrustLevel::Two {
            assert_eq!(replayed.unwrap().len(), 2, "there it counts as absent");
            write(&storage, &next, &events(4, 3, 1, Some((3, 2)))).await;
            let plog: Vec<Entry> =
                next.reader().plog(PARTITION, Offset(3)).try_collect().await.unwrap();
            assert_eq!(plog[0].place().epoch, Epoch(4), "and is replaced");
        } else {
            let row = Row::Plog(PARTITION, Offset(3));
            let fell = Broken::EpochFell { row, epoch: 2, before: 3 };
            assert_eq!(broken(replayed.unwrap_err()), fell);
        }
    }
}

#[tokio::test]
async fn a_leader_that_finds_an_event_of_a_later_one_leads_no_more() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 5), &events(5, 1, 1, None)).await;
        // Also if all that the later one wrote lies in front of the stored offset: a leader stood still before it read that, took itself for
        // the last, and wrote behind events of a later epoch. Nobody could read that log any more.
        for from in [1, 2] {
            let late = log(&storage, level, 4);
            let error = replayed(&late, from).await.unwrap_err();
            assert!(matches!(error, Error::LeadLost(_)), "{error:?}");
            assert!(late.lost().is_some() && !late.may_answer());
            let fate = late.write(&[Prepared::new(&event(4, 2, None), |_| None)]).await;
            assert!(matches!(fate.others, Some(Error::LeadLost(_))), "{fate:?}");
        }
    }
}

/// What stands where the next event is to be written says what to do.
#[tokio::test]
async fn an_event_that_stands_in_the_way_is_left_as_it_is() {
    for level in [TrustLevel::Zero, TrustLevel::One] {
        for (there, expected) in [(4, "overtaken"), (6, "lost"), (5, "violation")] {
            let storage = storage().await;
            let ours = log(&storage, level, 5);
            let theirs = event(there, 1, None);
            only_in_plog(&storage, level, &theirs).await;
            let mut other = event(5, 1, None);
            other.request = "another".to_owned();
            let fate = ours.write(&[Prepared::new(&other, |_| None)]).await;
            assert_eq!(fate.committed, 0);
            let found = match fate.others.unwrap() {
                Error::Overtaken(_) => "overtaken",
                Error::LeadLost(_) => "lost",
                Error::Violation(violation) => {
                    assert!(ours.is_still(&violation).await.unwrap());
                    "violation"
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected);
            let key = Row::Plog(PARTITION, Offset(1)).key();
            let left = storage.get_linearizable(&key, Instant::FAR_FUTURE).await.unwrap();
            assert_eq!(left, Some(theirs.to_bytes()));
        }
    }
}

/// An operator marks it, and the log is read on. Its copy in the log of the workspace says what it drew.
#[tokio::test]
async fn an_event_that_cannot_be_read_is_marked_and_passed() {
    for level in LEVELS {
        for has_copy in [true, false] {
            let storage = storage().await;
            write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
            let lost = event(1, 3, Some((1, 2)));
            let damage = Bytes::from_static(b"damaged");
            put(&storage, level, Row::Plog(PARTITION, Offset(3)), lost.place, damage.clone()).await;
            if has_copy {
                put(&storage, level, Row::Wlog(WS, Offset(3)), lost.place, lost.to_bytes()).await;
            }
            only_in_plog(&storage, level, &event(1, 4, Some((1, 2)))).await;
            let next = log(&storage, level, 2);
            let error = replayed(&next, 1).await.unwrap_err();
            assert!(matches!(broken(error), Broken::Unreadable { .. }));
            assert!(next.damaged(Offset(2), WS, Offset(2)).await.unwrap().is_none());
            let damaged = next.damaged(Offset(3), WS, Offset(3)).await.unwrap().unwrap();
            let drawn = vec![Drawn { seq: 1, last: 3 }];
            assert_eq!(damaged.drawn(), has_copy.then_some(&drawn[..]));
            next.mark(&damaged, drawn.clone()).await.unwrap();
            let entries: Vec<Entry> = next.replay(Offset(1)).try_collect().await.unwrap();
            let marker = Corrupted { place: lost.place, marked: Epoch(2), drawn, bytes: damage };
            assert_eq!(entries[2], Entry::Corrupted(marker.clone()));
            assert_eq!(entries.len(), 4);
            let wlog: Vec<Entry> = next.reader().wlog(WS, Offset(3)).try_collect().await.unwrap();
            let whole = Entry::Event(Box::new(lost));
            assert_eq!(wlog[0], if has_copy { whole } else { Entry::Corrupted(marker) });
            // Whoever leads then reads the same.
            let after = log(&storage, level, 3).replay(Offset(2)).try_collect::<Vec<_>>().await;
            assert_eq!(after.unwrap(), entries[1..]);
        }
    }
}

/// What is read before an event that cannot be is applied before anybody is told: whoever marks it reads what is in front of it.
#[tokio::test]
async fn what_is_in_front_of_an_event_that_cannot_be_read_is_applied() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
        let lost = event(1, 2, Some((1, 1)));
        only_in_plog(&storage, level, &lost).await;
        let broken = event(1, 3, Some((1, 2)));
        let row = Row::Plog(PARTITION, Offset(3));
        put(&storage, level, row, broken.place, Bytes::from_static(b"damaged")).await;
        let next = log(&storage, level, 2);
        replayed(&next, 1).await.unwrap_err();
        let wlog: Vec<Entry> = next.reader().wlog(WS, Offset(2)).try_collect().await.unwrap();
        assert_eq!(wlog, [Entry::Event(Box::new(lost))]);
    }
}

/// What was damaged is not that any more.
#[tokio::test]
async fn what_changed_since_it_was_looked_at_is_not_marked() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
        let (row, place) = (Row::Plog(PARTITION, Offset(2)), event(1, 2, None).place);
        put(&storage, level, row, place, Bytes::from_static(b"damaged")).await;
        let next = log(&storage, level, 3);
        let damaged = next.damaged(Offset(2), WS, Offset(2)).await.unwrap().unwrap();
        let mended = event(2, 2, Some((1, 1)));
        if level == TrustLevel::Two {
            put(&storage, level, row, mended.place, mended.to_bytes()).await;
        } else {
            let (key, far) = (row.key(), Instant::FAR_FUTURE);
            let old = Bytes::from_static(b"damaged");
            let swap = storage.compare_and_swap(key, old, mended.to_bytes(), None, far).await;
            assert!(swap.unwrap().is_applied());
        }
        let error = next.mark(&damaged, Vec::new()).await.unwrap_err();
        assert!(matches!(error, Error::Violation(_)), "{error:?}");
        let left = storage.get_linearizable(&row.key(), Instant::FAR_FUTURE).await.unwrap();
        assert_eq!(left, Some(mended.to_bytes()));
    }
}

/// A reader is not told of what is another workspace's.
#[tokio::test]
async fn an_event_of_another_workspace_is_not_read_as_one_of_this() {
    let storage = storage().await;
    let mut other = event(1, 1, None);
    other.place.ws = WsId(8);
    let row = Row::Wlog(WS, Offset(1));
    put(&storage, TrustLevel::Zero, row, other.place, other.to_bytes()).await;
    let reader = log(&storage, TrustLevel::Zero, 1);
    let error = reader.reader().wlog(WS, Offset(1)).try_next().await.unwrap_err();
    assert!(matches!(broken(error), Broken::Misplaced { .. }));
}
