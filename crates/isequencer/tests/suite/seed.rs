//! The tests that the requirements name. Each comment has the name and the promise.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use fastrand::Rng;
use isequencer::{MemSeqStorage, Offset, Params, SequencerBusy, Unflushed, WsId, mem::CallOutcome};

use crate::common::{
    KIND, OTHER, SEQ, command, failing, gated, hook, key, offset, params, sequencer, until,
};

/// `isequencer.test.NewMustStartActualization`: a new sequencer reads the log, and is busy until
/// the log is read.
#[tokio::test]
async fn new_must_start_actualization() {
    let mem = MemSeqStorage::new();
    mem.append(vec![(key(1), 3)]);
    let (mem, gate) = gated(&mem);
    let mut sequencer = sequencer(params(), &mem);
    for _ in 0..10 {
        assert_eq!(sequencer.start().unwrap_err(), SequencerBusy::Actualizing);
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    sequencer.ready().await.unwrap();
    assert_eq!(sequencer.monitor().next_offset(), Some(offset(2)));
    assert_eq!(command(&mut sequencer, &mem, 1).await, 4);
}

/// `isequencer.test.Race`: keeper, owner and observers run in threads of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn race() {
    for seed in 0..50 {
        let mem = MemSeqStorage::new();
        let mem = mem.with_hook(hook(|_| async {
            tokio::task::yield_now().await;
            CallOutcome::Done
        }));
        let cached_numbers = 8;
        let mut sequencer = sequencer(Params { cached_numbers, ..params() }, &mem);
        let (monitor, is_over) = (sequencer.monitor(), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        #[expect(clippy::disallowed_methods, reason = "the test waits for its end")]
        let observer = std::thread::spawn(move || {
            while !over.load(Ordering::Acquire) {
                let Unflushed { numbers, events } = monitor.unflushed();
                assert!(numbers <= 5 && events <= 100, "{numbers}, {events}");
                let _ = (monitor.busy(), monitor.next_offset());
            }
        });
        let mut random = Rng::with_seed(seed);
        let mut last = [0; 20];
        for _ in 0..300 {
            let ws = random.usize(0..20);
            let number = command(&mut sequencer, &mem, ws as u64).await;
            assert_eq!(number, last[ws] + 1);
            last[ws] = number;
        }
        let deadline = clock::Clock::system().now() + std::time::Duration::from_secs(10);
        sequencer.close(deadline).await.unwrap();
        is_over.store(true, Ordering::Release);
        observer.join().unwrap();
        assert_eq!(mem.offset(), Some(offset(301)));
        for (ws, last) in last.into_iter().enumerate() {
            assert_eq!(mem.number(key(ws as u64)), last);
        }
    }
}

/// `isequencer.test.LongRecovery`: the log has up to ten times as many events as numbers may wait.
#[tokio::test]
async fn long_recovery() {
    for events in 0..=50 {
        let mem = MemSeqStorage::new();
        for event in 0..events {
            mem.append(vec![(key(event % 7), event / 7 + 1), (key(100), event + 1)]);
        }
        let mut sequencer = sequencer(params(), &mem);
        sequencer.ready().await.unwrap();
        assert_eq!(sequencer.monitor().next_offset(), Some(offset(events + 1)));
        assert_eq!(mem.offset(), Some(offset(events + 1)), "stored before the first command");
        for ws in 0..7 {
            let number = command(&mut sequencer, &mem, ws).await;
            assert_eq!(number, (events + 6 - ws) / 7 + 1, "{ws} after {events} events");
        }
        assert_eq!(command(&mut sequencer, &mem, 100).await, events + 1);
    }
}

/// `isequencer.test.MultipleActualizes`: in a hundred transactions, some are not written.
#[tokio::test]
async fn multiple_actualizes() {
    let mem = MemSeqStorage::new();
    let mut random = Rng::with_seed(1);
    let mut sequencer = sequencer(params(), &mem);
    let (mut last, mut written) = ([0; 2], 0);
    for _ in 0..100 {
        sequencer.ready().await.unwrap();
        let mut transaction = sequencer.start().unwrap();
        let mut command = transaction.join(KIND, WsId(1)).await.unwrap();
        for place in 0..random.usize(0..=2) {
            assert_eq!(command.next([SEQ, OTHER][place]), Ok(last[place] + 1));
        }
        let numbers: Vec<_> = command.drawn().collect();
        assert_eq!(command.keep(), offset(written + 1));
        if random.bool() {
            written += 1;
            numbers.iter().zip(&mut last).for_each(|((_, number), last)| *last = *number);
            mem.append(numbers);
            transaction.flush();
        } else {
            transaction.actualize();
            assert_eq!(sequencer.start().unwrap_err(), SequencerBusy::Actualizing);
        }
    }
    assert!((30..70).contains(&written), "{written}");
}

/// `isequencer.test.FlushPermanentlyFails`: exactly as many numbers wait as the limit allows. When
/// the storage works again, the sequencer works again.
#[tokio::test]
async fn flush_permanently_fails() {
    let mem = MemSeqStorage::new();
    let (hooked, fails) = failing(&mem);
    let mut sequencer = sequencer(params(), &hooked);
    sequencer.ready().await.unwrap();
    fails.store(true, Ordering::Release);
    for ws in 1..=5 {
        assert_eq!(sequencer.monitor().unflushed().numbers, ws - 1);
        assert_eq!(command(&mut sequencer, &mem, ws as u64).await, 1);
        tokio::task::yield_now().await;
    }
    assert_eq!(sequencer.start().unwrap_err(), SequencerBusy::Unflushed);
    until(|| sequencer.monitor().last_error().is_some()).await;
    assert_eq!(sequencer.start().unwrap_err(), SequencerBusy::Unflushed);
    assert_eq!(mem.offset(), Some(Offset::FIRST));

    fails.store(false, Ordering::Release);
    sequencer.ready().await.unwrap();
    assert_eq!(command(&mut sequencer, &mem, 1).await, 2);
    until(|| mem.offset() == Some(offset(7))).await;
    assert_eq!((mem.number(key(1)), mem.number(key(5))), (2, 1));
    assert!(sequencer.monitor().last_error().is_none());
}

/// The limit of events also holds if the events draw few numbers. The next start reads all events
/// again that wait for their offset to be stored.
#[tokio::test]
async fn a_flush_that_fails_ends_in_busy_although_few_numbers_wait() {
    let mem = MemSeqStorage::new();
    let (hooked, fails) = failing(&mem);
    let mut sequencer = sequencer(params(), &hooked);
    sequencer.ready().await.unwrap();
    fails.store(true, Ordering::Release);
    for _ in 0..100 {
        command(&mut sequencer, &mem, 1).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(sequencer.start().unwrap_err(), SequencerBusy::Unflushed);
    let unflushed = Unflushed { numbers: 2, events: 100 };
    assert_eq!(sequencer.monitor().unflushed(), unflushed, "one is being stored, one waits");
    fails.store(false, Ordering::Release);
    sequencer.ready().await.unwrap();
}
