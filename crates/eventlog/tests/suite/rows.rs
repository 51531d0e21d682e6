//! Rows that hold the bytes of other rows, and rows that are missing. A reader returns only the row
//! that was asked for.

use bytes::Bytes;
use clock::Instant;
use eventlog::{
    AppRow, DamagedRow, Epoch, Error, Idempotency, Offset, PreparedEvent, RecordId, StoredAnswer,
    StoredRecord, TrustLevel, Version, WsId,
};
use futures::TryStreamExt;
use istorage::AppStorageExt;

use crate::support::{
    LEVELS, PARTITION, WS, broken, event, events, log, only_in_plog, put, record, replayed,
    storage, write,
};

/// A workspace of another partition.
const ELSEWHERE: WsId = WsId(WS.0 + 1);

/// The bytes of record A were in the row of record B. At level 0 a command that changed B stopped
/// the partition, with a violation of A. At level 1 the command overwrote A, and no error was
/// reported.
#[tokio::test]
async fn a_record_in_the_row_of_another_is_not_read() {
    let storage = storage().await;
    let (a, b) = (record("").id, RecordId(record("").id.0 + 1));
    let version = Version { epoch: Epoch(1), plog: Offset(1) };
    let stored = StoredRecord { ws: WS, version, record: record("a") };
    let place = event(1, 1, None).place;
    let rows = [AppRow::Record(WS, a), AppRow::Record(WS, b), AppRow::Record(ELSEWHERE, a)];
    for row in rows {
        put(&storage, TrustLevel::Zero, row, place, stored.to_bytes()).await;
    }
    let log = log(&storage, TrustLevel::Zero, 2);
    let reader = log.reader();
    assert_eq!(reader.record(WS, a).await.unwrap(), Some(stored.clone()));
    for (row, ws, id) in [(rows[1], WS, b), (rows[2], ELSEWHERE, a)] {
        let misplaced = DamagedRow::Misplaced { row, named: rows[0] };
        assert_eq!(broken(reader.record(ws, id).await.unwrap_err()), misplaced);
        let error = reader.records(ws, id, id).try_next().await.unwrap_err();
        assert_eq!(broken(error), misplaced);
    }
}

/// The sender of one command would have got the answer to another command, and its own command
/// would never have been done.
#[tokio::test]
async fn an_answer_in_the_row_of_another_is_not_read() {
    let storage = storage().await;
    let (key, other) = ([1; 32], [2; 32]);
    let place = event(1, 1, None).place;
    let answer = StoredAnswer { place, key, body: [3; 32], answer: Bytes::new() };
    let rows = [AppRow::Answer(WS, key), AppRow::Answer(WS, other), AppRow::Answer(ELSEWHERE, key)];
    for row in rows {
        put(&storage, TrustLevel::Two, row, place, answer.to_bytes()).await;
    }
    let log = log(&storage, TrustLevel::Zero, 2);
    let read = async |row: AppRow| row.answer(&log.reader().row(row).await.unwrap().unwrap());
    assert_eq!(read(rows[0]).await, Ok(answer));
    for row in [rows[1], rows[2]] {
        assert_eq!(read(row).await, Err(DamagedRow::Misplaced { row, named: rows[0] }));
    }
}

/// The answer that an event writes is read back from its row.
#[tokio::test]
async fn an_answer_is_read_under_the_key_of_its_command() {
    let storage = storage().await;
    let log = log(&storage, TrustLevel::Zero, 1);
    let mut event = event(1, 1, None);
    event.time = log.clock().wall();
    event.idempotency =
        Some(Idempotency { key: [4; 32], body: [5; 32], answer: Bytes::from_static(b"done") });
    write(&storage, &log, &[event]).await;
    let row = AppRow::Answer(WS, [4; 32]);
    let answer = row.answer(&log.reader().row(row).await.unwrap().unwrap()).unwrap();
    assert_eq!((answer.key, answer.answer), ([4; 32], Bytes::from_static(b"done")));
}

