//! Tests of the keeper: when numbers are stored, and reading the log.

use std::{
    future::ready,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clock::{Clock, ManualClock};
use futures::{StreamExt, stream, stream::BoxStream};
use isequencer::{
    JoinError, LoggedEvent, MemSeqStorage, NumberKey, Offset, Params, SeqId, SeqStorage, Sequencer,
    StorageError, Unflushed, WsId,
    mem::{CallOutcome, SeqStorageCall},
};
use tokio::sync::Semaphore;

use crate::common::{KIND, WS, command, hook, key, offset, params, sequencer, until};

const HOUR: Duration = Duration::from_secs(3_600);
const MILLI: Duration = Duration::from_millis(1);

/// Lets the keeper run until it can do no more.
async fn others_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn few_numbers_wait_for_others_up_to_the_flush_delay() {
    let (mem, manual) = (MemSeqStorage::new(), ManualClock::new(1));
    let params = Params {
        flush_delay: 5 * MILLI,
        max_unflushed: NonZeroUsize::new(100).unwrap(),
        ..params()
    };
    let mut sequencer = Sequencer::new(params, Arc::new(mem.clone()), manual.clock());
    for round in 1..=3 {
        command(&mut sequencer, &mem, 1).await;
        others_run().await;
        manual.advance(4 * MILLI);
        command(&mut sequencer, &mem, 2).await;
        others_run().await;
        assert_eq!(mem.offset(), Some(offset(2 * round - 1)), "too early");
        manual.advance(MILLI);
        others_run().await;
        assert_eq!(mem.offset(), Some(offset(2 * round + 1)), "too late");
    }
}

/// The pause of the flusher after `ready` begins with the first number, and not with the end of
/// the recovery: numbers that are drawn just before the end of such a pause would be stored alone.
#[tokio::test]
async fn the_first_numbers_after_a_recovery_wait_for_the_whole_flush_delay() {
    let (mem, manual) = (MemSeqStorage::new(), ManualClock::new(1));
    for number in 1..=3 {
        mem.append(vec![(key(1), number)]);
    }
    let params = Params { flush_delay: 5 * MILLI, ..params() };
    let mut sequencer = Sequencer::new(params, Arc::new(mem.clone()), manual.clock());
    sequencer.ready().await.unwrap();
    assert_eq!(mem.offset(), Some(offset(4)), "stored before the first command");
    manual.advance(4 * MILLI);
    others_run().await;
    assert_eq!(command(&mut sequencer, &mem, 1).await, 4);
    others_run().await;
    manual.advance(4 * MILLI);
    others_run().await;
    assert_eq!(mem.offset(), Some(offset(4)), "too early");
    manual.advance(MILLI);
    others_run().await;
    assert_eq!(mem.offset(), Some(offset(5)), "too late");
}

#[tokio::test]
async fn many_numbers_are_stored_at_once() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(Params { flush_delay: HOUR, ..params() }, &mem);
    for ws in 1..=5 {
        command(&mut sequencer, &mem, ws).await;
        others_run().await;
    }
    assert!(mem.offset() >= Some(offset(4)), "{:?}", mem.offset());
}

#[tokio::test]
async fn many_events_are_stored_at_once_even_if_they_draw_few_numbers() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(Params { flush_delay: HOUR, ..params() }, &mem);
    for _ in 0..60 {
        command(&mut sequencer, &mem, 1).await;
        others_run().await;
    }
    assert!(mem.offset() >= Some(offset(51)), "{:?}", mem.offset());
}

/// A start that read the log from its first event passed all tests, because a number that is read
/// again changes nothing. Such a start takes longer the older the log is.
#[tokio::test]
async fn a_start_reads_only_the_events_behind_the_stored_offset() {
    let mem = MemSeqStorage::new();
    let mut first = sequencer(params(), &mem);
    for _ in 0..1_000 {
        command(&mut first, &mem, 1).await;
    }
    first.close(Clock::system().now() + HOUR).await.unwrap();
    // The crash of the next leader leaves ten events that are not stored.
    for number in 1_001..=1_010 {
        mem.append(vec![(key(1), number)]);
    }
    let events = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&events);
    let counted = mem.with_hook(hook(move |call| {
        counter.fetch_add(usize::from(call == SeqStorageCall::NextEvent), Ordering::Relaxed);
        ready(CallOutcome::Done)
    }));
    let mut second = sequencer(params(), &counted);
    second.ready().await.unwrap();
    // One more call finds the end of the log.
    assert_eq!(events.load(Ordering::Relaxed), 11);
    assert_eq!(command(&mut second, &mem, 1).await, 1_011);
}

