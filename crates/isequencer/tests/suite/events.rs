//! Tests of `EventSequencer`, for one event at a time.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use isequencer::{
    BadSequences, EventSequencerFactory, JoinError, MemSeqStorage, NumberKey, Params, SeqStorage,
    SequenceStatus, SequencerBusy, Sequences, StartError, WsKind,
    mem::{CallOutcome, SeqStorageCall},
    standard,
};

use crate::common::{KIND, WS, failing, gated, hook, offset};

const LONG: Duration = Duration::from_secs(20);

fn factory(storage: &MemSeqStorage) -> EventSequencerFactory {
    let sequences = Sequences::new().with(KIND, standard::sequences()).unwrap();
    let storage = storage.clone();
    let storage_of = move |_| Arc::new(storage.clone()) as Arc<dyn SeqStorage>;
    let params = Params::new("", sequences);
    EventSequencerFactory::new(params, Arc::new(storage_of), Clock::system()).unwrap()
}

#[tokio::test]
async fn an_event_draws_its_offsets_and_ids() {
    let mem = MemSeqStorage::new();
    let mut partition = factory(&mem).partition(1);
    for n in 1..=3 {
        let mut event = partition.start_event(LONG, KIND, WS).await.unwrap();
        assert_eq!((event.plog_offset(), event.wlog_offset()), (offset(n), n));
        assert_eq!(event.next_record_id(), Ok(standard::FIRST_RECORD_ID + n - 1));
        assert_eq!(event.next_crecord_id(), Ok(standard::FIRST_CRECORD_ID + n - 1));
        let drawn: Vec<_> = event.drawn().collect();
        let number = |seq, number| (NumberKey { ws: WS, seq }, number);
        let expected = [
            number(standard::WLOG_OFFSET, n),
            number(standard::RECORD_ID, standard::FIRST_RECORD_ID + n - 1),
            number(standard::CRECORD_ID, standard::FIRST_CRECORD_ID + n - 1),
        ];
        assert_eq!(drawn, expected);
        mem.append(drawn);
        event.finish();
    }
    partition.close(Clock::system().now() + LONG).await.unwrap();
    assert_eq!(mem.offset(), Some(offset(4)));
    let mut again = factory(&mem).partition(1);
    let event = again.start_event(LONG, KIND, WS).await.unwrap();
    assert_eq!((event.plog_offset(), event.wlog_offset()), (offset(4), 4));
}

#[tokio::test]
async fn an_event_that_is_cancelled_or_dropped_is_looked_for_in_the_log() {
    let mem = MemSeqStorage::new();
    let mut partition = factory(&mem).partition(1);
    // The first two events were not written, and the third one was.
    partition.start_event(LONG, KIND, WS).await.unwrap().cancel();
    drop(partition.start_event(LONG, KIND, WS).await.unwrap());
    let event = partition.start_event(LONG, KIND, WS).await.unwrap();
    assert_eq!((event.plog_offset(), event.wlog_offset()), (offset(1), 1));
    mem.append(vec![(NumberKey { ws: WS, seq: standard::WLOG_OFFSET }, 1)]);
    event.cancel();
    let event = partition.start_event(LONG, KIND, WS).await.unwrap();
    assert_eq!((event.plog_offset(), event.wlog_offset()), (offset(2), 2));
}

#[tokio::test]
async fn start_event_waits_for_the_recovery_up_to_its_limit() {
    let (mem, gate) = gated(&MemSeqStorage::new());
    let mut partition = factory(&mem).partition(1);
    let monitor = partition.monitor();
    assert_eq!(monitor.status(), SequenceStatus::None);
    let busy = partition.start_event(Duration::from_millis(10), KIND, WS).await.unwrap_err();
    assert!(matches!(busy, StartError::Busy(SequencerBusy::Actualizing)), "{busy}");
    assert_eq!(monitor.status(), SequenceStatus::Recovering);
    gate.add_permits(2);
    let event = partition.start_event(LONG, KIND, WS).await.unwrap();
    assert_eq!(monitor.status(), SequenceStatus::Eventing);
    event.cancel();
    assert_eq!(monitor.status(), SequenceStatus::Recovering);
    partition.start_event(LONG, KIND, WS).await.unwrap().finish();
    assert_eq!(monitor.status(), SequenceStatus::Ready);
    partition.close(Clock::system().now() + LONG).await.unwrap();
    assert_eq!(monitor.status(), SequenceStatus::Finished);
}

