//! Groups that are written in steps: the log by consensus, and then the other rows by their orders,
//! read back.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use clock::Instant;
use eventlog::{
    AppRow, DamagedRow, Epoch, Error, Event, LogRepair, LogWriter, Offset, PreparedEvent,
    StoredRecord, TrustLevel, Version, WriteOutcome,
};
use istorage::{
    AppStorageExt, Call, CallAnswer, Capabilities, Conditional, Conflict, ErrorKind, FoundRow, Key,
    Outcome, Result, SharedStorage, StorageWrapper, Write,
};

use crate::support::{
    LEVELS, PARTITION, WS, broken, event, events, log, only_in_plog, record, replayed, storage,
    write,
};

/// A storage without atomic writes. It acknowledges writes of some rows, and keeps these rows as
/// they are.
#[derive(Debug)]
struct StepStorage {
    inner: SharedStorage,
    /// Another program wrote these rows: they hide ordered writes.
    hides: Mutex<Vec<Key>>,
    /// Another program wrote these rows with a time that is ahead: they hide all writes.
    hides_all: Mutex<Vec<Key>>,
    /// The answers to the next writes, which are not done. The next answer is at the end.
    answers: Mutex<Vec<Result<Outcome>>>,
    conditional: AtomicUsize,
}

impl StepStorage {
    async fn new() -> Arc<StepStorage> {
        let (inner, conditional) = (storage().await, AtomicUsize::new(0));
        let (hides, hides_all, answers) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(StepStorage { inner, hides, hides_all, answers, conditional })
    }

    fn hide(&self, rows: &[AppRow]) {
        self.hides.lock().unwrap().extend(rows.iter().map(AppRow::key));
    }

    fn hide_all(&self, rows: &[AppRow]) {
        self.hides_all.lock().unwrap().extend(rows.iter().map(AppRow::key));
    }

    fn hides_one_of(&self, pkey: &Bytes, ops: &[Conditional]) -> bool {
        let hides = self.hides_all.lock().unwrap();
        ops.iter().any(|op| hides.contains(&Key::new(pkey.clone(), op.ccols().clone())))
    }
}

impl StorageWrapper for StepStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: None, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if let Call::Write(_) = &call
            && let Some(answer) = self.answers.lock().unwrap().pop()
        {
            return answer.map(CallAnswer::Outcome);
        }
        let call = match call {
            Call::Write(Write::If(pkey, ops)) => {
                self.conditional.fetch_add(1, Ordering::SeqCst);
                if self.hides_one_of(&pkey, &ops) {
                    return Ok(CallAnswer::Outcome(Outcome::Applied));
                }
                Call::Write(Write::If(pkey, ops))
            }
            Call::Write(Write::PutOrdered(mut rows)) => {
                let hides = self.hides.lock().unwrap();
                rows.retain(|row| !hides.contains(&row.key));
                Call::Write(Write::PutOrdered(rows))
            }
            call => call,
        };
        call.send(&self.inner, deadline).await
    }
}

fn record_row() -> AppRow {
    AppRow::Record(WS, record("").id)
}

/// Returns the offset of the event whose record is stored.
async fn stored(log: &LogWriter) -> Option<u64> {
    let found = log.reader().record(WS, record("").id).await.unwrap();
    found.map(|stored| stored.version.plog.0)
}

/// Writes the events as one group. The first event replaces the stored record.
async fn write_group(log: &LogWriter, events: &[Event]) -> WriteOutcome {
    let before = log.reader().found_row(record_row()).await.unwrap();
    write_over(log, before, events).await
}

/// Writes the events as one group. A command has read `before` as the row of the record.
async fn write_over(log: &LogWriter, before: Option<FoundRow>, events: &[Event]) -> WriteOutcome {
    let prepared = |event| PreparedEvent::new(event, |_| before.clone());
    log.write(&events.iter().map(prepared).collect::<Vec<_>>()).await
}

fn is_violation_of_record(error: &Error) -> bool {
    matches!(error, Error::Violation(violation) if violation.row == record_row())
}

