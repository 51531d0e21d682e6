//! Events that cannot be read, and the markers that an operator puts in their places.

use std::sync::Arc;

use bytes::Bytes;
use clock::{Clock, Instant};
use eventlog::{
    AppRow, DamagedRow, DecodeError, DrawnNumber, Entry, Epoch, Error, LogRepair, Marker, Offset,
    PlaceEvidence, TrustLevel,
};
use futures::TryStreamExt;
use istorage::{AppStorageExt, CallKind, SharedStorage};
use tck::storage::{Fault, Faulty};

use crate::support::{
    LEVELS, PARTITION, WS, broken, event, events, log, only_in_plog, put, record, replayed,
    storage, write,
};

/// An operator marks an event, and the log is read further. The copy in the log of the workspace
/// tells which numbers the event drew.
#[tokio::test]
async fn a_replay_passes_a_marked_event() {
    for level in LEVELS {
        for has_copy in [true, false] {
            let storage = storage().await;
            write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
            let lost = event(1, 3, Some((1, 2)));
            let damage = Bytes::from_static(b"damaged");
            put(&storage, level, AppRow::Plog(PARTITION, Offset(3)), lost.place, damage.clone())
                .await;
            if has_copy {
                put(&storage, level, AppRow::Wlog(WS, Offset(3)), lost.place, lost.to_bytes())
                    .await;
            }
            only_in_plog(&storage, level, &event(1, 4, Some((1, 2)))).await;
            let next = log(&storage, level, 2);
            let error = replayed(&next, 1).await.unwrap_err();
            assert!(matches!(broken(error), DamagedRow::Unreadable { .. }));
            assert!(
                LogRepair::new(&next).damaged(Offset(2), WS, Offset(2)).await.unwrap().is_none()
            );
            let damaged =
                LogRepair::new(&next).damaged(Offset(3), WS, Offset(3)).await.unwrap().unwrap();
            let drawn = vec![DrawnNumber { seq: 1, last: 3 }];
            // At level 2 a former leader may have left the copy, and the damaged bytes name no
            // place.
            let is_trusted = has_copy && level != TrustLevel::Two;
            assert_eq!(damaged.drawn(), is_trusted.then_some(&drawn[..]));
            LogRepair::new(&next).mark(&damaged, drawn.clone()).await.unwrap();
            let entries: Vec<Entry> = next.replay(Offset(1)).try_collect().await.unwrap();
            let marker = Marker { place: lost.place, marked: Epoch(2), drawn, bytes: damage };
            assert_eq!(entries[2], Entry::Marker(marker.clone()));
            assert_eq!(entries.len(), 4);
            let wlog: Vec<Entry> =
                next.reader().wlog(WS, Offset(3), None).try_collect().await.unwrap();
            let whole = Entry::Event(Box::new(lost));
            assert_eq!(wlog[0], if is_trusted { whole } else { Entry::Marker(marker) });
            // The next leader reads the same entries.
            let after = log(&storage, level, 3).replay(Offset(2)).try_collect::<Vec<_>>().await;
            assert_eq!(after.unwrap(), entries[1..]);
        }
    }
}