/// The storage cannot read the last numbers of a workspace. No event has begun, so the log need not
/// be read again, and the offset is not used up.
#[tokio::test]
async fn an_event_whose_numbers_cannot_be_read_does_not_start() {
    let fails = Arc::new(AtomicBool::new(true));
    let armed = Arc::clone(&fails);
    let mem = MemSeqStorage::new().with_hook(hook(move |call| {
        let is_read = call == SeqStorageCall::ReadNumbers;
        let fails = is_read && armed.swap(false, Ordering::SeqCst);
        ready(if fails { CallOutcome::Failed } else { CallOutcome::Done })
    }));
    let mut partition = factory(&mem).partition(1);
    let monitor = partition.monitor();
    let refused = partition.start_event(LONG, KIND, WS).await.unwrap_err();
    assert!(matches!(refused, StartError::Join(JoinError::Storage(WS, _))), "{refused}");
    assert!(!fails.load(Ordering::SeqCst));
    assert_eq!(monitor.status(), SequenceStatus::Ready);
    let event = partition.start_event(LONG, KIND, WS).await.unwrap();
    assert_eq!((event.plog_offset(), event.wlog_offset()), (offset(1), 1));
}

/// An event that waits for a sequencer that has ended would wait for its whole limit.
#[tokio::test]
async fn start_event_fails_at_once_when_the_sequencer_has_ended() {
    let panics = MemSeqStorage::new().with_hook(hook(|call| {
        assert_ne!(call, SeqStorageCall::NextOffset, "a panic on purpose");
        ready(CallOutcome::Done)
    }));
    let mut partition = factory(&panics).partition(1);
    let start = Clock::system().now();
    let ended = partition.start_event(LONG, KIND, WS).await.unwrap_err();
    assert!(matches!(ended, StartError::Busy(SequencerBusy::Closed)), "{ended}");
    assert!(Clock::system().now() - start < LONG / 2);
    assert_eq!(partition.monitor().status(), SequenceStatus::Finished);
}

#[tokio::test]
async fn start_event_waits_for_room_up_to_its_limit() {
    let mem = MemSeqStorage::new();
    let (hooked, fails) = failing(&mem);
    let mut partition = factory(&hooked).partition(1);
    partition.start_event(LONG, KIND, WS).await.unwrap().finish();
    fails.store(true, Ordering::Release);
    let busy = loop {
        match partition.start_event(Duration::from_millis(10), KIND, WS).await {
            Ok(event) => event.finish(),
            Err(busy) => break busy,
        }
    };
    assert!(matches!(busy, StartError::Busy(SequencerBusy::Unflushed)), "{busy}");
    fails.store(false, Ordering::Release);
    partition.start_event(LONG, KIND, WS).await.unwrap().finish();
}

#[tokio::test]
async fn each_declared_kind_must_have_the_standard_sequences() {
    let mut few = standard::sequences();
    few.remove(1);
    let sequences = Sequences::new().with(KIND, standard::sequences()).unwrap();
    let sequences = sequences.with(WsKind(2), few).unwrap();
    let storage_of = |_| Arc::new(MemSeqStorage::new()) as Arc<dyn SeqStorage>;
    let params = Params::new("", sequences);
    let refused = EventSequencerFactory::new(params, Arc::new(storage_of), Clock::system());
    let missing = BadSequences::NotStandard(WsKind(2), standard::RECORD_ID);
    assert_eq!(refused.unwrap_err(), missing);
}

#[tokio::test]
async fn a_kind_that_is_not_declared_takes_no_event_and_others_do() {
    let mem = MemSeqStorage::new();
    let mut partition = factory(&mem).partition(1);
    let unknown = partition.start_event(LONG, WsKind(2), WS).await.unwrap_err();
    assert!(matches!(unknown, StartError::Join(JoinError::UnknownKind(WsKind(2)))), "{unknown}");
    let event = partition.start_event(LONG, KIND, WS).await.unwrap();
    assert_eq!((event.plog_offset(), event.wlog_offset()), (offset(1), 1));
}

/// The event is forgotten, so its drop code does not run and its outcome is unknown. The next event
/// waits until the log was read again.
#[tokio::test]
async fn an_event_that_is_forgotten_is_looked_for_in_the_log() {
    let mem = MemSeqStorage::new();
    let mut partition = factory(&mem).partition(1);
    let monitor = partition.monitor();
    std::mem::forget(partition.start_event(LONG, KIND, WS).await.unwrap());
    let event = partition.start_event(LONG, KIND, WS).await.unwrap();
    assert_eq!((event.wlog_offset(), monitor.status()), (1, SequenceStatus::Eventing));
    event.finish();
    assert_eq!(monitor.status(), SequenceStatus::Ready);
}

#[tokio::test]
async fn a_workspace_with_no_offset_left_takes_no_event_and_others_do() {
    let mem = MemSeqStorage::new();
    let last = (1 << 62) - 1;
    mem.append(vec![(NumberKey { ws: WS, seq: standard::WLOG_OFFSET }, last)]);
    let mut partition = factory(&mem).partition(1);
    for _ in 0..2 {
        let none = partition.start_event(LONG, KIND, WS).await.unwrap_err();
        assert!(matches!(none, StartError::Draw(_)), "{none}");
    }
    let event = partition.start_event(LONG, KIND, isequencer::WsId(1)).await.unwrap();
    assert_eq!((event.plog_offset(), event.wlog_offset()), (offset(2), 1));
}
