//! Trials of stored numbers in memory.

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use clock::ManualClock;
use istorage::{
    AppStorageExt, Call, CallAnswer, CallKind, KeyspaceName, StorageDriver, StorageWrapper,
    mem::MemDriver,
};
use tck::storage::{Fault, Faulty};

use super::*;

/// From one call on, all calls fail, or seem to fail. If an offset is stored, all numbers before it
/// are stored.
#[tokio::test]
async fn no_offset_is_stored_without_its_numbers() {
    let clock = Clock::system();
    let deadline = clock.now() + Duration::from_secs(60);
    for count in [3, 1_000] {
        for (fails, fault) in [0, 1]
            .into_iter()
            .flat_map(|call| [(call, Fault::Unavailable), (call, Fault::AppliedButError)])
        {
            let driver = MemDriver::new(clock.clone());
            let keyspace = KeyspaceName::new("numbers").unwrap();
            driver.create(&keyspace, deadline).await.unwrap();
            let storage = driver.open(&keyspace, deadline).await.unwrap().unwrap();
            let mut call = 0;
            let script = move |op| {
                let is_write = op == CallKind::PutOrdered;
                call += usize::from(is_write);
                if is_write && call > fails { fault } else { Fault::None }
            };
            let faulty = Faulty::scripted(storage, clock.clone(), script);
            let rows = NumberRows::of_app(Arc::new(faulty), clock.clone(), AppNumber(1));
            let numbers: Vec<LastNumber> =
                (0..count).map(|ws| LastNumber { ws, seq: 1, number: 7 }).collect();
            let replayed = StoredOffset { partition: 0, epoch: 1, next: 9 };
            rows.store(&numbers, replayed, || ready(Ok(deadline))).await.unwrap_err();
            let stored = rows.last(count - 1, &[1], deadline).await.unwrap();
            if let Some(next) = rows.next_offset(0, deadline).await.unwrap() {
                assert_eq!((next, stored), (9, vec![Some(7)]));
            }
        }
    }
}

/// Another program has written the row of a number, so that the row hides ordered writes. A call
/// fails. If the offset is stored, the row shows its number nevertheless.
#[tokio::test]
async fn no_offset_is_stored_while_a_number_is_hidden() {
    let clock = Clock::system();
    let deadline = clock.now() + Duration::from_secs(60);
    let replayed = |next| StoredOffset { partition: 0, epoch: 1, next };
    let seven = LastNumber { ws: 1, seq: 1, number: 7 };
    // The put, the read back, the conditional write and the read back of the number, and the
    // put and the read back of the offset.
    const CALLS: usize = 6;
    let faults = [Fault::Unavailable, Fault::NotAppliedButError, Fault::AppliedButError];
    let cases = (1..=CALLS + 1).flat_map(|fails| faults.map(|fault| (fails, fault)));
    for (fails, fault) in cases {
        let driver = MemDriver::new(clock.clone());
        let keyspace = KeyspaceName::new("numbers").unwrap();
        driver.create(&keyspace, deadline).await.unwrap();
        let storage = driver.open(&keyspace, deadline).await.unwrap().unwrap();
        let plain = NumberRows::of_app(Arc::clone(&storage), clock.clone(), AppNumber(1));
        plain
            .store(&[LastNumber { number: 3, ..seven }], replayed(4), || ready(Ok(deadline)))
            .await
            .unwrap();
        let three = Bytes::copy_from_slice(&3_u64.to_be_bytes());
        let key = plain.key(0, NumberPlace::Last { ws: 1, seq: 1 });
        assert!(plain.replace_number(&key, three, 3, deadline).await.unwrap());

        let mut calls = 0;
        let script = move |_| {
            calls += 1;
            if calls == fails { fault } else { Fault::None }
        };
        let faulty = Faulty::scripted(storage, clock.clone(), script);
        let rows = NumberRows::of_app(Arc::new(faulty), clock.clone(), AppNumber(1));
        let stored = rows.store(&[seven], replayed(8), || ready(Ok(deadline))).await;
        assert_eq!(stored.is_err(), fails <= CALLS, "{fails}, {fault:?}: {stored:?}");
        let next = plain.next_offset(0, deadline).await.unwrap();
        let number = plain.last(1, &[1], deadline).await.unwrap();
        let is_right = next == Some(4) || number == [Some(7)];
        assert!(is_right, "call {fails}, {fault:?}: {next:?} is stored, with {number:?}");
    }
}