/// At level 2 a former leader left event 4 after the fencing entry 3: a stray. The entry was
/// damaged, and was written again with the epoch of event 2, which is that of the stray. So the
/// next leader found event 4 in the log, although its command had been rejected.
#[tokio::test]
async fn a_fencing_entry_that_is_written_again_lets_no_stray_into_the_log() {
    let level = TrustLevel::Two;
    for names_its_epoch in [true, false] {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
        let second = log(&storage, level, 2);
        replayed(&second, 1).await.unwrap();
        let fencing = second.fencing_entry(Offset(3), second.tail().time);
        let outcome = second.write(&[fencing]).await;
        assert!(outcome.commit_error.is_none(), "{outcome:?}");
        only_in_plog(&storage, level, &event(1, 4, Some((1, 2)))).await;
        let (key, far) = (AppRow::Plog(PARTITION, Offset(3)).key(), Instant::FAR_FUTURE);
        let there = storage.get_linearizable(&key, far).await.unwrap().unwrap();
        let mut damage = there.to_vec();
        match names_its_epoch {
            true => *damage.last_mut().unwrap() ^= 1,
            false => damage = b"damaged".to_vec(),
        }
        let damaged = storage.compare_and_swap(key, there, damage.into(), None, far).await;
        assert!(damaged.unwrap().is_applied());
        let next = log(&storage, level, 3);
        let found = LogRepair::new(&next).damaged_fencing(Offset(3)).await;
        if names_its_epoch {
            let damaged = found.unwrap().unwrap();
            assert_eq!(damaged.entry().epoch, Epoch(2));
            LogRepair::new(&next).restore_fencing(&damaged).await.unwrap();
            let entries: Vec<Entry> = next.replay(Offset(1)).try_collect().await.unwrap();
            assert_eq!(entries.len(), 3, "event 4 is a stray: {entries:?}");
        } else {
            let unknown = broken(found.unwrap_err());
            assert!(matches!(unknown, DamagedRow::Unreadable { .. }), "{unknown:?}");
        }
    }
}

/// The row is no longer damaged when it is marked.
#[tokio::test]
async fn a_row_that_changed_after_the_inspection_is_not_marked() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
        let (row, place) = (AppRow::Plog(PARTITION, Offset(2)), event(1, 2, None).place);
        put(&storage, level, row, place, Bytes::from_static(b"damaged")).await;
        let next = log(&storage, level, 3);
        let damaged =
            LogRepair::new(&next).damaged(Offset(2), WS, Offset(2)).await.unwrap().unwrap();
        let mended = event(2, 2, Some((1, 1)));
        if level == TrustLevel::Two {
            put(&storage, level, row, mended.place, mended.to_bytes()).await;
        } else {
            let (key, far) = (row.key(), Instant::FAR_FUTURE);
            let old = Bytes::from_static(b"damaged");
            let swap = storage.compare_and_swap(key, old, mended.to_bytes(), None, far).await;
            assert!(swap.unwrap().is_applied());
        }
        let error = LogRepair::new(&next).mark(&damaged, Vec::new()).await.unwrap_err();
        assert!(matches!(error, Error::Violation(_)), "{error:?}");
        let left = storage.get_linearizable(&row.key(), Instant::FAR_FUTURE).await.unwrap();
        assert_eq!(left, Some(mended.to_bytes()));
    }
}

/// The row of the event had changed, and the log of the workspace had the marker already. So the
/// log of the workspace contradicted the log of the partition: the recovery stopped there, and the
/// event could not be marked, because it could be read.
#[tokio::test]
async fn a_marker_is_taken_back_if_the_row_of_its_event_has_changed() {
    for level in [TrustLevel::Zero, TrustLevel::One] {
        for copy in [None, Some(Bytes::from_static(b"damaged, too"))] {
            let storage = storage().await;
            write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
            let [plog, wlog] = [AppRow::Plog(PARTITION, Offset(2)), AppRow::Wlog(WS, Offset(2))];
            let (whole, far) = (event(1, 2, Some((1, 1))), Instant::FAR_FUTURE);
            put(&storage, level, plog, whole.place, Bytes::from_static(b"damaged")).await;
            if let Some(copy) = &copy {
                put(&storage, level, wlog, whole.place, copy.clone()).await;
            }
            let next = log(&storage, level, 2);
            let damaged =
                LogRepair::new(&next).damaged(Offset(2), WS, Offset(2)).await.unwrap().unwrap();
            let old = Bytes::from_static(b"damaged");
            let restored = storage.compare_and_swap(plog.key(), old, whole.to_bytes(), None, far);
            assert!(restored.await.unwrap().is_applied());
            let drawn = vec![DrawnNumber { seq: 1, last: 2 }];
            let error = LogRepair::new(&next).mark(&damaged, drawn).await.unwrap_err();
            assert!(matches!(error, Error::Violation(_)), "{error:?}");
            let left = storage.get_linearizable(&wlog.key(), far).await.unwrap();
            assert_eq!(left, copy, "{level:?}");
            if copy.is_none() {
                assert_eq!(replayed(&next, 1).await.unwrap().len(), 2, "it recovers");
            }
        }
    }
}