/// A number was given twice. Each event after the first one makes, or makes and changes, another
/// record with that number.
#[tokio::test]
async fn a_number_that_was_given_twice_is_reported_and_replaces_nothing() {
    let again = || vec![event(1, 2, None)];
    let again_and_changed = || vec![event(1, 2, None), event(1, 3, Some((1, 2)))];
    for twice in [again(), again_and_changed()] {
        let steps = StepStorage::new().await as SharedStorage;
        let first = log(&steps, TrustLevel::Zero, 1);
        write(&steps, &first, &[event(1, 1, None)]).await;
        let outcome = write_group(&first, &twice).await;
        assert_eq!(outcome.committed, twice.len());
        let error = outcome.applied.unwrap_err();
        assert!(is_violation_of_record(&error), "{error:?}");
        assert_eq!(stored(&first).await, Some(1));
        for from in [1, 2] {
            let next = log(&steps, TrustLevel::Zero, 2);
            let error = replayed(&next, from).await.unwrap_err();
            assert!(is_violation_of_record(&error), "{error:?}");
            assert_eq!(stored(&next).await, Some(1), "after a recovery from {from}");
        }
    }
    // The first event was not applied, so the recovery applies all of them.
    for twice in [again(), again_and_changed()] {
        let steps = StepStorage::new().await as SharedStorage;
        for event in [event(1, 1, None)].iter().chain(&twice) {
            only_in_plog(&steps, TrustLevel::Zero, event).await;
        }
        let next = log(&steps, TrustLevel::Zero, 2);
        let error = replayed(&next, 1).await.unwrap_err();
        assert!(is_violation_of_record(&error), "{error:?}");
        assert_eq!(stored(&next).await, Some(1));
    }
}

/// A recovery began at the event that changes the record. It wrote the record once for this event
/// and for the one that makes another record with the same number, and reported nothing. A group of
/// the two was acknowledged likewise.
#[tokio::test]
async fn a_number_that_was_given_twice_is_reported_behind_a_change() {
    let (made, changed, again) = (event(1, 1, None), event(1, 2, Some((1, 1))), event(1, 3, None));
    for from in [1, 2, 3] {
        let steps = StepStorage::new().await as SharedStorage;
        let first = log(&steps, TrustLevel::Zero, 1);
        for event in [&made, &changed] {
            write_group(&first, std::slice::from_ref(event)).await.applied.unwrap();
        }
        only_in_plog(&steps, TrustLevel::Zero, &again).await;
        let next = log(&steps, TrustLevel::Zero, 2);
        let error = replayed(&next, from).await.unwrap_err();
        assert!(is_violation_of_record(&error), "{error:?}");
        assert_eq!(stored(&next).await, Some(2), "after a recovery from {from}");
    }
    for level in LEVELS {
        let storage = storage().await;
        let first = log(&storage, level, 1);
        write(&storage, &first, std::slice::from_ref(&made)).await;
        let outcome = write_group(&first, &[changed.clone(), again.clone()]).await;
        assert_eq!(outcome.committed, 0, "{level:?}");
        let Some(Error::Storage(error)) = outcome.commit_error else { panic!("{outcome:?}") };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(stored(&first).await, Some(1));
    }
}

#[tokio::test]
async fn a_group_that_makes_a_row_twice_is_refused_before_it_is_sent() {
    let mut same_place = event(1, 2, Some((1, 1)));
    same_place.place.wlog = Offset(1);
    for (level, twice) in [
        (TrustLevel::Zero, event(1, 2, None)),
        (TrustLevel::Two, event(1, 2, None)),
        (TrustLevel::Zero, same_place),
    ] {
        let steps = StepStorage::new().await as SharedStorage;
        let log = log(&steps, level, 1);
        let outcome = write_group(&log, &[event(1, 1, None), twice]).await;
        assert_eq!(outcome.committed, 0);
        let Some(Error::Storage(error)) = outcome.commit_error else { panic!("{outcome:?}") };
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let key = AppRow::Plog(PARTITION, Offset(1)).key();
        assert_eq!(steps.get_linearizable(&key, Instant::FAR_FUTURE).await.unwrap(), None);
    }
}

