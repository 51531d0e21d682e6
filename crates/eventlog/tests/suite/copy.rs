//! Copies of a log: the same bytes, and the same rows after a replay.

use bytes::Bytes;
use clock::Instant;
use eventlog::{
    AppRow, DamagedRow, Entry, Epoch, Error, LogCopier, LogWriter, Marker, Offset, Record,
    RecordChange, RecordId, StoredRecord, TrustLevel, Version,
};
use futures::TryStreamExt;
use istorage::{AppStorageExt, SharedStorage};

use crate::support::{
    LEVELS, PARTITION, WS, broken, event, events, log, only_in_plog, record, storage, write,
};

async fn entries(log: &LogWriter) -> Result<Vec<(Entry, Bytes)>, Error> {
    log.entries(Offset::FIRST).try_collect().await
}

async fn row(storage: &SharedStorage, row: AppRow) -> Option<Bytes> {
    storage.get_linearizable(&row.key(), Instant::FAR_FUTURE).await.unwrap()
}

fn record_row() -> AppRow {
    AppRow::Record(WS, record("").id)
}

/// The log has more entries than a call writes, in two storage partitions.
#[tokio::test]
async fn a_copy_has_the_same_bytes_and_rows() {
    for level in LEVELS {
        let (source, target) = (storage().await, storage().await);
        let all = [events(2, 1, 4_500, None), events(3, 4_501, 600, Some((2, 4_500)))].concat();
        for (epoch, from, to) in [(2, 0, 4_500), (3, 4_500, 5_100)] {
            for group in all[from..to].chunks(500) {
                write(&source, &log(&source, level, epoch), group).await;
            }
        }
        let read = entries(&log(&source, level, u64::MAX)).await.unwrap();
        assert_eq!(read.len(), 5_100);
        let copy = log(&target, level, 3);
        for group in read.chunks(2_000) {
            LogCopier::new(&copy).write_copies(group).await.unwrap();
        }
        assert_eq!(row(&target, record_row()).await, None, "a copy writes the log alone");
        assert!(entries(&log(&target, level, 4)).await.unwrap() == read);
        // The next leader applies the log, and goes on.
        let next = log(&target, level, 4);
        let replayed: Vec<Entry> = next.replay(Offset::FIRST).try_collect().await.unwrap();
        assert!(replayed.iter().eq(read.iter().map(|(entry, _)| entry)));
        for at in [record_row(), AppRow::Wlog(WS, Offset(5_100)), AppRow::Wlog(WS, Offset(1))] {
            assert_eq!(row(&target, at).await, row(&source, at).await, "{level:?} {at}");
        }
        write(&target, &next, &events(4, 5_101, 1, Some((3, 5_100)))).await;
    }
}

/// A log with a gap has lost an event, so its copy would lack that event, too. At level 2 a leader
/// that had lost its leadership may have left events past the end.
#[tokio::test]
async fn a_log_with_a_gap_is_not_copied() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 2), &events(2, 1, 3, None)).await;
        only_in_plog(&storage, level, &event(2, 5, Some((2, 3)))).await;
        let error = entries(&log(&storage, level, u64::MAX)).await.unwrap_err();
        let missing = DamagedRow::Missing(AppRow::Plog(PARTITION, Offset(4)));
        assert_eq!(broken(error), missing);
    }
    let storage = storage().await;
    write(&storage, &log(&storage, TrustLevel::Two, 2), &events(2, 1, 3, None)).await;
    only_in_plog(&storage, TrustLevel::Two, &event(1, 4, None)).await;
    assert_eq!(entries(&log(&storage, TrustLevel::Two, u64::MAX)).await.unwrap().len(), 3);
}

/// Event 2 was damaged after it was applied, and is marked. Its copy is whole, and two of its
/// records are in no event any more: one that it made, and one that event 1 had made. Event 3
/// replaced the third one.
#[tokio::test]
async fn the_rows_of_a_marked_event_are_copied() {
    for level in LEVELS {
        let (source, target) = (storage().await, storage().await);
        let id = |n| RecordId(record("").id.0 + n);
        let place = event(1, 2, None).place;
        let with = |offset, name: &str, n| {
            let version = Version { epoch: place.epoch, plog: Offset(offset) };
            let record = Record { id: id(n), ..record(name) };
            StoredRecord { ws: WS, version, record }
        };
        let mut all = events(1, 1, 3, None);
        let change = RecordChange { replaces: None, record: with(1, "older", 1).record };
        all[0].changes.push(change);
        write(&source, &log(&source, level, 1), &all).await;
        let (drawn, bytes) = (all[1].drawn.clone(), Bytes::from_static(b"damaged"));
        let marker = Marker { place, marked: Epoch(2), drawn, bytes };
        let [first, whole, last] = [0, 1, 2].map(|at| Entry::Event(Box::new(all[at].clone())));
        let copies = [first, Entry::Marker(marker), last].map(|entry| {
            let bytes = entry.to_bytes();
            (entry, bytes)
        });

        let copy = log(&target, level, 2);
        LogCopier::new(&copy).write_copies(&copies).await.unwrap();
        LogCopier::new(&copy).write_copy_of_marked(&whole, whole.to_bytes()).await.unwrap();
        let kept = [with(2, "made", 2), with(2, "changed", 1)];
        for kept in &kept {
            LogCopier::new(&copy).write_record_of_marked(kept, kept.to_bytes()).await.unwrap();
        }
        let next = log(&target, level, 3);
        let entries: Vec<Entry> = next.replay(Offset::FIRST).try_collect().await.unwrap();
        assert_eq!(entries.len(), 3);
        let beside = AppRow::Wlog(WS, Offset(2));
        assert_eq!(row(&target, beside).await, Some(whole.to_bytes()), "the copy stays");
        for kept in kept {
            let at = AppRow::Record(WS, kept.record.id);
            assert_eq!(row(&target, at).await, Some(kept.to_bytes()), "{level:?}");
        }
        assert_eq!(row(&target, record_row()).await, row(&source, record_row()).await);
    }
}