/// The storage refused the second write of a mark. The same mark is sent again, under the same
/// leadership or under the next one.
#[tokio::test]
async fn a_mark_of_which_the_second_write_failed_is_repeated() {
    for level in LEVELS {
        for (fault, epoch) in [
            (Fault::Unavailable, 2),
            (Fault::Unavailable, 3),
            (Fault::AppliedButError, 2),
            (Fault::AppliedButError, 3),
        ] {
            let storage = storage().await;
            write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
            let row = AppRow::Plog(PARTITION, Offset(2));
            let lost = event(1, 2, Some((1, 1))).place;
            put(&storage, level, row, lost, Bytes::from_static(b"damaged")).await;
            let mut writes = 0;
            let script = move |call| {
                writes += usize::from(matches!(call, CallKind::WriteIf | CallKind::PutOrdered));
                if writes == 2 { fault } else { Fault::None }
            };
            let faulty = Faulty::scripted(Arc::clone(&storage), Clock::system(), script);
            let faulty: SharedStorage = Arc::new(faulty);
            let first = log(&faulty, level, 2);
            let drawn = vec![DrawnNumber { seq: 1, last: 2 }];
            let damaged =
                LogRepair::new(&first).damaged(Offset(2), WS, Offset(2)).await.unwrap().unwrap();
            let marked = LogRepair::new(&first).mark(&damaged, drawn.clone()).await;
            let next = log(&storage, level, epoch);
            match LogRepair::new(&next).damaged(Offset(2), WS, Offset(2)).await.unwrap() {
                // A conditional write is settled, and an ordered write may have landed.
                None => assert_eq!(fault, Fault::AppliedButError),
                Some(again) => {
                    assert!(marked.is_err(), "{level:?} {fault:?}");
                    assert_eq!(again.drawn(), Some(&drawn[..]), "the half mark has the numbers");
                    LogRepair::new(&next).mark(&again, drawn.clone()).await.unwrap();
                }
            }
            let entries: Vec<Entry> = next.replay(Offset(1)).try_collect().await.unwrap();
            let wlog: Vec<Entry> =
                next.reader().wlog(WS, Offset(2), None).try_collect().await.unwrap();
            for entry in [&entries[1], &wlog[0]] {
                assert!(matches!(entry, Entry::Marker(_)), "{entry:?}");
            }
            write(&storage, &next, &events(epoch, 3, 1, Some((1, 1)))).await;
        }
    }
}

/// The damaged bytes name no place. The operator had to know the workspace and the offset.
#[tokio::test]
async fn the_place_of_a_damaged_event_is_searched_among_its_neighbours() {
    use PlaceEvidence::{Copy, DamagedCopy, Gap};
    for level in LEVELS {
        let storage = storage().await;
        let leader = log(&storage, level, 1);
        write(&storage, &leader, &events(1, 1, 4, None)).await;
        let plog = AppRow::Plog(PARTITION, Offset(3));
        let places = async |at| leader.reader().place_candidates(PARTITION, Offset(at)).await;
        let found = async || {
            let found = places(3).await.unwrap();
            let found = found.iter().map(|found| (found.ws, found.wlog, found.evidence));
            found.collect::<Vec<_>>()
        };
        damage(&storage, level, plog).await;
        assert_eq!(found().await, [(WS, Offset(3), Copy)]);
        let beside = AppRow::Wlog(WS, Offset(3));
        damage(&storage, level, beside).await;
        assert_eq!(found().await, [(WS, Offset(3), DamagedCopy)]);
        if level != TrustLevel::Two {
            let (key, far) = (beside.key(), Instant::FAR_FUTURE);
            let there = storage.get_linearizable(&key, far).await.unwrap().unwrap();
            assert!(storage.compare_and_delete(key, there, far).await.unwrap().is_applied());
            assert_eq!(found().await, [(WS, Offset(3), Gap)]);
        }
        // After the last event of the workspace there is no trace of a lost event.
        assert_eq!(places(5).await.unwrap(), []);
    }
}