/// The log of a partition contained an event of another partition. The replay applied that event,
/// and the partition's own event was lost.
#[tokio::test]
async fn an_event_of_another_partition_is_refused() {
    for level in LEVELS {
        let storage = storage().await;
        let mut other = event(1, 1, None);
        other.place.ws = ELSEWHERE;
        only_in_plog(&storage, level, &other).await;
        let named = AppRow::Plog(0, Offset(1));
        let row = AppRow::Plog(PARTITION, Offset(1));
        let leader = log(&storage, level, 2);
        let misplaced = DamagedRow::Misplaced { row, named };
        assert_eq!(broken(replayed(&leader, 1).await.unwrap_err()), misplaced);
        let error = leader.reader().plog(PARTITION, Offset(1), None).try_next().await.unwrap_err();
        assert_eq!(broken(error), misplaced);
    }
}

/// The log would accept the event, and could never be read again.
#[tokio::test]
async fn an_event_of_another_partition_is_not_written() {
    let storage = storage().await;
    let mut other = event(1, 1, None);
    other.place.ws = ELSEWHERE;
    let group = [PreparedEvent::new(&other, |_| None)];
    let outcome = log(&storage, TrustLevel::Zero, 1).write(&group).await;
    assert!(matches!(outcome.commit_error, Some(Error::Storage(_))), "{outcome:?}");
    assert_eq!(outcome.committed, 0);
}

/// One bit was wrong in the storage. A log of 1,502 events was read as if it ended after the 483rd.
#[tokio::test]
async fn a_log_that_ends_before_its_known_end_is_reported() {
    for level in LEVELS {
        // The missing event is in the middle, at the end of a storage partition, at its beginning,
        // or at the end of the log.
        let far = [(4_095, 4_100), (4_096, 4_100), (4_100, 4_100)];
        // The levels differ in how rows are written, not in the keys of rows. So one level is
        // enough here.
        let far = if level == TrustLevel::Zero { &far[..] } else { &[] };
        for (missing, count) in [(3, 5), (5, 5), (1, 1)].iter().chain(far).copied() {
            let storage = storage().await;
            let leader = log(&storage, level, 1);
            for group in events(1, 1, count, None).chunks(1_000) {
                write(&storage, &leader, group).await;
            }
            let rows =
                [AppRow::Plog(PARTITION, Offset(missing)), AppRow::Wlog(WS, Offset(missing))];
            for row in rows {
                // Rows of level 2 cannot be deleted, so the test loses them in another way.
                if level != TrustLevel::Two {
                    let key = row.key();
                    let far = Instant::FAR_FUTURE;
                    let there = storage.get_linearizable(&key, far).await.unwrap().unwrap();
                    let gone = storage.compare_and_delete(key, there, far).await.unwrap();
                    assert!(gone.is_applied());
                }
            }
            let reader = leader.reader();
            let read = async |row, known: u64| {
                let known = Some(Offset(known));
                let mut entries = match row {
                    AppRow::Plog(partition, _) => reader.plog(partition, Offset(1), known),
                    _ => reader.wlog(WS, Offset(1), known),
                };
                let mut read = 0;
                loop {
                    match entries.try_next().await {
                        Ok(Some(_)) => read += 1,
                        Ok(None) => return (read, None),
                        Err(error) => return (read, Some(broken(error))),
                    }
                }
            };
            for row in rows {
                if level == TrustLevel::Two {
                    assert_eq!(read(row, count).await, (count, None), "nothing is missing");
                    let beyond = match row {
                        AppRow::Plog(partition, _) => AppRow::Plog(partition, Offset(count + 1)),
                        _ => AppRow::Wlog(WS, Offset(count + 1)),
                    };
                    assert_eq!(
                        read(row, count + 1).await,
                        (count, Some(DamagedRow::Missing(beyond)))
                    );
                } else {
                    assert_eq!(
                        read(row, count).await,
                        (missing - 1, Some(DamagedRow::Missing(row)))
                    );
                    assert_eq!(read(row, missing - 1).await, (missing - 1, None));
                }
            }
        }
    }
}

/// A reader of one workspace does not get an event of another workspace.
#[tokio::test]
async fn an_event_of_another_workspace_is_refused() {
    let storage = storage().await;
    let mut other = event(1, 1, None);
    other.place.ws = WsId(8);
    let row = AppRow::Wlog(WS, Offset(1));
    put(&storage, TrustLevel::Zero, row, other.place, other.to_bytes()).await;
    let reader = log(&storage, TrustLevel::Zero, 1);
    let error = reader.reader().wlog(WS, Offset(1), None).try_next().await.unwrap_err();
    assert!(matches!(broken(error), DamagedRow::Misplaced { .. }));
}
