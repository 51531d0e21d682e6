//! The end of a sequencer, after which no task and no memory is left.

use std::{
    future::{pending, ready},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use clock::{Clock, ManualClock};
use futures::{StreamExt, stream::BoxStream};
use isequencer::{
    CloseError, LoggedEvent, MemSeqStorage, NumberKey, Offset, Params, SeqId, SeqStorage,
    Sequencer, SequencerBusy, StorageError, Unflushed, WsId,
    mem::{CallOutcome, SeqStorageCall},
};
use tokio::sync::Semaphore;

use crate::common::{KIND, command, failing, hook, key, offset, params, sequencer, until};

/// A deadline of the system's clock, for a close that must not need it. Tests of what happens at a
/// deadline have a clock of their own.
fn soon(millis: u64) -> clock::Instant {
    Clock::system().now() + Duration::from_millis(millis)
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn closing_stores_the_unflushed_numbers() {
    let mem = MemSeqStorage::new();
    // Without `close` the numbers would be stored after an hour.
    let flush_delay = Duration::from_secs(3_600);
    let mut sequencer = sequencer(Params { flush_delay, ..params() }, &mem);
    for ws in 1..=2 {
        command(&mut sequencer, &mem, ws).await;
    }
    tokio::task::yield_now().await;
    assert_eq!(mem.offset(), Some(offset(1)));
    sequencer.close(soon(20_000)).await.unwrap();
    assert_eq!((mem.offset(), mem.number(key(2)), tasks()), (Some(offset(3)), 1, 0));
}

/// Closes a sequencer with a deadline on its clock. Returns the result, which must come at the
/// deadline and not before.
async fn close_at_deadline(sequencer: Sequencer, manual: &ManualClock) -> Result<(), CloseError> {
    const MILLI: Duration = Duration::from_millis(1);
    let mut closing = pin!(sequencer.close(manual.clock().now() + 50 * MILLI));
    for passes in [49 * MILLI, MILLI] {
        for _ in 0..100 {
            assert!(futures::poll!(&mut closing).is_pending(), "before the deadline");
            tokio::task::yield_now().await;
        }
        manual.advance(passes);
    }
    for _ in 0..100 {
        if let Poll::Ready(closed) = futures::poll!(&mut closing) {
            return closed;
        }
        tokio::task::yield_now().await;
    }
    panic!("the deadline is over");
}

#[tokio::test]
async fn closing_ends_at_the_deadline_although_the_storage_fails_or_hangs() {
    let (mem, manual) = (MemSeqStorage::new(), ManualClock::new(1));
    let sequencer = |storage: &MemSeqStorage| {
        Sequencer::new(params(), Arc::new(storage.clone()), manual.clock())
    };
    let (hooked, fails) = failing(&mem);
    let mut one = sequencer(&hooked);
    one.ready().await.unwrap();
    fails.store(true, Ordering::Release);
    command(&mut one, &mem, 1).await;
    let unflushed = Unflushed { numbers: 1, events: 1 };
    assert_eq!(close_at_deadline(one, &manual).await, Err(CloseError::NotFlushed(unflushed)));

    // An event that drew no number also waits, for its offset to be stored.
    let (hooked, fails) = failing(&mem);
    let mut two = sequencer(&hooked);
    two.ready().await.unwrap();
    fails.store(true, Ordering::Release);
    let mut transaction = two.start().unwrap();
    let command = transaction.join(KIND, WsId(1)).await.unwrap();
    assert_eq!(mem.append(Vec::new()), command.keep());
    transaction.flush();
    let unflushed = Unflushed { numbers: 0, events: 1 };
    assert_eq!(close_at_deadline(two, &manual).await, Err(CloseError::NotFlushed(unflushed)));

    let hangs = sequencer(&mem.with_hook(hook(|_| pending())));
    tokio::task::yield_now().await;
    assert_eq!(close_at_deadline(hangs, &manual).await, Err(CloseError::CutOff));
    assert_eq!(tasks(), 0);
}

/// The pause before the next try to read the log is not waited for.
#[tokio::test]
async fn closing_ends_at_once_while_the_log_cannot_be_read() {
    let mem = MemSeqStorage::new();
    let failing = mem.with_hook(hook(|_| ready(CallOutcome::Failed)));
    let retry_after = Duration::from_secs(3_600);
    let sequencer = sequencer(Params { retry_after, ..params() }, &failing);
    let monitor = sequencer.monitor();
    until(|| monitor.last_error().is_some()).await;
    assert_eq!((sequencer.close(soon(20_000)).await, tasks()), (Ok(()), 0));
}

/// `close` aborted the task that reads the log in the middle of a write, although the storage
/// answered. The caller could not know whether the write was over. So a node that was stopped
/// during recovery ended with an error, and kept its lease.
#[tokio::test]
async fn closing_waits_for_a_call_to_the_storage_that_is_under_way() {
    for held in [
        SeqStorageCall::NextOffset,
        SeqStorageCall::NextEvent,
        SeqStorageCall::WriteNumbers,
        SeqStorageCall::WriteOffset,
    ] {
        let mem = MemSeqStorage::new();
        mem.append(vec![(key(1), 1)]);
        let (begun, ended) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let go_on = Arc::new(Semaphore::new(0));
        let (tells, waits, ends) = (Arc::clone(&begun), Arc::clone(&go_on), Arc::clone(&ended));
        let slow = mem.with_hook(hook(move |call| {
            let (tells, waits, ends) = (Arc::clone(&tells), Arc::clone(&waits), Arc::clone(&ends));
            async move {
                if call == held {
                    tells.add_permits(1);
                    waits.acquire().await.unwrap().forget();
                    ends.fetch_add(1, Ordering::SeqCst);
                }
                CallOutcome::Done
            }
        }));
        let sequencer = sequencer(params(), &slow);
        begun.acquire().await.unwrap().forget();
        let close = sequencer.close(soon(20_000));
        let goes_on = async {
            tokio::task::yield_now().await;
            go_on.add_permits(100);
        };
        let (closed, ()) = futures::join!(close, goes_on);
        assert_eq!((closed, tasks()), (Ok(()), 0));
        assert_eq!(ended.load(Ordering::SeqCst), 1, "{held:?} was cut off");
    }
}

#[tokio::test]
async fn a_dropped_sequencer_ends() {
    let mem = MemSeqStorage::new();
    drop(sequencer(params(), &mem));
    until(|| tasks() == 0).await;
}

/// A storage that panics ends the sequencer. A caller that waits gets an error.
#[tokio::test]
async fn a_storage_that_panics_closes_the_sequencer() {
    let mem = MemSeqStorage::new();
    let panics = mem.with_hook(hook(|call| async move {
        assert_ne!(call, SeqStorageCall::NextOffset, "a panic on purpose");
        CallOutcome::Done
    }));
    let mut sequencer = sequencer(params(), &panics);
    assert_eq!(sequencer.ready().await, Err(SequencerBusy::Closed));
    let last_error = sequencer.monitor().last_error().unwrap();
    assert_eq!(last_error.0.to_string(), "the storage panicked");
    assert_eq!(sequencer.start().unwrap_err(), SequencerBusy::Closed);
}

/// A log without its second event, until the flag is set.
#[derive(Debug)]
struct Hole(MemSeqStorage, AtomicBool);

#[async_trait]
impl SeqStorage for Hole {
    async fn read_numbers(&self, ws: WsId, seqs: &[SeqId]) -> Result<Vec<u64>, StorageError> {
        self.0.read_numbers(ws, seqs).await
    }

    async fn next_offset(&self) -> Result<Offset, StorageError> {
        self.0.next_offset().await
    }

    async fn write(&self, numbers: &[(NumberKey, u64)], next: Offset) -> Result<(), StorageError> {
        self.0.write(numbers, next).await
    }

    fn events(&self, from: Offset) -> BoxStream<'_, Result<LoggedEvent, StorageError>> {
        let is_there = |event: &Result<LoggedEvent, StorageError>| {
            let is_second = event.as_ref().is_ok_and(|event| event.offset == offset(2));
            !is_second || self.1.load(Ordering::Acquire)
        };
        self.0.events(from).filter(move |event| ready(is_there(event))).boxed()
    }
}

/// The sequencer reports the error while the event is missing, and goes on when the event is there.
#[tokio::test]
async fn a_log_with_a_hole_is_an_error_until_it_is_mended() {
    let mem = MemSeqStorage::new();
    for number in 1..=3 {
        mem.append(vec![(key(1), number)]);
    }
    let hole = Arc::new(Hole(mem.clone(), AtomicBool::new(false)));
    let storage = Arc::clone(&hole);
    let mut sequencer = Sequencer::new(params(), storage, Clock::system());
    until(|| sequencer.monitor().last_error().is_some()).await;
    let last_error = sequencer.monitor().last_error().unwrap();
    assert_eq!(last_error.0.to_string(), "the log has event 3 instead of event 2");
    assert_eq!(sequencer.monitor().busy(), Some(SequencerBusy::Actualizing));
    hole.1.store(true, Ordering::Release);
    sequencer.ready().await.unwrap();
    assert!(sequencer.monitor().last_error().is_none());
    assert_eq!(command(&mut sequencer, &mem, 1).await, 4);
}

#[test]
fn a_thousand_sequencers_leave_no_task_and_no_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rounds = |rounds: usize| {
        let measured = allocation_counter::measure(|| {
            runtime.block_on(async {
                for round in 0..rounds {
                    let mem = MemSeqStorage::new();
                    let mut sequencer = sequencer(params(), &mem);
                    for ws in 0..10 {
                        command(&mut sequencer, &mem, ws).await;
                    }
                    if round % 2 == 0 {
                        sequencer.close(soon(20_000)).await.unwrap();
                    } else {
                        drop(sequencer);
                    }
                }
                until(|| tasks() == 0).await;
            });
        });
        measured.bytes_current
    };
    rounds(100);
    let left = rounds(1_000);
    assert!(left < 1_000, "{left} bytes");
}