/// A removed row hides later ordered writes on a storage that orders plain writes by clocks.
#[tokio::test]
async fn only_rows_that_are_checked_may_be_removed() {
    let rows = [
        AppRow::Plog(PARTITION, Offset(2)),
        AppRow::Wlog(WS, Offset(1)),
        AppRow::Record(WS, record("").id),
    ];
    let storage = storage().await;
    for (level, may) in LEVELS.into_iter().zip([[true; 3], [true, true, false], [false; 3]]) {
        assert_eq!(
            rows.map(|row| LogRepair::new(&log(&storage, level, 1)).may_remove(row)),
            may,
            "{level:?}"
        );
        // A leader inserts its first event.
        assert!(
            LogRepair::new(&log(&storage, level, 1)).may_remove(AppRow::Plog(PARTITION, Offset(1)))
        );
    }
}

/// Replaces the bytes of a row.
async fn damage(storage: &SharedStorage, level: TrustLevel, row: AppRow) {
    let (damaged, far) = (Bytes::from_static(b"damaged"), Instant::FAR_FUTURE);
    // The first events of a leader are inserted at every level.
    if level == TrustLevel::Two && !matches!(row, AppRow::Plog(..)) {
        return put(storage, level, row, event(2, 9, None).place, damaged).await;
    }
    let there = storage.get_linearizable(&row.key(), far).await.unwrap().unwrap();
    let swap = storage.compare_and_swap(row.key(), there, damaged, None, far).await;
    assert!(swap.unwrap().is_applied());
}

/// Two events changed one record, and the first event could not be read any more. After it was
/// marked, the second event replaced a version that the record never had. So the recovery stopped
/// there, and no action of an operator could help.
#[tokio::test]
async fn an_event_is_applied_across_a_marked_event() {
    for level in LEVELS {
        for has_copy in [true, false] {
            // The recovery begins before the marker, or right after it.
            for from in [1, 4] {
                let storage = storage().await;
                write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
                let lost = event(1, 3, Some((1, 2)));
                let row = AppRow::Plog(PARTITION, Offset(3));
                put(&storage, level, row, lost.place, Bytes::from_static(b"damaged")).await;
                if has_copy {
                    put(&storage, level, AppRow::Wlog(WS, Offset(3)), lost.place, lost.to_bytes())
                        .await;
                }
                for next in events(1, 4, 2, Some((1, 3))) {
                    only_in_plog(&storage, level, &next).await;
                }
                let leader = log(&storage, level, 2);
                let damaged = LogRepair::new(&leader)
                    .damaged(Offset(3), WS, Offset(3))
                    .await
                    .unwrap()
                    .unwrap();
                LogRepair::new(&leader)
                    .mark(&damaged, vec![DrawnNumber { seq: 1, last: 3 }])
                    .await
                    .unwrap();
                let entries: Vec<Entry> = leader.replay(Offset(from)).try_collect().await.unwrap();
                assert_eq!(entries.len() as u64, 6 - from);
                let found = leader.reader().record(WS, record("").id).await.unwrap().unwrap();
                assert_eq!(found.record, record("of 1 5"), "{level:?} from {from}");
            }
        }
    }
}