/// The storage acknowledges the rows, but a deleted row of another program hides them. Without a
/// look at the rows nobody would notice that they are missing.
#[tokio::test]
async fn rows_that_are_hidden_are_written_conditionally() {
    let (first, second) = (event(1, 1, None), event(1, 2, Some((1, 1))));
    let wlog = |event: &Event| AppRow::Wlog(WS, event.place.wlog);
    let hidden = [wlog(&first), wlog(&second), record_row()];
    for (level, rows) in [(TrustLevel::Zero, &hidden[..]), (TrustLevel::One, &hidden[..2])] {
        // In one group the record is made and changed.
        for groups in [
            vec![vec![first.clone(), second.clone()]],
            vec![vec![first.clone()], vec![second.clone()]],
        ] {
            let steps = StepStorage::new().await;
            steps.hide(rows);
            let storage = Arc::clone(&steps) as SharedStorage;
            let log = log(&storage, level, 1);
            for group in &groups {
                write(&storage, &log, group).await;
            }
            for event in [&first, &second] {
                let found = log.reader().row(wlog(event)).await.unwrap();
                assert_eq!(found, Some(event.to_bytes()), "at level {level}");
            }
            assert_eq!(stored(&log).await, Some(2), "at level {level}");
        }
        // The recovery writes the same rows.
        let steps = StepStorage::new().await;
        steps.hide(rows);
        let storage = Arc::clone(&steps) as SharedStorage;
        for event in [&first, &second] {
            only_in_plog(&storage, level, event).await;
        }
        let next = log(&storage, level, 2);
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        assert_eq!(next.reader().row(wlog(&second)).await.unwrap(), Some(second.to_bytes()));
        assert_eq!(stored(&next).await, Some(2), "at level {level}");
    }
}

/// An operator removed a foreign row past the end of the log, and then the level became 2. The
/// removed row hid the next event, which was acknowledged.
#[tokio::test]
async fn the_first_event_of_level_2_is_inserted_if_its_place_hides_it() {
    let steps = StepStorage::new().await;
    let storage = Arc::clone(&steps) as SharedStorage;
    let log = log(&storage, TrustLevel::Two, 1);
    assert_eq!(replayed(&log, 1).await.unwrap(), []);
    steps.hide(&[AppRow::Plog(PARTITION, Offset(1))]);
    write(&storage, &log, &[event(1, 1, None), event(1, 2, Some((1, 1)))]).await;
    write(&storage, &log, &[event(1, 3, Some((1, 2)))]).await;
    assert_eq!(steps.conditional.load(Ordering::SeqCst), 1);
    assert_eq!(replayed(&log, 1).await.unwrap().len(), 3);
}

/// The storage acknowledged the change of a record, and shows the version from before. A
/// conditional write of the row could land above a later put of the next leader.
#[tokio::test]
async fn a_row_that_is_older_than_its_write_is_put_again_and_never_written_conditionally() {
    let steps = StepStorage::new().await;
    let storage = Arc::clone(&steps) as SharedStorage;
    let first = log(&storage, TrustLevel::Zero, 1);
    write(&storage, &first, &[event(1, 1, None)]).await;
    steps.hide(&[record_row()]);
    let before = steps.conditional.load(Ordering::SeqCst);
    let outcome = write_group(&first, &[event(1, 2, Some((1, 1)))]).await;
    let error = outcome.applied.unwrap_err();
    assert!(!error.is_lasting(), "{error:?}");
    let conditional = steps.conditional.load(Ordering::SeqCst) - before;
    assert_eq!(conditional, 1, "only the event is written conditionally");
    steps.hides.lock().unwrap().clear();
    assert_eq!(replayed(&first, 1).await.unwrap().len(), 2);
    assert_eq!(stored(&first).await, Some(2));
}

