//! Recoveries by a leader whose clock is ahead, and on a storage that is slow.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant, ManualClock, WallTime};
use eventlog::{
    AppRow, Epoch, Error, Event, Idempotency, LogSettings, LogWriter, SingleNodeFence, TrustLevel,
};
use istorage::{
    AppStorageExt, Call, CallAnswer, CallKind, Capabilities, Result, SharedStorage, StorageWrapper,
};

use crate::support::{
    LEVELS, PARTITION, PARTITIONS, WS, event, events, only_in_plog, replayed, storage,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// How long answers are kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

fn log_with(storage: &SharedStorage, clock: &Clock, level: TrustLevel) -> LogWriter {
    let settings = LogSettings { level, answers_kept: KEPT, ..LogSettings::new(PARTITIONS) };
    let fence = Arc::new(SingleNodeFence(Epoch(2)));
    LogWriter::new(Arc::clone(storage), clock.clone(), fence, PARTITION, settings)
}

/// An event of a command with a key, at an offset, this long after 1970.
fn keyed(offset: u64, at: Duration) -> Event {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&offset.to_be_bytes());
    Event {
        time: WallTime::from_nanos(u64::try_from(at.as_nanos()).unwrap()),
        idempotency: Some(Idempotency { key, body: [0; 32], answer: "answer".into() }),
        ..event(1, offset, (offset > 1).then(|| (1, offset - 1)))
    }
}

/// How many hours the answer of an event is still stored, rounded up; `None` if there is none.
async fn hours_left(storage: &SharedStorage, event: &Event) -> Option<u64> {
    let row = AppRow::Answer(WS, event.idempotency.as_ref().unwrap().key);
    let ttl = storage.query_ttl(&row.key(), HOUR).await.unwrap()?;
    ttl.map(|left| left.as_secs_f64() / HOUR.as_secs_f64()).map(|hours| hours.ceil() as u64)
}

async fn in_plog(storage: &SharedStorage, level: TrustLevel, events: &[Event]) {
    for event in events {
        only_in_plog(storage, level, event).await;
    }
}

/// A clock that shows this many hours past 1970.
fn clock_at(hours: i64) -> Clock {
    let clock = ManualClock::new(0).clock();
    let now = i64::try_from(clock.wall().as_micros() / 1_000).unwrap();
    clock.with_wall_offset(hours * 3_600_000 - now)
}

/// A leader wrote event 1, of a command with a key, and crashed before it stored the answer. The
/// clock of the next leader was 25 hours ahead, so the answer seemed to be older than a day. The
/// leader did not store it, and did the command again when its sender sent it again.
#[tokio::test]
async fn a_clock_that_is_ahead_drops_no_answer() {
    for level in LEVELS {
        let storage = storage().await;
        let events = [keyed(1, HOUR / 2), keyed(2, HOUR)];
        in_plog(&storage, level, &events).await;
        replayed(&log_with(&storage, &clock_at(25), level), 1).await.unwrap();
        assert_eq!(hours_left(&storage, &events[1]).await, Some(24), "{level:?}");
        assert_eq!(hours_left(&storage, &events[0]).await, Some(24), "{level:?}: 23.5 hours");
    }
}

/// The end of a long log is not read together with its first events. The age of answers is still
/// measured against the last event: old answers do not come back when a log is read from its
/// beginning. If the clock is behind the last event, the clock counts.
#[tokio::test]
async fn answers_are_measured_against_the_last_event_of_a_long_log() {
    for (count, last, clock) in [
        (256, 27, 300),
        (257, 27, 300),
        (258, 27, 300),
        (511, 27, 300),
        (600, 27, 300),
        (600, 300, 27),
    ] {
        let storage = storage().await;
        let at = |offset| if offset < 100 { HOUR * 2 } else { HOUR * 12 };
        let mut events: Vec<Event> = (1..count).map(|offset| keyed(offset, at(offset))).collect();
        events.push(keyed(count, HOUR * last));
        in_plog(&storage, TrustLevel::One, &events).await;
        let log = log_with(&storage, &clock_at(clock), TrustLevel::One);
        replayed(&log, 1).await.unwrap();
        let case = (count, last, clock);
        assert_eq!(hours_left(&storage, &events[0]).await, None, "25 hours old: {case:?}");
        assert_eq!(hours_left(&storage, &events[150]).await, Some(9), "15 hours old: {case:?}");
        assert_eq!(hours_left(&storage, &events[count as usize - 1]).await, Some(24), "{case:?}");
    }
}

/// A storage whose calls take some time for each row, and fail at their deadline. It has no atomic
/// writes.
#[derive(Debug)]
struct SlowStorage {
    inner: SharedStorage,
    manual: ManualClock,
    slow: &'static [CallKind],
    each_row: Duration,
    calls: AtomicUsize,
    /// When an attempt began, or a slow call of it last succeeded.
    done_at: Mutex<Instant>,
}

impl SlowStorage {
    /// A storage whose log has events, each of which makes two rows that a recovery reads.
    async fn with_events(
        level: TrustLevel,
        count: u64,
        slow: &'static [CallKind],
        each_row: Duration,
    ) -> Arc<SlowStorage> {
        let inner = storage().await;
        for offset in 1..=count {
            let event = Event { idempotency: None, ..keyed(offset, HOUR) };
            only_in_plog(&inner, level, &event).await;
        }
        let (manual, calls) = (ManualClock::new(0), AtomicUsize::new(0));
        let done_at = Mutex::new(manual.clock().now());
        Arc::new(SlowStorage { inner, manual, slow, each_row, calls, done_at })
    }

