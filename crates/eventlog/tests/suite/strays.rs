//! Rows that a former leader of level 2 has left, under a leader of another level.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use clock::{Clock, Instant};
use eventlog::{
    AppRow, DamagedRow, Deployment, Epoch, Error, LevelChange, LogRepair, Offset, PlaceEvidence,
    PreparedEvent, StoredRecord, TrustLevel, Version,
};
use istorage::{
    AppStorageExt, BatchLimits, Call, CallAnswer, Capabilities, Conditional, Conflict, Consistency,
    ErrorKind, Key, Outcome, RangeRead, Result, RowStream, SharedStorage, StorageWrapper, Write,
};

use TrustLevel::{One, Two, Zero};

use crate::support::{
    LEVELS, PARTITION, WS, broken, event, events, log, log_after_level_2, only_in_plog, put,
    record, replayed, storage, write,
};

const TABLES: &str = r#"
[tables."shop.Article"]
kind = "CDoc"
fields = { name = "string" }
"#;

/// Events 3 and 5 of the former leader come after event 2 of a later epoch.
async fn with_strays(level: TrustLevel) -> SharedStorage {
    let storage = storage().await;
    write(&storage, &log(&storage, Two, 1), &events(1, 1, 1, None)).await;
    write(&storage, &log(&storage, Two, 3), &events(3, 2, 1, Some((1, 1)))).await;
    for offset in [3, 5] {
        only_in_plog(&storage, level, &event(2, offset, None)).await;
    }
    storage
}

#[tokio::test]
async fn a_log_ends_in_front_of_the_events_of_a_former_leader_of_level_2() {
    for level in [Zero, One] {
        let storage = with_strays(Two).await;
        let next = log_after_level_2(&storage, level, 5, 4);
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        // The group meets two of these events.
        let group = events(5, 3, 3, Some((3, 2)));
        write(&storage, &next, &group).await;
        let all = replayed(&log_after_level_2(&storage, level, 6, 4), 1).await.unwrap();
        assert_eq!(all[2..], group);
    }
}

#[tokio::test]
async fn an_event_that_level_2_did_not_put_is_damage() {
    for (written_at, stray_before) in [(Two, 2), (Zero, 4)] {
        let storage = with_strays(written_at).await;
        let error = replayed(&log_after_level_2(&storage, Zero, 5, stray_before), 1).await;
        let row = AppRow::Plog(PARTITION, Offset(3));
        let fell = DamagedRow::EpochFell { row, epoch: 2, before: 3 };
        assert_eq!(broken(error.unwrap_err()), fell, "written at {written_at}");
    }
}

/// A foreign row past the end of the log could not be removed if such an event came after it.
#[tokio::test]
async fn the_events_of_a_former_leader_do_not_prove_that_the_log_goes_on() {
    let storage = with_strays(Two).await;
    for (stray_before, is_behind) in [(4, true), (2, false)] {
        let log = log_after_level_2(&storage, Zero, 5, stray_before);
        assert_eq!(LogRepair::new(&log).may_be_behind_the_end(Offset(3)).await.unwrap(), is_behind);
    }
}

/// The copy may be that of another event: see `LogRepair::damaged`.
#[tokio::test]
async fn the_copy_of_a_damaged_event_of_level_2_is_not_trusted() {
    let storage = storage().await;
    write(&storage, &log(&storage, Two, 1), &events(1, 1, 2, None)).await;
    let lost = event(1, 3, Some((1, 2)));
    let damage = Bytes::from_static(b"damaged");
    put(&storage, Two, AppRow::Plog(PARTITION, Offset(3)), lost.place, damage).await;
    put(&storage, Two, AppRow::Wlog(WS, Offset(3)), lost.place, lost.to_bytes()).await;
    for (stray_before, is_trusted) in [(1, true), (2, false)] {
        let log = log_after_level_2(&storage, Zero, 2, stray_before);
        let damaged =
            LogRepair::new(&log).damaged(Offset(3), WS, Offset(3)).await.unwrap().unwrap();
        assert_eq!(damaged.drawn().is_some(), is_trusted);
        assert_eq!(damaged.is_restorable(), is_trusted);
    }
}