/// Only a marker explains that an event in between is not applied.
#[tokio::test]
async fn an_outdated_record_without_a_marked_event_stops_the_recovery() {
    let storage = storage().await;
    let leader = log(&storage, TrustLevel::Zero, 1);
    let all = events(1, 1, 3, None);
    write(&storage, &leader, &all).await;
    let key = AppRow::Record(WS, record("").id).key();
    let now = storage.get_linearizable(&key, Instant::FAR_FUTURE).await.unwrap().unwrap();
    let mut old = eventlog::StoredRecord::from_bytes(&now).unwrap();
    old.version.plog = Offset(1);
    let restored = old.to_bytes();
    let swap = storage.compare_and_swap(key, now, restored, None, Instant::FAR_FUTURE).await;
    assert!(swap.unwrap().is_applied());
    let error = replayed(&log(&storage, TrustLevel::Zero, 2), 3).await.unwrap_err();
    let why = "differs from the row that was read";
    let is_reported = matches!(&error, Error::Violation(violation) if violation.why == why);
    assert!(is_reported, "{error:?}");
}

/// An event of a newer program could not be read, either, and was marked like a damaged one. Its
/// content was lost.
#[tokio::test]
async fn an_event_of_another_version_of_the_program_is_not_marked() {
    let newer = {
        let body = [200, 1, 2, 3];
        Bytes::from([&body[..], &crc32fast::hash(&body).to_be_bytes()].concat())
    };
    for level in LEVELS {
        for is_damaged in [false, true] {
            let storage = storage().await;
            write(&storage, &log(&storage, level, 1), &events(1, 1, 1, None)).await;
            let place = event(1, 2, None).place;
            let (plog, wlog) = (AppRow::Plog(PARTITION, Offset(2)), AppRow::Wlog(WS, Offset(2)));
            // In the second case only the copy of the event is left.
            let there = if is_damaged { Bytes::from_static(b"damaged") } else { newer.clone() };
            put(&storage, level, plog, place, there).await;
            put(&storage, level, wlog, place, newer.clone()).await;
            let leader = log(&storage, level, 2);
            let error =
                LogRepair::new(&leader).damaged(Offset(2), WS, Offset(2)).await.unwrap_err();
            let expected = if is_damaged { wlog } else { plog };
            let why = DecodeError::OtherVersion(200);
            assert_eq!(broken(error), DamagedRow::Unreadable { row: expected, why });
        }
    }
}

/// Two events changed places in both logs, as after a restore that mixed up rows. Neither event
/// could be marked, so the partition stalled for ever.
#[tokio::test]
async fn an_event_with_other_events_in_its_rows_is_marked() {
    for level in LEVELS {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
        let lost = [event(1, 3, Some((1, 2))), event(1, 4, Some((1, 3)))];
        for (row, other) in [(&lost[0], &lost[1]), (&lost[1], &lost[0])] {
            let (place, bytes) = (row.place, other.to_bytes());
            let plog = AppRow::Plog(PARTITION, place.plog);
            put(&storage, level, plog, place, bytes.clone()).await;
            put(&storage, level, AppRow::Wlog(WS, place.wlog), place, bytes).await;
        }
        let next = log(&storage, level, 2);
        for event in lost {
            let error = replayed(&next, 1).await.unwrap_err();
            assert!(matches!(broken(error), DamagedRow::Misplaced { .. }), "{level:?}");
            let place = event.place;
            let damaged =
                LogRepair::new(&next).damaged(place.plog, WS, place.wlog).await.unwrap().unwrap();
            assert_eq!(damaged.drawn(), None, "no readable copy has the numbers of the event");
            LogRepair::new(&next).mark(&damaged, event.drawn).await.unwrap();
        }
        let entries: Vec<Entry> = next.replay(Offset(1)).try_collect().await.unwrap();
        let are_marked = entries[2..].iter().all(|entry| matches!(entry, Entry::Marker(_)));
        assert!(entries.len() == 4 && are_marked, "{entries:?}");
    }
}