#[tokio::test]
async fn raised_numbers_never_fall() {
    let clock = Clock::system();
    let deadline = clock.now() + Duration::from_secs(60);
    let driver = MemDriver::new(clock.clone());
    let keyspace = KeyspaceName::new("numbers").unwrap();
    driver.create(&keyspace, deadline).await.unwrap();
    let storage = driver.open(&keyspace, deadline).await.unwrap().unwrap();
    let rows = NumberRows::of_app(storage, clock, AppNumber(1));
    let raise = async |number| {
        let numbers = [LastNumber { ws: 7, seq: 2, number }];
        rows.raise(&numbers, || ready(Ok(deadline))).await.unwrap();
        rows.last(7, &[2], deadline).await.unwrap()
    };
    assert_eq!(raise(9).await, [Some(9)]);
    assert_eq!(raise(8).await, [Some(9)]);
    assert_eq!(raise(12).await, [Some(12)]);
    rows.raise(&[], || ready(Ok(deadline))).await.unwrap();
    assert_eq!(rows.next_offset(0, deadline).await.unwrap(), None);
}

/// A storage with calls that take a time for each row, and fail at their deadline.
#[derive(Debug)]
struct SlowStorage {
    inner: SharedStorage,
    manual: ManualClock,
    each_row: Duration,
    /// The rows of each call.
    calls: Mutex<Vec<(CallKind, usize)>>,
}

impl StorageWrapper for SlowStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        self.calls.lock().unwrap().push((call.kind(), call.rows()));
        let takes = self.each_row * u32::try_from(call.rows()).unwrap();
        let left = deadline - self.manual.clock().now();
        self.manual.advance(takes.min(left));
        match (takes <= left, &call) {
            (true, _) => call.send(&self.inner, Instant::FAR_FUTURE).await,
            (false, Call::Write(_)) => Err(istorage::Error::outcome_unknown("took too long")),
            (false, _) => Err(istorage::Error::unavailable("took too long")),
        }
    }
}

impl SlowStorage {
    async fn new(each_row: Duration) -> Arc<SlowStorage> {
        let manual = ManualClock::new(0);
        let driver = MemDriver::new(manual.clock());
        let keyspace = KeyspaceName::new("numbers").unwrap();
        driver.create(&keyspace, Instant::FAR_FUTURE).await.unwrap();
        let inner = driver.open(&keyspace, Instant::FAR_FUTURE).await.unwrap().unwrap();
        Arc::new(SlowStorage { inner, manual, each_row, calls: Mutex::default() })
    }

    fn rows(self: &Arc<SlowStorage>) -> NumberRows {
        let storage = Arc::clone(self) as SharedStorage;
        NumberRows::of_app(storage, self.manual.clock(), AppNumber(1))
    }

    /// The numbers and the offset are stored, with calls that may take 2 s. Returns the error of
    /// the try, if it has failed.
    async fn store(&self, rows: &NumberRows, numbers: &[LastNumber], next: u64) -> Result<()> {
        let clock = self.manual.clock();
        let replayed = StoredOffset { partition: 0, epoch: 1, next };
        rows.store(numbers, replayed, || ready(Ok(clock.now() + Duration::from_secs(2)))).await
    }
}

fn numbers(count: u64) -> Vec<LastNumber> {
    (0..count).map(|ws| LastNumber { ws, seq: 1, number: 7 }).collect()
}

