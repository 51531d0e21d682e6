//! The simulated world: a log, a storage that fails, and an owner that draws numbers.
//!
//! The invariants are checked against the log alone.

use std::{
    collections::HashMap,
    future::pending,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use clock::ManualClock;
use fastrand::Rng;
use futures::FutureExt;
use shuttle::{
    future::{spawn, yield_now},
    rand::{RngCore, thread_rng},
};
use tokio::sync::Notify;

use crate::{
    JoinError, MemSeqStorage, NumberKey, Params, SeqId, SeqStorage, Sequence, Sequencer, Sequences,
    Transaction, WsId, WsKind,
    engine::Phase,
    mem::{CallHook, CallOutcome, SeqStorageCall},
};

const SEQS: [SeqId; 2] = [SeqId(1), SeqId(2)];
const KINDS: [WsKind; 2] = [WsKind(1), WsKind(2)];
const WORKSPACES: u64 = 3;

/// The last number of each sequence. Every sequencer must reach the same.
type Model = HashMap<NumberKey, u64>;

fn fold(log: &[Vec<(NumberKey, u64)>]) -> Model {
    let mut model = Model::new();
    for (key, number) in log.iter().flatten() {
        let last = model.entry(*key).or_default();
        *last = (*last).max(*number);
    }
    model
}

/// The behaviour of the storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// The percentage of calls that fail in one of three ways.
    pub(crate) fail_percent: u32,
    /// If set, the node dies in one of its first `dies_within` calls.
    pub(crate) dies_within: Option<usize>,
}

/// Runs one history: some lives of a node, one after another.
pub(crate) async fn history(
    faults: Faults,
    lives: usize,
    storage: impl Fn(MemSeqStorage) -> Arc<dyn SeqStorage>,
) {
    let mem = MemSeqStorage::new();
    let mut random = Rng::with_seed(thread_rng().next_u64());
    for life in 0..lives {
        let is_last = life + 1 == lives;
        let faults = if is_last { Faults { dies_within: None, ..faults } } else { faults };
        live(&mem, &mut random, faults, &storage).await;
        if random.bool() {
            mem.land();
        }
        check(&mem);
    }
}

/// Runs a node until it ends, or until it dies in a call of its storage.
async fn live(
    mem: &MemSeqStorage,
    random: &mut Rng,
    faults: Faults,
    storage: impl Fn(MemSeqStorage) -> Arc<dyn SeqStorage>,
) {
    let died = Arc::new(Notify::new());
    let dies_at = faults.dies_within.map(|within| random.usize(0..within));
    let hook = hook(random.u64(..), faults.fail_percent, dies_at, Arc::clone(&died));
    let sequences = Sequences::new();
    let all = SEQS.map(|seq| Sequence::counting_from(seq, 1).unwrap());
    let sequences = sequences.with(KINDS[0], all.clone()).unwrap();
    let sequences = sequences.with(KINDS[1], all.into_iter().rev()).unwrap();
    let params = Params {
        max_unflushed: NonZeroUsize::new(random.usize(1..6)).unwrap(),
        cached_numbers: random.usize(0..8),
        flush_delay: Duration::from_millis(random.u64(0..3)),
        retry_after: Duration::from_millis(1),
        ..Params::new("1", sequences)
    };
    let manual = ManualClock::new(1);
    let (sequencer, keeper) =
        Sequencer::with_keeper(params, storage(mem.with_hook(hook)), manual.clock());
    let keeper = spawn(keeper.run());
    let is_over = Arc::new(AtomicBool::new(false));
    let time = spawn(passes(manual, Arc::clone(&is_over)));
    let lived = async {
        let mut sequencer = sequencer;
        for _ in 0..random.usize(1..8) {
            group(&mut sequencer, mem, random).await;
            check(mem);
        }
        sequencer.ready().await.unwrap();
        let shared = Arc::clone(&sequencer.shared);
        sequencer.shared.close();
        while shared.engine().phase() != Phase::Closed {
            yield_now().await;
        }
        let log = mem.log();
        for (key, number) in fold(&log) {
            assert_eq!(mem.number(key), number, "{key:?} when all is stored");
        }
        let stored = mem.offset().map_or(0, |offset| offset.0);
        assert_eq!(stored, log.len() as u64 + 1, "when all is stored");
    };
    tokio::select! {
        biased;
        () = lived => {}
        () = died.notified() => keeper.abort(),
    }
    is_over.store(true, Ordering::Release);
    let _ = futures::join!(keeper, time);
}

