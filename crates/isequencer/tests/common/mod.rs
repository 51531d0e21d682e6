//! Helpers of several tests.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use futures::{FutureExt, future::BoxFuture};
use isequencer::{
    MemSeqStorage, NumberKey, Offset, Params, SeqId, Sequence, Sequencer, Sequences, WsId, WsKind,
    mem::{CallHook, CallOutcome, SeqStorageCall},
};
use tokio::sync::Semaphore;

pub(crate) const KIND: WsKind = WsKind(1);
pub(crate) const SEQ: SeqId = SeqId(1);
pub(crate) const OTHER: SeqId = SeqId(2);
pub(crate) const WS: WsId = WsId(7);

pub(crate) fn key(ws: u64) -> NumberKey {
    NumberKey { ws: WsId(ws), seq: SEQ }
}

pub(crate) fn offset(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

/// Returns parameters with two sequences from 1. Five numbers may wait, and a failed call is made
/// again after 1 ms.
pub(crate) fn params() -> Params {
    let sequences = [SEQ, OTHER].map(|seq| Sequence::counting_from(seq, 1).unwrap());
    Params {
        max_unflushed: NonZeroUsize::new(5).unwrap(),
        flush_delay: Duration::ZERO,
        retry_after: Duration::from_millis(1),
        ..Params::new("1", Sequences::new().with(KIND, sequences).unwrap())
    }
}

pub(crate) fn sequencer(params: Params, storage: &MemSeqStorage) -> Sequencer {
    Sequencer::new(params, Arc::new(storage.clone()), Clock::system())
}

/// Makes a hook from a function that decides the outcome of calls.
pub(crate) fn hook<F>(decide: impl Fn(SeqStorageCall) -> F + Send + Sync + 'static) -> CallHook
where
    F: Future<Output = CallOutcome> + Send + 'static,
{
    Arc::new(move |call| -> BoxFuture<'static, CallOutcome> { decide(call).boxed() })
}

/// Returns the same storage with a flag. While the flag is set, writes of numbers fail.
pub(crate) fn failing(storage: &MemSeqStorage) -> (MemSeqStorage, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = Arc::clone(&fails);
    let hook = hook(move |call| {
        let fails = call == SeqStorageCall::WriteNumbers && is_failing.load(Ordering::Acquire);
        async move { if fails { CallOutcome::Failed } else { CallOutcome::Done } }
    });
    (storage.with_hook(hook), fails)
}

/// Returns the same storage with a semaphore. Each read of the offset takes a permit.
pub(crate) fn gated(storage: &MemSeqStorage) -> (MemSeqStorage, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let blocked = Arc::clone(&gate);
    let hook = hook(move |call| {
        let gate = Arc::clone(&blocked);
        async move {
            if call == SeqStorageCall::NextOffset {
                gate.acquire().await.unwrap().forget();
            }
            CallOutcome::Done
        }
    });
    (storage.with_hook(hook), gate)
}

/// Runs a command that draws one number in a workspace, writes its event, and returns the number.
pub(crate) async fn command(sequencer: &mut Sequencer, storage: &MemSeqStorage, ws: u64) -> u64 {
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let mut command = transaction.join(KIND, WsId(ws)).await.unwrap();
    let number = command.next(SEQ).unwrap();
    let drawn = command.drawn().collect();
    assert_eq!(storage.append(drawn), command.keep());
    transaction.flush();
    number
}

/// Lets other tasks run until the condition is true.
pub(crate) async fn until(is_true: impl Fn() -> bool) {
    let clock = Clock::system();
    let deadline = clock.now() + Duration::from_secs(20);
    while !is_true() {
        assert!(clock.now() < deadline, "the condition never becomes true");
        tokio::task::yield_now().await;
    }
}
