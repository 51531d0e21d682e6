//! Logs that a leader writes and the next leader reads, with and without damage.

use bytes::Bytes;
use clock::{Instant, WallTime};
use eventlog::{
    AppRow, DamagedRow, Entry, Epoch, Error, Offset, PreparedEvent, RecordId, TrustLevel,
};
use futures::TryStreamExt;
use istorage::AppStorageExt;

use crate::support::{
    LEVELS, PARTITION, WS, broken, event, events, log, only_in_plog, put, record, replayed,
    storage, write,
};

#[tokio::test]
async fn the_next_leader_reads_the_log_from_any_offset() {
    for level in LEVELS {
        let storage = storage().await;
        // The events reach beyond the end of a storage partition.
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

/// The event at the last order of a write was written. The offset after it had no order, so it
/// could not be stored, and no later leader could read the log to its end.
#[tokio::test]
async fn no_event_is_behind_the_last_offset() {
    for level in LEVELS {
        let log = log(&storage().await, level, 1);
        for (offset, is_written) in [(Offset::LAST, true), (Offset::LAST.next(), false)] {
            let entry = log.fencing_entry(offset, log.tail().time);
            let outcome = log.write(&[entry]).await;
            assert_eq!(outcome.commit_error.is_none(), is_written, "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn the_next_leader_applies_unapplied_events() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
        // One record was made and changed twice. The last two events were not applied.
        let lost = events(1, 3, 2, Some((1, 2)));
        for event in &lost {
            only_in_plog(&storage, level, event).await;
        }
        let next = log(&storage, level, 2);
        // The replay begins before the last event that is applied, because the stored offset may be
        // behind.
        assert_eq!(replayed(&next, 2).await.unwrap().len(), 3);
        for event in &lost {
            let wlog = next.reader().wlog(WS, event.place.wlog, None);
            let found: Vec<Entry> = wlog.try_collect().await.unwrap();
            assert_eq!(found[0], Entry::Event(Box::new(event.clone())));
        }
        let id = RecordId(322_685_000_131_072);
        let found = next.reader().record(WS, id).await.unwrap().unwrap();
        assert_eq!((found.version.plog, found.record), (Offset(4), record("of 1 4")));
        // A second replay changes nothing.
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 4);
        let again = next.reader().record(WS, id).await.unwrap().unwrap();
        assert_eq!(again.record, record("of 1 4"));
    }
}

/// A record was made and changed in the tail, and only its first event was applied. The new leader
/// applies both events together. It must not take the record for a foreign one.
#[tokio::test]
async fn a_partly_applied_record_is_completed() {
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
async fn events_behind_a_missing_event_stop_the_replay() {
    for level in LEVELS {
        // The event is in the same storage partition, or in the next one.
        for there in [4, 4_096] {
            let storage = storage().await;
            write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
            only_in_plog(&storage, level, &event(1, there, None)).await;
            let error = replayed(&log(&storage, level, 2), 1).await.unwrap_err();
            assert_eq!(broken(error), DamagedRow::Missing(AppRow::Plog(PARTITION, Offset(3))));
        }
        let storage = storage().await;
        let error = replayed(&log(&storage, level, 2), 5).await.unwrap_err();
        let missing = DamagedRow::Missing(AppRow::Plog(PARTITION, Offset(4)));
        assert_eq!(
            broken(error),
            missing,
            "an offset after the first one proves that event 4 existed"
        );
    }
}

#[tokio::test]
async fn an_event_of_an_earlier_leader_behind_a_later_epoch_is_not_accepted() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
        write(&storage, &log(&storage, level, 3), &events(3, 2, 1, Some((1, 1)))).await;
        only_in_plog(&storage, level, &event(2, 3, None)).await;
        only_in_plog(&storage, level, &event(2, 5, None)).await;
        let next = log(&storage, level, 4);
        let replayed = replayed(&next, 1).await;
        if level == TrustLevel::Two {
            assert_eq!(
                replayed.unwrap().len(),
                2,
                "the event of the earlier leader counts as absent"
            );
            write(&storage, &next, &events(4, 3, 1, Some((3, 2)))).await;
            let plog: Vec<Entry> =
                next.reader().plog(PARTITION, Offset(3), None).try_collect().await.unwrap();
            assert_eq!(
                plog[0].epoch(),
                Epoch(4),
                "the next write replaces the event of the earlier leader"
            );
        } else {
            let row = AppRow::Plog(PARTITION, Offset(3));
            let fell = DamagedRow::EpochFell { row, epoch: 2, before: 3 };
            assert_eq!(broken(replayed.unwrap_err()), fell);
        }
    }
}

#[tokio::test]
async fn an_event_of_a_later_leader_ends_the_leadership() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 5), &events(5, 1, 1, None)).await;
        // The same holds if all events of the later leader are before the stored offset. A leader
        // stalled before it read these events, took itself for the last leader, and wrote behind
        // events of a later epoch. After that, no node could read the log.
        for from in [1, 2] {
            let late = log(&storage, level, 4);
            let error = replayed(&late, from).await.unwrap_err();
            assert!(matches!(error, Error::LeadershipLost(_)), "{error:?}");
            assert!(late.fence().lost().is_some() && !late.fence().may_answer());
            let outcome = late.write(&[PreparedEvent::new(&event(4, 2, None), |_| None)]).await;
            assert!(matches!(outcome.commit_error, Some(Error::LeadershipLost(_))), "{outcome:?}");
        }
    }
}

/// The row in the place of the next event decides the outcome.
#[tokio::test]
async fn a_conflicting_event_is_left_unchanged() {
    for level in [TrustLevel::Zero, TrustLevel::One] {
        for (there, expected) in [(4, "unexpected event"), (6, "lost"), (5, "violation")] {
            let storage = storage().await;
            let ours = log(&storage, level, 5);
            let theirs = event(there, 1, None);
            only_in_plog(&storage, level, &theirs).await;
            let mut other = event(5, 1, None);
            other.request = "another".to_owned();
            let outcome = ours.write(&[PreparedEvent::new(&other, |_| None)]).await;
            assert_eq!(outcome.committed, 0);
            let found = match outcome.commit_error.unwrap() {
                Error::UnexpectedEvent(_) => "unexpected event",
                Error::LeadershipLost(_) => "lost",
                Error::Violation(violation) => {
                    assert!(ours.is_unchanged(&violation).await.unwrap());
                    "violation"
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected);
            let key = AppRow::Plog(PARTITION, Offset(1)).key();
            let left = storage.get_linearizable(&key, Instant::FAR_FUTURE).await.unwrap();
            assert_eq!(left, Some(theirs.to_bytes()));
        }
    }
}

/// The events before an unreadable event are applied before the error is returned. An operator that
/// marks the event reads the events before it.
#[tokio::test]
async fn events_in_front_of_an_unreadable_event_are_applied() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
        let lost = event(1, 2, Some((1, 1)));
        only_in_plog(&storage, level, &lost).await;
        let broken = event(1, 3, Some((1, 2)));
        let row = AppRow::Plog(PARTITION, Offset(3));
        put(&storage, level, row, broken.place, Bytes::from_static(b"damaged")).await;
        let next = log(&storage, level, 2);
        replayed(&next, 1).await.unwrap_err();
        let wlog: Vec<Entry> = next.reader().wlog(WS, Offset(2), None).try_collect().await.unwrap();
        assert_eq!(wlog, [Entry::Event(Box::new(lost))]);
    }
}