/// The runtime was dropped before it ran the keeper once.
#[test]
fn a_sequencer_whose_runtime_was_dropped_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gone = runtime();
    let mut sequencer = gone.block_on(async { sequencer(params(), &MemSeqStorage::new()) });
    drop(gone);
    let monitor = sequencer.monitor();
    assert_eq!(monitor.busy(), Some(SequencerBusy::Closed));
    assert_eq!(runtime().block_on(sequencer.ready()), Err(SequencerBusy::Closed));
}

/// The storage answers at once, so only the budget of the task makes the keeper yield while it
/// reads a long log. A keeper that does not yield reads the log to its end before it notices that
/// it is to be closed.
///
/// The test used to measure 200 ms of wall clock, and failed on a busy machine. The number of
/// events that are read after the call does not depend on the machine.
#[tokio::test]
async fn closing_ends_in_time_while_the_log_is_read() {
    const EVENTS: usize = 100_000;
    const READ_AT_MOST: usize = 1_000;
    let mem = MemSeqStorage::new();
    for number in 1..=EVENTS as u64 {
        mem.append(vec![(key(number % 1_000), number)]);
    }
    let read = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    let mem = mem.with_hook(hook(move |call| {
        counted.fetch_add(usize::from(call == SeqStorageCall::NextEvent), Ordering::SeqCst);
        ready(CallOutcome::Done)
    }));
    let sequencer = sequencer(params(), &mem);
    let monitor = sequencer.monitor();
    until(|| read.load(Ordering::SeqCst) > 0).await;
    assert_eq!(monitor.busy(), Some(SequencerBusy::Actualizing));
    let before = read.load(Ordering::SeqCst);
    sequencer.close(clock::Instant::FAR_FUTURE).await.unwrap();
    let since = read.load(Ordering::SeqCst) - before;
    assert!(since <= READ_AT_MOST, "{since} events were read after the call");
}