/// The list of repairs proposed this place. An operator would have marked the event of another
/// workspace there.
#[tokio::test]
async fn a_copy_at_the_end_that_level_2_may_have_left_is_no_place_of_an_event() {
    let (storage, clock, soon) = (storage().await, Clock::system(), Instant::FAR_FUTURE);
    write(&storage, &log(&storage, Two, 1), &events(1, 1, 2, None)).await;
    let left = event(1, 3, Some((1, 2)));
    let damage = Bytes::from_static(b"damaged");
    put(&storage, Two, AppRow::Plog(PARTITION, Offset(3)), left.place, damage).await;
    put(&storage, Two, AppRow::Wlog(WS, Offset(3)), left.place, left.to_bytes()).await;
    let next = log_after_level_2(&storage, Zero, 3, 2);
    let places = async || {
        let found = next.reader().place_candidates(PARTITION, Offset(3)).await.unwrap();
        found.iter().map(|place| (place.wlog, place.evidence)).collect::<Vec<_>>()
    };
    let copy = [(Offset(3), PlaceEvidence::Copy)];
    assert_eq!(places().await, copy, "level 2 never wrote");
    let first = Deployment::new(Two, TABLES.parse().unwrap());
    first.store(&storage, &clock, soon).await.unwrap();
    assert_eq!(places().await, [], "the level is 2");
    let change = LevelChange::begin(Zero, &storage, &clock, soon).await.unwrap();
    change.finish(Epoch(2), &storage, &clock, soon).await.unwrap();
    assert_eq!(places().await, [], "the level was 2");
    // It may still be the event of the copy, so it is not removed.
    assert!(!LogRepair::new(&next).may_be_behind_the_end(Offset(3)).await.unwrap());
    // The next event of the workspace has a later offset, so this one is in the log.
    only_in_plog(&storage, Zero, &event(3, 4, Some((1, 3)))).await;
    assert_eq!(places().await, copy);
}

/// A storage that notes how the log of a partition is read.
#[derive(Debug)]
struct NotingStorage {
    inner: SharedStorage,
    reads: Mutex<Vec<Consistency>>,
}

impl StorageWrapper for NotingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if let Call::Get(_, consistency) = &call {
            self.reads.lock().unwrap().push(*consistency);
        }
        call.send(&self.inner, deadline).await
    }

    fn read(&self, read: RangeRead) -> RowStream {
        self.reads.lock().unwrap().push(read.consistency);
        read.send(&self.inner)
    }
}

/// At level 2 the log was read plainly. So an insert of level 0 that was not committed yet stayed
/// open, and a later read at level 0 committed it above the event of level 2.
#[tokio::test]
async fn a_leader_reads_its_log_linearizably_at_every_level() {
    for level in LEVELS {
        let inner = storage().await;
        write(&inner, &log(&inner, level, 1), &events(1, 1, 2, None)).await;
        let noting = Arc::new(NotingStorage { inner, reads: Mutex::default() });
        let storage = Arc::clone(&noting) as SharedStorage;
        assert_eq!(replayed(&log(&storage, level, 2), 2).await.unwrap().len(), 1);
        let reads = noting.reads.lock().unwrap();
        assert!(reads.len() > 2 && reads.iter().all(|read| *read == Consistency::Linearizable));
    }
}

/// Leader A of level 0 stood still before it inserted event 3. The level became 2, and leader B
/// replayed the log. The insert of A landed, and hid the event 3 that B put and acknowledged.
#[tokio::test]
async fn a_late_insert_of_a_former_level_hides_no_event_of_level_2() {
    for level in [Zero, One] {
        let storage = storage().await;
        write(&storage, &log(&storage, level, 1), &events(1, 1, 2, None)).await;
        let next = log(&storage, Two, 2);
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        only_in_plog(&storage, level, &event(1, 3, Some((1, 2)))).await;
        let event_of_next = PreparedEvent::new(&event(2, 3, Some((1, 2))), |_| None);
        let outcome = next.write(&[event_of_next]).await;
        assert_eq!(outcome.committed, 0);
        let error = outcome.commit_error.unwrap();
        assert!(matches!(error, Error::UnexpectedEvent(Offset(3))), "{error:?}");
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 3);
        write(&storage, &next, &events(2, 4, 2, Some((1, 3)))).await;
        assert_eq!(replayed(&log(&storage, Zero, 3), 1).await.unwrap().len(), 5);
    }
}