    fn log(self: &Arc<SlowStorage>, level: TrustLevel) -> LogWriter {
        let storage = Arc::clone(self) as SharedStorage;
        log_with(&storage, &self.manual.clock(), level)
    }

    /// Replays the log until an attempt succeeds. Returns the number of attempts.
    async fn attempts(&self, log: &LogWriter, count: usize) -> usize {
        let clock = self.manual.clock();
        for attempt in 1..8 {
            *self.done_at.lock().unwrap() = clock.now();
            match replayed(log, 1).await {
                Ok(events) => {
                    assert_eq!(events.len(), count);
                    return attempt;
                }
                Err(error) => assert!(matches!(error, Error::Storage(_)), "{error:?}"),
            }
            let in_vain = clock.now() - *self.done_at.lock().unwrap();
            assert!(in_vain <= Duration::from_secs(7), "attempt {attempt} took {in_vain:?}");
        }
        panic!("the recovery never ends");
    }
}

impl StorageWrapper for SlowStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: None, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if self.slow.contains(&call.kind()) {
            self.calls.fetch_add(1, Ordering::SeqCst);
            let takes = self.each_row * u32::try_from(call.rows()).unwrap();
            let left = deadline - self.manual.clock().now();
            self.manual.advance(takes.min(left));
            if takes > left {
                return Err(match call {
                    Call::Write(_) => istorage::Error::outcome_unknown("the write took too long"),
                    _ => istorage::Error::unavailable("the read took too long"),
                });
            }
            *self.done_at.lock().unwrap() = self.manual.clock().now();
        }
        call.send(&self.inner, Instant::FAR_FUTURE).await
    }
}

/// The calls of a recovery for many rows: the reads of the rows that are looked at, the puts of
/// records and of the log, and the reads of what was put. Also all of them together.
const CALLS: [(TrustLevel, &[CallKind]); 5] = [
    (TrustLevel::Zero, &[CallKind::GetBatch]),
    (TrustLevel::Zero, &[CallKind::PutOrdered]),
    (TrustLevel::Two, &[CallKind::PutOrdered]),
    (TrustLevel::Zero, &[CallKind::GetValues]),
    (TrustLevel::Zero, &[CallKind::GetBatch, CallKind::PutOrdered, CallKind::GetValues]),
];

/// A recovery read the rows of 256 events by one call, which may take 2 s. A slow storage could not
/// read them in this time. Each attempt made the same call, and failed, so the partition never
/// recovered. The same held for the rows that a recovery puts. A slow read of what was put made one
/// attempt fail.
#[tokio::test]
async fn a_slow_storage_is_used_in_smaller_parts() {
    for (level, slow) in CALLS {
        let each_row = Duration::from_millis(10);
        let storage = SlowStorage::with_events(level, 600, slow, each_row).await;
        let log = storage.log(level);
        assert_eq!(replayed(&log, 1).await.unwrap().len(), 600, "{level:?} {slow:?}");
        let calls = storage.calls.load(Ordering::SeqCst);
        assert!(calls < 30, "{level:?} {slow:?}: {calls} calls, of which one can have 200 rows");
    }
}

/// A recovery is given up if no call succeeds within the time to apply events. The next one begins
/// with the smaller parts of the last one, so it ends even if only single rows can be read or
/// written within a call.
#[tokio::test]
async fn an_attempt_that_is_given_up_makes_the_next_one_do_less_at_once() {
    for (level, slow) in CALLS {
        let each_row = Duration::from_millis(1_500);
        let storage = SlowStorage::with_events(level, 200, slow, each_row).await;
        let attempts = storage.attempts(&storage.log(level), 200).await;
        assert!(attempts > 1, "the storage was not slow: {level:?} {slow:?}");
    }
}

/// The first put of rows gets no answer. The second one is done, and later ones are refused for
/// good.
#[derive(Debug)]
struct RefusedPuts {
    inner: SharedStorage,
    manual: ManualClock,
    puts: AtomicUsize,
}

impl StorageWrapper for RefusedPuts {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: None, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if call.kind() == CallKind::PutOrdered {
            match self.puts.fetch_add(1, Ordering::SeqCst) {
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

/// The put of all rows may still land when the put of half of them was done. So the log is not
/// settled if the other half is refused.
#[tokio::test]
async fn a_put_without_an_answer_is_not_settled_by_that_of_half_of_its_rows() {
    let inner = storage().await;
    for event in events(1, 1, 4, None) {
        only_in_plog(&inner, TrustLevel::Two, &event).await;
    }
    let (manual, puts) = (ManualClock::new(0), AtomicUsize::new(0));
    let storage = Arc::new(RefusedPuts { inner, manual, puts });
    let shared = Arc::clone(&storage) as SharedStorage;
    let log = log_with(&shared, &storage.manual.clock(), TrustLevel::Two);
    let error = replayed(&log, 1).await.unwrap_err();
    assert!(!error.is_lasting(), "{error:?}");
    assert!(log.has_unsettled_writes());
    assert_eq!(storage.puts.load(Ordering::SeqCst), 3);
}