#[tokio::test]
async fn no_number_is_unflushed_after_an_actualization() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(Params { flush_delay: HOUR, ..params() }, &mem);
    command(&mut sequencer, &mem, 1).await;
    sequencer.start().unwrap().actualize();
    sequencer.ready().await.unwrap();
    assert_eq!(sequencer.monitor().unflushed(), Unflushed::default());
}

#[tokio::test]
async fn a_failed_write_is_tried_again_after_a_pause() {
    let (mem, manual) = (MemSeqStorage::new(), ManualClock::new(1));
    let writes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&writes);
    let mem = mem.with_hook(hook(move |call| {
        counter.fetch_add(usize::from(call == SeqStorageCall::WriteNumbers), Ordering::Relaxed);
        async move {
            if call == SeqStorageCall::WriteNumbers {
                CallOutcome::Failed
            } else {
                CallOutcome::Done
            }
        }
    }));
    let params = Params { retry_after: 500 * MILLI, ..params() };
    let _sequencer = Sequencer::new(params, Arc::new(mem), manual.clock());
    for tries in 1..=3 {
        others_run().await;
        manual.advance(499 * MILLI);
        others_run().await;
        assert_eq!(writes.load(Ordering::Relaxed), tries);
        manual.advance(MILLI);
    }
}