/// A quorum lost a write: its replica came back empty.
#[tokio::test]
async fn a_record_that_is_older_than_what_was_acknowledged_is_reported() {
    let steps = StepStorage::new().await as SharedStorage;
    let first = log(&steps, TrustLevel::Zero, 1);
    write(&steps, &first, &[event(1, 1, None)]).await;
    write(&steps, &first, &[event(1, 2, Some((1, 1)))]).await;
    check_versions(&first, 2);
    // The writer of this row failed, and the acknowledged version stays. It used to be forgotten.
    let failed = write_group(&first, &[event(1, 3, None)]).await;
    assert!(failed.applied.is_err());
    check_versions(&first, 2);
}

/// Checks that the log knows the version of the record.
fn check_versions(log: &LogWriter, known: u64) {
    let version = |plog| Version { epoch: Epoch(1), plog: Offset(plog) };
    assert_eq!(log.acknowledged().version_of(record_row()), Some(version(known)));
    for found in [known, known + 1] {
        log.acknowledged().check(record_row(), Some(version(found))).unwrap();
    }
    for found in [None, Some(version(known - 1))] {
        let error = log.acknowledged().check(record_row(), found).unwrap_err();
        let outdated = DamagedRow::Outdated { row: record_row(), version: version(known) };
        assert_eq!(broken(error), outdated);
    }
}

/// The next leader did not know the versions of the events that it replayed, if their rows were
/// already written.
#[tokio::test]
async fn a_replay_knows_the_records_that_it_finds_written() {
    let steps = StepStorage::new().await as SharedStorage;
    write(&steps, &log(&steps, TrustLevel::Zero, 1), &[event(1, 1, None)]).await;
    let next = log(&steps, TrustLevel::Zero, 2);
    assert_eq!(next.acknowledged().version_of(record_row()), None);
    assert_eq!(replayed(&next, 1).await.unwrap().len(), 1);
    check_versions(&next, 1);
}

/// A partition goes on when the record has the acknowledged version again, or a later one.
#[tokio::test]
async fn a_record_is_outdated_until_it_has_the_acknowledged_version() {
    let steps = StepStorage::new().await as SharedStorage;
    let log = log(&steps, TrustLevel::Zero, 1);
    let version = |plog| Version { epoch: Epoch(1), plog: Offset(plog) };
    assert!(log.reader().is_outdated(record_row(), version(1)).await.unwrap(), "it is missing");
    write(&steps, &log, &[event(1, 1, None), event(1, 2, Some((1, 1)))]).await;
    for (known, is_outdated) in [(1, false), (2, false), (3, true)] {
        assert_eq!(
            log.reader().is_outdated(record_row(), version(known)).await.unwrap(),
            is_outdated
        );
    }
    let whole = log.reader().row(record_row()).await.unwrap().unwrap();
    swap(&steps, record_row(), &whole, &Bytes::from_static(b"damaged")).await;
    assert!(log.reader().is_outdated(record_row(), version(1)).await.unwrap(), "it cannot be read");
}

/// Returns the bytes of the record that another program writes: it names `version`.
fn foreign_record(version: Version) -> Bytes {
    StoredRecord { ws: WS, version, record: record("foreign") }.to_bytes()
}

/// Another program or an operator writes a row. Its bytes hide ordered writes, as those of a plain
/// write do.
async fn swap(storage: &SharedStorage, row: AppRow, from: &Bytes, to: &Bytes) {
    let swap =
        storage.compare_and_swap(row.key(), from.clone(), to.clone(), None, Instant::FAR_FUTURE);
    assert!(swap.await.unwrap().is_applied());
}