/// A storage without atomic writes. A conditional write of a former leader is accepted by servers,
/// and not committed: the next conditional write or linearizable read of its storage partition
/// commits it.
#[derive(Debug)]
struct OpenSwapStorage {
    inner: SharedStorage,
    open: Mutex<Option<(Key, Bytes)>>,
}

impl OpenSwapStorage {
    async fn commit(&self, of: &Bytes, deadline: Instant) {
        let open = self.open.lock().unwrap().take_if(|(key, _)| key.pkey == *of);
        let Some((key, value)) = open else { return };
        let there = self.inner.get_linearizable(&key, deadline).await.unwrap().unwrap();
        let swap = self.inner.compare_and_swap(key, there, value, None, deadline);
        assert!(swap.await.unwrap().is_applied());
    }
}

impl StorageWrapper for OpenSwapStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: None, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match &call {
            Call::Get(key, Consistency::Linearizable) => self.commit(&key.pkey, deadline).await,
            Call::Write(Write::If(pkey, _)) => self.commit(pkey, deadline).await,
            _ => {}
        }
        call.send(&self.inner, deadline).await
    }
}

/// At level 0 a leader replaced a stray conditionally, and died before its write was committed.
/// Then the put of the same event by its first leader landed. The recovery found the right row, and
/// a command put an update. The write of the dead leader was committed above it.
#[tokio::test]
async fn a_recovery_settles_the_conditional_writes_over_strays() {
    for level in LEVELS {
        let inner = storage().await;
        let mut first = event(1, 1, None);
        first.changes.clear();
        write(&inner, &log(&inner, Two, 1), &[first]).await;
        let made = event(3, 2, None);
        only_in_plog(&inner, Zero, &made).await;
        let row = AppRow::Record(WS, record("").id);
        let version = |epoch, plog| Version { epoch: Epoch(epoch), plog: Offset(plog) };
        let record = made.changes[0].record.clone();
        let bytes = StoredRecord { ws: WS, version: version(3, 2), record }.to_bytes();
        put(&inner, Two, row, made.place, bytes.clone()).await;
        let open = Mutex::new(Some((row.key(), bytes)));
        let storage = Arc::new(OpenSwapStorage { inner, open }) as SharedStorage;

        let next = log_after_level_2(&storage, level, 5, 3);
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        write(&storage, &next, &[event(5, 3, Some((3, 2)))]).await;
        storage.get_linearizable(&row.key(), Instant::FAR_FUTURE).await.unwrap();
        let found = next.reader().row(row).await.unwrap().unwrap();
        assert_eq!(row.record(&found).unwrap().version, version(5, 3), "at level {level}");
    }
}

/// A storage in which another program has put a record. When a node reads the row, the program has
/// just changed it. Before the next write the program puts the first bytes again.
#[derive(Debug)]
struct ChangingStorage {
    inner: SharedStorage,
    atomic: Option<BatchLimits>,
    key: Key,
    /// The bytes that the program puts, the next ones at the end.
    next: Mutex<Vec<Bytes>>,
}

const FOREIGN: [Bytes; 2] = [Bytes::from_static(b"foreign"), Bytes::from_static(b"changed")];

impl ChangingStorage {
    async fn change(&self, to: &Bytes, deadline: Instant) {
        let from = {
            let mut next = self.next.lock().unwrap();
            match next.pop_if(|next| next == to) {
                Some(_) => FOREIGN.into_iter().find(|bytes| bytes != to).unwrap(),
                None => return,
            }
        };
        let swap = self.inner.compare_and_swap(self.key.clone(), from, to.clone(), None, deadline);
        assert!(swap.await.unwrap().is_applied());
    }
}

impl StorageWrapper for ChangingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: self.atomic, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match &call {
            Call::GetBatch(_) => self.change(&FOREIGN[1], deadline).await,
            Call::Write(_) => self.change(&FOREIGN[0], deadline).await,
            _ => {}
        }
        call.send(&self.inner, deadline).await
    }
}