/// The test before fails the write of a recovery. No test failed when the write of a command's
/// numbers was tried again without a pause.
#[tokio::test]
async fn a_failed_flush_is_tried_again_after_a_pause() {
    let (mem, manual) = (MemSeqStorage::new(), ManualClock::new(1));
    let (fails, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (failing, counter) = (Arc::clone(&fails), Arc::clone(&failed));
    let hooked = mem.with_hook(hook(move |call| {
        let fails = call == SeqStorageCall::WriteNumbers && failing.load(Ordering::Relaxed);
        counter.fetch_add(usize::from(fails), Ordering::Relaxed);
        ready(if fails { CallOutcome::Failed } else { CallOutcome::Done })
    }));
    let params = Params { retry_after: 500 * MILLI, ..params() };
    let mut sequencer = Sequencer::new(params, Arc::new(hooked), manual.clock());
    sequencer.ready().await.unwrap();
    fails.store(true, Ordering::Relaxed);
    command(&mut sequencer, &mem, 1).await;
    for tries in 1..=3 {
        others_run().await;
        manual.advance(499 * MILLI);
        others_run().await;
        assert_eq!(failed.load(Ordering::Relaxed), tries);
        manual.advance(MILLI);
    }
    fails.store(false, Ordering::Relaxed);
    others_run().await;
    assert_eq!(mem.offset(), Some(offset(2)));
}

/// A recovery that gives up the write under way, as the specification has it, passed all tests. The
/// write may still land. A node that stopped meanwhile would release its lease before that.
#[tokio::test]
async fn an_actualization_waits_for_the_write_that_is_under_way() {
    let (mem, gate) = (MemSeqStorage::new(), Arc::new(Semaphore::new(0)));
    let (is_held, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let reads = Arc::new(AtomicUsize::new(0));
    let (held, blocked, noted, read) =
        (Arc::clone(&is_held), Arc::clone(&gate), Arc::clone(&ended), Arc::clone(&reads));
    let mem = mem.with_hook(hook(move |call| {
        let (gate, ended) = (Arc::clone(&blocked), Arc::clone(&noted));
        let waits = call == SeqStorageCall::WriteNumbers && held.load(Ordering::Relaxed);
        read.fetch_add(usize::from(call == SeqStorageCall::NextOffset), Ordering::Relaxed);
        async move {
            if waits {
                gate.acquire().await.unwrap().forget();
                ended.fetch_add(1, Ordering::Relaxed);
            }
            CallOutcome::Done
        }
    }));
    let mut sequencer = sequencer(params(), &mem);
    sequencer.ready().await.unwrap();
    is_held.store(true, Ordering::Relaxed);
    command(&mut sequencer, &mem, 1).await;
    others_run().await;
    let before = reads.load(Ordering::Relaxed);
    sequencer.start().unwrap().actualize();
    others_run().await;
    assert_eq!(reads.load(Ordering::Relaxed), before, "the write is under way");
    is_held.store(false, Ordering::Relaxed);
    gate.add_permits(1);
    sequencer.ready().await.unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 1, "the write was not given up");
    assert_eq!(reads.load(Ordering::Relaxed), before + 1);
}

/// The numbers of an event may be in any order, and a sequence may occur several times.
#[tokio::test]
async fn the_highest_number_of_an_event_counts() {
    let mem = MemSeqStorage::new();
    mem.append(vec![(key(1), 5), (key(1), 3)]);
    mem.append(vec![(key(1), 4)]);
    assert_eq!(command(&mut sequencer(params(), &mem), &mem, 1).await, 6);
}

/// A storage that records each write, and reads a given log.
#[derive(Debug)]
struct RecordingStorage {
    log: Vec<LoggedEvent>,
    writes: Mutex<Vec<(usize, Offset)>>,
    /// The count of numbers in each answer to `read_numbers`.
    answers: usize,
}

fn recording(events: impl Iterator<Item = (u64, Vec<(NumberKey, u64)>)>) -> Arc<RecordingStorage> {
    let event = |(at, numbers)| LoggedEvent { offset: offset(at), numbers };
    Arc::new(RecordingStorage {
        log: events.map(event).collect(),
        writes: Mutex::default(),
        answers: 2,
    })
}

#[async_trait]
impl SeqStorage for RecordingStorage {
    async fn read_numbers(&self, _: WsId, _: &[SeqId]) -> Result<Vec<u64>, StorageError> {
        Ok(vec![0; self.answers])
    }

    async fn next_offset(&self) -> Result<Offset, StorageError> {
        Ok(Offset::FIRST)
    }

    async fn write(&self, numbers: &[(NumberKey, u64)], next: Offset) -> Result<(), StorageError> {
        self.writes.lock().unwrap().push((numbers.len(), next));
        Ok(())
    }

    fn events(&self, _: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>> {
        stream::iter(self.log.clone()).map(Ok).boxed()
    }
}

/// With many workspaces, numbers are stored before too many of them are in memory.
#[tokio::test]
async fn the_numbers_of_a_long_log_are_bounded_in_memory() {
    let storage = recording((1..=1_000).map(|n| (n, vec![(key(n), 1), (key(n + 10_000), 1)])));
    let clock = Clock::system();
    let mut sequencer = Sequencer::new(params(), Arc::clone(&storage) as _, clock);
    sequencer.ready().await.unwrap();
    let writes = storage.writes.lock().unwrap();
    assert!(writes.iter().all(|(numbers, _)| *numbers <= 6), "{writes:?}");
    let total: usize = writes.iter().map(|(numbers, _)| numbers).sum();
    assert_eq!((total, writes.last().unwrap().1), (2_000, offset(1_001)));
}

/// With one workspace, the offset is stored often. So events are not read again if a later event
/// cannot be read.
#[tokio::test]
async fn reading_a_long_log_makes_progress() {
    let storage = recording((1..=1_000).map(|n| (n, vec![(key(1), n)])));
    let clock = Clock::system();
    let mut sequencer = Sequencer::new(params(), Arc::clone(&storage) as _, clock);
    sequencer.ready().await.unwrap();
    let writes = storage.writes.lock().unwrap();
    let stored = writes.iter().map(|(_, next)| next.0);
    let offsets: Vec<_> = [1].into_iter().chain(stored).collect();
    assert!(offsets.windows(2).all(|two| two[1] - two[0] <= 100), "{offsets:?}");
}

#[tokio::test]
async fn a_log_that_repeats_an_event_or_leaves_one_out_is_an_error() {
    for (offsets, why) in [
        ([1, 1], "the log has event 1 instead of event 2"),
        ([1, 3], "the log has event 3 instead of event 2"),
    ] {
        let storage = recording(offsets.into_iter().map(|n| (n, vec![(key(1), 1)])));
        let sequencer = Sequencer::new(params(), storage, Clock::system());
        let monitor = sequencer.monitor();
        until(|| monitor.last_error().is_some()).await;
        assert_eq!(monitor.last_error().unwrap().0.to_string(), why);
    }
}

#[tokio::test]
async fn an_answer_with_a_wrong_count_of_numbers_is_refused() {
    for answers in [1, 3] {
        let storage = RecordingStorage { answers, log: Vec::new(), writes: Mutex::default() };
        let clock = Clock::system();
        let mut sequencer = Sequencer::new(params(), Arc::new(storage), clock);
        sequencer.ready().await.unwrap();
        let mut transaction = sequencer.start().unwrap();
        let failed = transaction.join(KIND, WS).await.unwrap_err();
        assert!(matches!(failed, JoinError::Storage(..)), "{failed}");
    }
}