/// A recovery stored 500 numbers by one call and read them back by another one, both within 2 s. A
/// slow storage needs longer. Each try made the same calls, and failed, so the partition never
/// recovered.
#[tokio::test]
async fn a_slow_storage_stores_numbers_in_smaller_parts() {
    let storage = SlowStorage::new(Duration::from_millis(10)).await;
    let rows = storage.rows();
    storage.store(&rows, &numbers(500), 9).await.unwrap();
    let calls = storage.calls.lock().unwrap().clone();
    assert!(calls.len() < 20, "{calls:?}");
    let offset = calls.iter().position(|call| *call == (CallKind::PutOrdered, 1)).unwrap();
    let shown = |calls: &[(CallKind, usize)]| -> usize {
        calls.iter().filter(|(kind, _)| *kind == CallKind::GetBatch).map(|(_, rows)| rows).sum()
    };
    assert_eq!(shown(&calls[..offset]), 500, "the offset is stored after all numbers are shown");
    for ws in 0..500 {
        let stored = rows.last(ws, &[1], Instant::FAR_FUTURE).await.unwrap();
        assert_eq!(stored, [Some(7)], "workspace {ws}");
    }
    assert_eq!(rows.next_offset(0, Instant::FAR_FUTURE).await.unwrap(), Some(9));
}

/// Each try begins with the smaller parts of the last one. Each call has its own time, even if a
/// row hides its number, which takes four calls.
#[tokio::test]
async fn numbers_are_stored_if_each_call_can_have_a_single_row() {
    let storage = SlowStorage::new(Duration::from_millis(1_500)).await;
    let (rows, clock) = (storage.rows(), storage.manual.clock());
    let key = rows.sequence_key(30, 1);
    let foreign = Bytes::copy_from_slice(&3_u64.to_be_bytes());
    let inserted =
        storage.inner.insert_if_not_exists(key, foreign, None, Instant::FAR_FUTURE).await;
    assert!(inserted.unwrap().is_applied());
    let mut tries = 1;
    loop {
        let start = clock.now();
        match storage.store(&rows, &numbers(100), 9).await {
            Ok(()) => break,
            Err(error) => assert!(matches!(error, Error::Storage(_)), "{error:?}"),
        }
        let took = clock.now() - start;
        assert!(took <= Duration::from_secs(7), "try {tries} took {took:?}");
        assert_eq!(rows.next_offset(0, Instant::FAR_FUTURE).await.unwrap(), None);
        tries += 1;
        assert!(tries < 5, "the numbers are never stored");
    }
    assert!(tries > 1, "the storage was not slow");
    let stored = rows.last(30, &[1], Instant::FAR_FUTURE).await.unwrap();
    assert_eq!(stored, [Some(7)]);
}

/// The first put gets no answer, the second one is done, and later ones are refused for good.
#[derive(Debug)]
struct RefusedPuts {
    inner: SharedStorage,
    manual: ManualClock,
    puts: Mutex<usize>,
}

impl StorageWrapper for RefusedPuts {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        if call.kind() == CallKind::PutOrdered {
            let put = *self.puts.lock().unwrap();
            *self.puts.lock().unwrap() += 1;
            match put {
                0 => {
                    self.manual.advance(deadline - self.manual.clock().now());
                    return Err(istorage::Error::outcome_unknown("no answer"));
                }
                1 => {}
                _ => return Err(istorage::Error::invalid("refused")),
            }
        }
        call.send(&self.inner, Instant::FAR_FUTURE).await
    }
}

/// The put of all numbers may still land when the put of half of them was done. So the error is not
/// that of the other half, which leaves no write open. The offset is not stored.
#[tokio::test]
async fn a_put_without_an_answer_is_not_forgotten() {
    let SlowStorage { inner, manual, .. } =
        Arc::into_inner(SlowStorage::new(Duration::ZERO).await).unwrap();
    let clock = manual.clock();
    let storage = Arc::new(RefusedPuts { inner, manual, puts: Mutex::default() });
    let rows =
        NumberRows::of_app(Arc::clone(&storage) as SharedStorage, clock.clone(), AppNumber(1));
    let replayed = StoredOffset { partition: 0, epoch: 1, next: 9 };
    let deadline = || ready(Ok(clock.now() + Duration::from_secs(2)));
    let error = rows.store(&numbers(4), replayed, deadline).await.unwrap_err();
    let is_unknown = |error: &istorage::Error| error.kind() == istorage::ErrorKind::OutcomeUnknown;
    assert!(matches!(&error, Error::Storage(error) if is_unknown(error)), "{error:?}");
    assert_eq!(*storage.puts.lock().unwrap(), 3);
    assert_eq!(rows.next_offset(0, Instant::FAR_FUTURE).await.unwrap(), None);
}
