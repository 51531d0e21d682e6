//! Recoveries by a leader whose clock is ahead, and on a storage that is slow.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant, ManualClock, WallTime};
use eventlog::{
    AppRow, Epoch, Error, Event, Idempotency, Log, LogSettings, SingleNodeFence, TrustLevel,
};
use istorage::{AppStorageExt, Call, CallAnswer, Result, SharedStorage, StorageWrapper};
use support::{LEVELS, PARTITION, PARTITIONS, WS, event, only_in_plog, replayed, storage};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The time for which answers are kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

fn log_with(storage: &SharedStorage, clock: &Clock, level: TrustLevel) -> Log {
    let settings = LogSettings { level, answers_kept: KEPT, ..LogSettings::new(PARTITIONS) };
    let fence = Arc::new(SingleNodeFence(Epoch(2)));
    Log::new(Arc::clone(storage), clock.clone(), fence, PARTITION, settings)
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

/// The hours for which the answer of an event is still stored, rounded up; `None` if there is none.
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

/// The end of a long log is not read together with its first events. Answers are measured against
/// the last event all the same: old answers do not come back when a log is read from its beginning.
/// If the clock is behind the last event, the clock counts.
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

/// A storage whose batch read takes a time for each row, and fails at its deadline.
#[derive(Debug)]
struct SlowReads {
    inner: SharedStorage,
    manual: ManualClock,
    each_row: Duration,
    calls: AtomicUsize,
}

impl SlowReads {
    /// A storage whose log has events, each of which makes two rows that a recovery reads.
    async fn with_events(count: u64, each_row: Duration) -> Arc<SlowReads> {
        let inner = storage().await;
        for offset in 1..=count {
            let event = Event { idempotency: None, ..keyed(offset, HOUR) };
            only_in_plog(&inner, TrustLevel::Zero, &event).await;
        }
        let (manual, calls) = (ManualClock::new(0), AtomicUsize::new(0));
        Arc::new(SlowReads { inner, manual, each_row, calls })
    }

    fn log(self: &Arc<SlowReads>) -> Log {
        let storage = Arc::clone(self) as SharedStorage;
        log_with(&storage, &self.manual.clock(), TrustLevel::Zero)
    }
}

impl StorageWrapper for SlowReads {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if let Call::GetBatch(keys) = &call {
            self.calls.fetch_add(1, Ordering::SeqCst);
            let takes = self.each_row * u32::try_from(keys.len()).unwrap();
            let left = deadline - self.manual.clock().now();
            self.manual.advance(takes.min(left));
            if takes > left {
                return Err(istorage::Error::unavailable("the read took too long"));
            }
        }
        call.send(&self.inner, Instant::FAR_FUTURE).await
    }
}

/// A recovery read the rows of 256 events by one call, which may take 2 s. A slow storage could not
/// read them in this time. Each attempt made the same call, and failed, so the partition never
/// recovered.
#[tokio::test]
async fn a_slow_storage_is_read_in_smaller_parts() {
    let slow = SlowReads::with_events(600, Duration::from_millis(10)).await;
    let log = slow.log();
    assert_eq!(replayed(&log, 1).await.unwrap().len(), 600);
    let calls = slow.calls.load(Ordering::SeqCst);
    assert!(calls < 20, "{calls} calls for 1,200 rows, of which one call can read 200");
}

/// A recovery is given up if no read succeeds within the time to apply events. The next one begins
/// with the smaller parts of the last one, so it comes to an end also if only single rows can be
/// read within a call.
#[tokio::test]
async fn an_attempt_that_is_given_up_makes_the_next_one_read_less() {
    let slow = SlowReads::with_events(200, Duration::from_millis(1_500)).await;
    let (log, clock) = (slow.log(), slow.manual.clock());
    let mut attempts = 1;
    loop {
        let start = clock.now();
        match replayed(&log, 1).await {
            Ok(events) => break assert_eq!(events.len(), 200),
            Err(error) => assert!(matches!(error, Error::Storage(_)), "{error:?}"),
        }
        let took = clock.now() - start;
        assert!(took <= Duration::from_secs(7), "attempt {attempts} took {took:?}");
        attempts += 1;
        assert!(attempts < 5, "the log is never read");
    }
    assert!(attempts > 1, "the storage was not slow");
}