/// The foreign row had changed when the node looked at it. The node took it for a stray, and the
/// program put the first bytes again. So the foreign row was replaced.
#[tokio::test]
async fn a_foreign_row_that_changes_while_it_is_judged_is_no_stray() {
    let inner = storage().await;
    let atomic = inner.capabilities().atomic;
    for atomic in [atomic, Some(BatchLimits { rows: 0, bytes: 0 })] {
        let inner = storage().await;
        let row = AppRow::Record(WS, record("").id);
        let put =
            inner.insert_if_not_exists(row.key(), FOREIGN[0].clone(), None, Instant::FAR_FUTURE);
        assert!(put.await.unwrap().is_applied());
        let (key, next) = (row.key(), Mutex::new(FOREIGN.to_vec()));
        let changing = Arc::new(ChangingStorage { inner, atomic, key, next });
        let storage = Arc::clone(&changing) as SharedStorage;
        let log = log_after_level_2(&storage, Zero, 5, 4);
        let outcome = log.write(&[PreparedEvent::new(&event(5, 1, None), |_| None)]).await;
        let is_refused = outcome.commit_error.is_some() || outcome.applied.is_err();
        assert!(is_refused, "{atomic:?}: {outcome:?}");
        let there = log.reader().row(row).await.unwrap().unwrap();
        assert!(FOREIGN.contains(&there), "{atomic:?}: {there:?}");
    }
}

/// A storage that refuses every swap, although each row holds the expected bytes.
#[derive(Debug)]
struct RefusingStorage {
    inner: SharedStorage,
    atomic: Option<BatchLimits>,
    /// Whether a refusal names the rows of the swaps, and no row otherwise.
    names_rows: bool,
    /// Whether the first write with a swap gets no answer.
    is_unanswered: bool,
    refused: AtomicUsize,
}

impl StorageWrapper for RefusingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: self.atomic, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let conditions: Vec<&Conditional> = match &call {
            Call::Write(Write::If(_, ops)) => ops.iter().collect(),
            Call::Write(Write::Atomic(batch)) => {
                batch.conditionals.iter().map(|(_, condition)| condition).collect()
            }
            _ => Vec::new(),
        };
        let mut conflicts = Vec::new();
        for (op, condition) in conditions.into_iter().enumerate() {
            if let Conditional::Swap { old, .. } = condition {
                conflicts.push(Conflict { op, actual: Some(old.clone()) });
            }
        }
        if conflicts.is_empty() {
            return call.send(&self.inner, deadline).await;
        }
        let refused = self.refused.fetch_add(1, Ordering::SeqCst);
        assert!(refused < 10, "the same write is sent again and again");
        if self.is_unanswered && refused == 0 {
            return Err(istorage::Error::outcome_unknown("no answer"));
        }
        conflicts.retain(|_| self.names_rows);
        Ok(Outcome::NotApplied(conflicts).into())
    }
}

/// The storage refused to replace a stray, and the row was as expected. The log sent the same write
/// again, without a pause and without end.
#[tokio::test]
async fn a_refusal_without_an_explanation_is_an_error() {
    for case in 0..8 {
        let [is_atomic, names_rows, is_unanswered] = [1, 2, 4].map(|bit| case & bit != 0);
        let inner = with_strays(Two).await;
        let atomic = inner.capabilities().atomic.filter(|_| is_atomic);
        let refused = AtomicUsize::new(0);
        let refusing = RefusingStorage { inner, atomic, names_rows, is_unanswered, refused };
        let storage = Arc::new(refusing) as SharedStorage;
        let next = log_after_level_2(&storage, Zero, 5, 4);
        assert_eq!(replayed(&next, 1).await.unwrap().len(), 2);
        let mut event = event(5, 3, None);
        event.changes.clear();
        let outcome = next.write(&[PreparedEvent::new(&event, |_| None)]).await;
        assert_eq!(outcome.committed, 0);
        let is_expected = match outcome.commit_error.as_ref().unwrap() {
            Error::Storage(error) => !is_unanswered && error.kind() == ErrorKind::Unavailable,
            Error::Unknown(_) => is_unanswered,
            _ => false,
        };
        assert!(is_expected, "{is_atomic} {names_rows} {is_unanswered}: {outcome:?}");
    }
}
