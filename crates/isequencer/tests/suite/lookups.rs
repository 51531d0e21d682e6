//! Tests of the three places of a number: memory, the unflushed numbers and the storage.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use isequencer::{
    JoinError, MemSeqStorage, Params, Unflushed, WsId, WsKind,
    mem::{CallOutcome, SeqStorageCall},
};
use tokio::sync::Semaphore;

use crate::common::{KIND, SEQ, command, failing, hook, key, offset, params, sequencer, until};

/// Returns the same storage, and a counter of the reads of numbers.
fn counted(mem: &MemSeqStorage) -> (MemSeqStorage, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let hook = hook(move |call| {
        counter.fetch_add(usize::from(call == SeqStorageCall::ReadNumbers), Ordering::Relaxed);
        async { CallOutcome::Done }
    });
    (mem.with_hook(hook), reads)
}

#[tokio::test]
async fn a_workspace_in_memory_is_not_read() {
    let (mem, reads) = counted(&MemSeqStorage::new());
    let mut sequencer = sequencer(params(), &mem);
    for n in 1..=10 {
        assert_eq!(command(&mut sequencer, &mem, 1).await, n);
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1, "all sequences of the workspace in one call");
}

#[tokio::test]
async fn an_evicted_number_is_found_among_the_unflushed_numbers() {
    let mem = MemSeqStorage::new();
    let (hooked, fails) = failing(&mem);
    let mut sequencer = sequencer(Params { cached_numbers: 2, ..params() }, &hooked);
    sequencer.ready().await.unwrap();
    fails.store(true, Ordering::Release);
    assert_eq!(command(&mut sequencer, &mem, 1).await, 1);
    // The number is being stored now, and the write keeps failing.
    until(|| sequencer.monitor().last_error().is_some()).await;
    assert_eq!(command(&mut sequencer, &mem, 2).await, 1);
    assert_eq!(command(&mut sequencer, &mem, 1).await, 2);
    // One number is being stored, and a later one of the same sequence waits.
    assert_eq!(command(&mut sequencer, &mem, 2).await, 2);
    assert_eq!(command(&mut sequencer, &mem, 1).await, 3);
    assert_eq!(mem.number(key(1)), 0);
}

/// When the log had to be read again, all numbers that waited were forgotten. Until the log was
/// read, readers did not find the numbers of acknowledged events.
#[tokio::test]
async fn an_unflushed_number_is_found_until_the_log_is_read_again() {
    let mem = MemSeqStorage::new();
    let (hooked, fails) = failing(&mem);
    let flush_delay = Duration::from_secs(3_600);
    let mut sequencer = sequencer(Params { flush_delay, ..params() }, &hooked);
    sequencer.ready().await.unwrap();
    assert_eq!(command(&mut sequencer, &mem, 1).await, 1);
    fails.store(true, Ordering::Release);
    let monitor = sequencer.monitor();
    assert_eq!(monitor.unflushed_number(WsId(1), SEQ), Some(1));
    sequencer.start().unwrap().actualize();
    until(|| monitor.last_error().is_some()).await;
    assert_eq!(monitor.unflushed_number(WsId(1), SEQ), Some(1), "the log is not read yet");
    assert_eq!(monitor.unflushed(), Unflushed::default(), "nothing waits to be stored");
    fails.store(false, Ordering::Release);
    sequencer.ready().await.unwrap();
    assert_eq!((monitor.unflushed_number(WsId(1), SEQ), mem.number(key(1))), (None, 1));
}

#[tokio::test]
async fn an_evicted_number_is_read_from_the_storage() {
    let (mem, reads) = counted(&MemSeqStorage::new());
    let mut sequencer = sequencer(Params { cached_numbers: 2, ..params() }, &mem);
    for n in 1..=5 {
        assert_eq!(command(&mut sequencer, &mem, 1).await, n);
        assert_eq!(command(&mut sequencer, &mem, 2).await, n);
        until(|| mem.offset() == Some(offset(2 * n + 1))).await;
    }
    assert_eq!(reads.load(Ordering::Relaxed), 10);
}

/// The storage reads before the numbers are stored, and answers afterwards.
#[tokio::test]
async fn a_read_that_is_overtaken_by_a_flush_gives_no_number_twice() {
    let mem = MemSeqStorage::new();
    let (reads, writes) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gates = (Arc::clone(&reads), Arc::clone(&writes));
    let hooked = mem.with_hook(hook(move |call| {
        let (reads, writes) = gates.clone();
        async move {
            match call {
                SeqStorageCall::ReadNumbers => reads.acquire().await.unwrap().forget(),
                SeqStorageCall::WriteNumbers => writes.acquire().await.unwrap().forget(),
                _ => {}
            }
            CallOutcome::Done
        }
    }));
    let mut sequencer = sequencer(Params { cached_numbers: 0, ..params() }, &hooked);
    writes.add_permits(1);
    reads.add_permits(2);
    assert_eq!(command(&mut sequencer, &mem, 1).await, 1);
    assert_eq!(command(&mut sequencer, &mem, 2).await, 1);
    let monitor = sequencer.monitor();
    let mut transaction = sequencer.start().unwrap();
    let joins = transaction.join(KIND, WsId(1));
    let overtakes = async {
        // The read is under way. The flush ends first, and then the read.
        tokio::task::yield_now().await;
        writes.add_permits(2);
        until(|| monitor.unflushed().numbers == 0).await;
        assert_eq!(mem.number(key(1)), 1);
        reads.add_permits(1);
    };
    let (joined, ()) = futures::join!(joins, overtakes);
    assert_eq!(joined.unwrap().next(SEQ).unwrap(), 2);
}