async fn passes(manual: ManualClock, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Acquire) {
        manual.advance(Duration::from_millis(1));
        yield_now().await;
    }
}

fn hook(seed: u64, fail_percent: u32, dies_at: Option<usize>, died: Arc<Notify>) -> CallHook {
    let random = Mutex::new(Rng::with_seed(seed));
    let calls = AtomicUsize::new(0);
    Arc::new(move |_: SeqStorageCall| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let mut random = random.lock().unwrap();
        let outcomes = [CallOutcome::Failed, CallOutcome::AnswerLost, CallOutcome::LandsLater];
        let outcome = if random.u32(0..100) < fail_percent {
            outcomes[random.usize(0..3)]
        } else {
            CallOutcome::Done
        };
        let died = Arc::clone(&died);
        async move {
            yield_now().await;
            if Some(call) == dies_at {
                died.notify_one();
                pending::<()>().await;
            }
            yield_now().await;
            outcome
        }
        .boxed()
    })
}

/// Runs a transaction of some commands, writes some of their events, and ends the transaction.
async fn group(sequencer: &mut Sequencer, mem: &MemSeqStorage, random: &mut Rng) {
    sequencer.ready().await.unwrap();
    let mut transaction = sequencer.start().unwrap();
    let mut last = fold(&mem.log());
    let mut events = Vec::new();
    for _ in 0..random.usize(1..5) {
        if random.bool() {
            let some = || (KINDS[random.usize(0..2)], WsId(random.u64(0..WORKSPACES)));
            let ahead: Vec<_> = std::iter::repeat_with(some).take(2).collect();
            transaction.read_ahead(ahead).await;
        }
        let offset = (mem.log().len() + events.len() + 1) as u64;
        if let Some(event) = command(&mut transaction, &mut last, offset, random).await {
            events.push(event);
        }
    }
    // None, some or all of the events are written. The owner may know this, or not.
    let written = if random.u32(0..4) == 0 { random.usize(0..=events.len()) } else { events.len() };
    let is_known = written == events.len() && random.u32(0..8) > 0;
    for event in events.drain(..written) {
        mem.append(event);
    }
    if random.u32(0..3) == 0 {
        mem.land();
    }
    yield_now().await;
    match random.bool() {
        _ if is_known => transaction.flush(),
        true => transaction.actualize(),
        false => drop(transaction),
    }
}

async fn command(
    transaction: &mut Transaction<'_>,
    last: &mut Model,
    offset: u64,
    random: &mut Rng,
) -> Option<Vec<(NumberKey, u64)>> {
    let ws = WsId(random.u64(0..WORKSPACES));
    let kind = KINDS[random.usize(0..2)];
    let mut command = match transaction.join(kind, ws).await {
        Ok(command) => command,
        Err(JoinError::Full | JoinError::Storage(..)) => return None,
        Err(other) => panic!("{other}"),
    };
    let mut drawn = Model::new();
    for _ in 0..random.usize(0..4) {
        let seq = SEQS[random.usize(0..2)];
        let key = NumberKey { ws, seq };
        let number = command.next(seq).unwrap();
        let before = drawn.get(&key).or_else(|| last.get(&key)).copied().unwrap_or(0);
        assert_eq!(number, before + 1, "of {key:?}");
        drawn.insert(key, number);
    }
    if random.u32(0..4) == 0 {
        return None;
    }
    assert_eq!(command.drawn().collect::<Model>(), drawn);
    assert_eq!(command.keep().0, offset);
    last.extend(&drawn);
    Some(drawn.into_iter().collect())
}

/// Checks that each stored number is in the log, and that the numbers of all events before the
/// stored offset are stored.
fn check(mem: &MemSeqStorage) {
    let log = mem.log();
    let all = fold(&log);
    let stored = mem.offset().map_or(0, |offset| offset.0 as usize - 1);
    assert!(stored <= log.len(), "the stored offset is behind the log");
    let covered = fold(&log[..stored]);
    for (key, number) in all {
        let stored = mem.number(key);
        assert!(stored <= number, "{key:?}: {stored} is stored, and {number} in the log");
        let covered = covered.get(&key).copied().unwrap_or(0);
        assert!(stored >= covered, "{key:?}: {stored} is stored, and not {covered}");
    }
}