/// Another program changed the record after the command had read it, and the row names the version
/// that was read, or a later one. The write took the row for one of a node: it replaced the row, or
/// left the record of the event out.
#[tokio::test]
async fn a_foreign_record_is_reported_whatever_version_it_names() {
    let version = |plog| Version { epoch: Epoch(1), plog: Offset(plog) };
    for hides_ordered in [false, true] {
        for named in [version(1), version(2), version(9)] {
            let storage = StepStorage::new().await as SharedStorage;
            let log = log(&storage, TrustLevel::Zero, 1);
            write(&storage, &log, &[event(1, 1, None)]).await;
            let whole = log.reader().row(record_row()).await.unwrap().unwrap();
            if hides_ordered {
                swap(&storage, record_row(), &whole, &whole).await;
            }
            let before = log.reader().found_row(record_row()).await.unwrap();
            assert_eq!(before.as_ref().unwrap().hides_ordered, hides_ordered);
            let foreign = foreign_record(named);
            swap(&storage, record_row(), &whole, &foreign).await;
            let outcome = write_over(&log, before, &[event(1, 2, Some((1, 1)))]).await;
            let error = outcome.applied.unwrap_err();
            assert!(is_violation_of_record(&error), "{named:?}: {error:?}");
            assert_eq!(log.reader().row(record_row()).await.unwrap(), Some(foreign));
        }
    }
    // The same in the place of a new record.
    let storage = StepStorage::new().await as SharedStorage;
    let log = log(&storage, TrustLevel::Zero, 1);
    let foreign = foreign_record(version(9));
    storage.put(record_row().key(), foreign.clone(), Instant::FAR_FUTURE).await.unwrap();
    let error = write_over(&log, None, &[event(1, 1, None)]).await.applied.unwrap_err();
    assert!(is_violation_of_record(&error), "{error:?}");
    assert_eq!(log.reader().row(record_row()).await.unwrap(), Some(foreign));
}

/// Another program deleted the record after the command had read it. The deletion hid the put of
/// the event, and the event was then inserted. So the deletion was undone, and nobody noticed.
#[tokio::test]
async fn a_record_that_was_deleted_after_a_command_had_read_it_is_reported() {
    use TrustLevel::{One, Two, Zero};
    for (level, hides_ordered) in [(Zero, false), (Zero, true), (One, true), (Two, true)] {
        let steps = StepStorage::new().await;
        let storage = Arc::clone(&steps) as SharedStorage;
        let first = log(&storage, level, 1);
        write(&storage, &first, &[event(1, 1, None)]).await;
        let whole = first.reader().row(record_row()).await.unwrap().unwrap();
        if hides_ordered {
            swap(&storage, record_row(), &whole, &whole).await;
        }
        let before = first.reader().found_row(record_row()).await.unwrap();
        assert_eq!(before.as_ref().unwrap().hides_ordered, hides_ordered);
        let key = record_row().key();
        let deleted = storage.compare_and_delete(key, whole, Instant::FAR_FUTURE).await.unwrap();
        assert!(deleted.is_applied());
        steps.hide(&[record_row()]);
        let outcome = write_over(&first, before, &[event(1, 2, Some((1, 1)))]).await;
        assert_eq!(outcome.committed, 1);
        let error = outcome.applied.unwrap_err();
        assert!(is_violation_of_record(&error), "at level {level}: {error:?}");
        assert_eq!(stored(&first).await, None, "at level {level}");
    }
    // A recovery does not know the row that the command had read.
    let steps = StepStorage::new().await;
    let storage = Arc::clone(&steps) as SharedStorage;
    steps.hide(&[record_row()]);
    for event in events(1, 1, 2, None) {
        only_in_plog(&storage, Zero, &event).await;
    }
    let next = log(&storage, Zero, 2);
    assert_eq!(replayed(&next, 2).await.unwrap().len(), 1);
    assert_eq!(stored(&next).await, Some(2));
}

/// An operator repaired the record by a client with a clock that was ahead. The condition held, and
/// the storage kept the row of the operator. So the update was acknowledged and missing.
#[tokio::test]
async fn an_update_is_not_acknowledged_while_the_storage_does_not_show_it() {
    for level in LEVELS {
        let steps = StepStorage::new().await;
        let storage = Arc::clone(&steps) as SharedStorage;
        let log = log(&storage, level, 1);
        write(&storage, &log, &[event(1, 1, None)]).await;
        let value = log.reader().row(record_row()).await.unwrap().unwrap();
        swap(&storage, record_row(), &value, &value).await;
        steps.hide_all(&[record_row()]);
        let outcome = write_group(&log, &[event(1, 2, Some((1, 1)))]).await;
        assert_eq!(outcome.committed, 1);
        let error = outcome.applied.unwrap_err();
        assert!(!error.is_lasting() && format!("{error:?}").contains("is ahead"), "{error:?}");
        assert!(replayed(&log, 1).await.is_err(), "at level {level}");
        // The time has passed.
        steps.hides_all.lock().unwrap().clear();
        assert_eq!(replayed(&log, 1).await.unwrap().len(), 2);
        assert_eq!(stored(&log).await, Some(2), "at level {level}");
    }
}