/// Before `read_ahead` existed, the numbers of each workspace were read when its first command
/// joined, so the workspaces were read one after another.
#[tokio::test]
async fn workspaces_are_read_ahead_side_by_side_and_then_join_without_a_read() {
    let (begun, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let gates = (Arc::clone(&begun), Arc::clone(&answers));
    let mem = MemSeqStorage::new();
    let hooked = mem.with_hook(hook(move |call| {
        let (begun, answers) = gates.clone();
        async move {
            if call == SeqStorageCall::ReadNumbers {
                begun.fetch_add(1, Ordering::Relaxed);
                answers.acquire().await.unwrap().forget();
            }
            CallOutcome::Done
        }
    }));
    let mut sequencer = sequencer(params(), &hooked);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    // The kind is not declared, so there is nothing to read.
    let unknown = (WsKind(99), WsId(4));
    let all = [1, 2, 3].map(|ws| (KIND, WsId(ws))).into_iter().chain([unknown]);
    let reads = transaction.read_ahead(all);
    let answered = async {
        until(|| begun.load(Ordering::Relaxed) == 3).await;
        answers.add_permits(3);
    };
    futures::join!(reads, answered);
    for ws in [1, 2, 3] {
        assert!(transaction.is_cached(KIND, WsId(ws)), "{ws}");
        let mut command = transaction.join(KIND, WsId(ws)).await.unwrap();
        assert_eq!(command.next(SEQ).unwrap(), 1);
        let _ = command.keep();
    }
    assert!(!transaction.is_cached(KIND, WsId(4)));
    assert_eq!(begun.load(Ordering::Relaxed), 3);
}

/// There is memory for ten workspaces, and commands run on a thousand. No unflushed number is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eviction_under_load_loses_no_number() {
    let mem = MemSeqStorage::new();
    let mut sequencer = sequencer(Params { cached_numbers: 20, ..params() }, &mem);
    let mut last = vec![0; 1_000];
    let mut random = Rng::with_seed(1);
    for _ in 0..20_000 {
        let ws = random.usize(0..1_000);
        let number = command(&mut sequencer, &mem, ws as u64).await;
        assert_eq!(number, last[ws] + 1, "{ws}");
        last[ws] = number;
    }
}

/// A flush of an earlier leader seems to fail, and lands after the next leader has stored higher
/// numbers.
#[tokio::test]
async fn a_flush_that_lands_under_the_next_leader_changes_nothing() {
    let mem = MemSeqStorage::new();
    let hooked = mem.with_hook(hook(|call| async move {
        match call {
            SeqStorageCall::WriteNumbers | SeqStorageCall::WriteOffset => CallOutcome::LandsLater,
            _ => CallOutcome::Done,
        }
    }));
    let mut first = sequencer(params(), &mem);
    command(&mut first, &mem, 1).await;
    until(|| mem.offset() == Some(offset(2))).await;
    drop(first);
    mem.append(vec![(key(1), 2)]);
    let stalls = sequencer(params(), &hooked);
    until(|| stalls.monitor().last_error().is_some()).await;
    drop(stalls);
    let mut next = sequencer(params(), &mem);
    for n in 3..10 {
        assert_eq!(command(&mut next, &mem, 1).await, n);
    }
    until(|| mem.offset() == Some(offset(10))).await;
    mem.land();
    assert_eq!((mem.number(key(1)), mem.offset()), (9, Some(offset(10))));
}

#[tokio::test]
async fn a_failed_read_of_a_workspace_leaves_the_transaction_usable() {
    let mem = MemSeqStorage::new();
    let fails = Arc::new(AtomicUsize::new(1));
    let once = Arc::clone(&fails);
    let mem = mem.with_hook(hook(move |call| {
        let fails = call == SeqStorageCall::ReadNumbers
            && once.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok();
        async move { if fails { CallOutcome::Failed } else { CallOutcome::Done } }
    }));
    let mut sequencer = sequencer(params(), &mem);
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let failed = transaction.join(KIND, WsId(1)).await.unwrap_err();
    assert!(matches!(failed, JoinError::Storage(WsId(1), _)), "{failed}");
    let mut command = transaction.join(KIND, WsId(1)).await.unwrap();
    assert_eq!(command.next(SEQ).unwrap(), 1);
    assert_eq!(command.keep(), offset(1));
}