/// Another program deleted a row past the end of the log, with a clock that was ahead. The deletion
/// hid the next event, which was acknowledged.
#[tokio::test]
async fn the_first_event_is_not_acknowledged_while_the_storage_does_not_show_it() {
    for level in LEVELS {
        let steps = StepStorage::new().await;
        let storage = Arc::clone(&steps) as SharedStorage;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
        let next = log(&storage, level, 2);
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        steps.hide_all(&[AppRow::Plog(PARTITION, Offset(3))]);
        let outcome = write_group(&next, &[event(2, 3, Some((1, 2)))]).await;
        assert_eq!(outcome.committed, 0);
        let error = outcome.commit_error.unwrap();
        assert!(matches!(error, Error::Unknown(_)), "at level {level}: {error:?}");
        steps.hides_all.lock().unwrap().clear();
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        write(&storage, &next, &[event(2, 3, Some((1, 2)))]).await;
    }
}

/// The first attempt to write an event got no answer, so it may land after the second one failed.
#[tokio::test]
async fn no_error_says_that_nothing_was_written_after_an_attempt_without_an_answer() {
    let refused = |actual| Ok(Outcome::NotApplied(vec![Conflict { op: 0, actual }]));
    for is_unanswered in [false, true] {
        for (level, second) in [
            (TrustLevel::Zero, refused(Some(Bytes::from_static(b"foreign")))),
            (TrustLevel::Zero, refused(None)),
            (TrustLevel::Two, Err(istorage::Error::invalid("refused"))),
        ] {
            let steps = StepStorage::new().await;
            let storage = Arc::clone(&steps) as SharedStorage;
            let log = log(&storage, level, 1);
            write(&storage, &log, &[event(1, 1, None)]).await;
            let mut answers = vec![second];
            answers.extend(is_unanswered.then(|| Err(istorage::Error::outcome_unknown("lost"))));
            *steps.answers.lock().unwrap() = answers;
            let outcome = write_group(&log, &[event(1, 2, Some((1, 1)))]).await;
            assert_eq!((outcome.committed, steps.answers.lock().unwrap().len()), (0, 0));
            let error = outcome.commit_error.unwrap();
            assert_eq!(matches!(error, Error::Unknown(_)), is_unanswered, "{error:?}");
        }
    }
}

/// The command said that it had removed the row, and the row was still there.
#[tokio::test]
async fn a_row_that_stays_is_not_reported_as_removed_or_marked() {
    let steps = StepStorage::new().await;
    let storage = Arc::clone(&steps) as SharedStorage;
    let log = log(&storage, TrustLevel::Zero, 1);
    write(&storage, &log, &[event(1, 1, None)]).await;
    let row = AppRow::Plog(PARTITION, Offset(2));
    let foreign = Bytes::from_static(b"foreign");
    storage.put(row.key(), foreign.clone(), Instant::FAR_FUTURE).await.unwrap();
    steps.hide_all(&[row]);
    let error = LogRepair::new(&log).remove(row, &foreign).await.unwrap_err();
    assert!(format!("{error:?}").contains("is ahead"), "{error:?}");
    let damaged = LogRepair::new(&log).damaged(Offset(2), WS, Offset(2)).await.unwrap().unwrap();
    let error = LogRepair::new(&log).mark(&damaged, Vec::new()).await.unwrap_err();
    assert!(format!("{error:?}").contains("is ahead"), "{error:?}");
    steps.hides_all.lock().unwrap().clear();
    LogRepair::new(&log).remove(row, &foreign).await.unwrap();
    assert_eq!(log.reader().row(row).await.unwrap(), None);
}
