//! The order of the calls. Every call of a storage waits here until the history lets it go. So the
//! seed decides the order in which calls are sent and arrive, and not the order in which a runtime
//! wakes its tasks.

use std::{
    fmt,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use clock::{Clock, Instant, ManualClock};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, oneshot},
};

/// Random numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Clock);

impl Dice {
    pub(crate) fn of(seed: u64) -> Dice {
        Dice(ManualClock::new(seed).clock())
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.random()
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.number() % end
    }

    pub(crate) fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of_slice<'a, T>(&self, choices: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(choices.len()).unwrap();
        if count == 0 { None } else { choices.get(usize::try_from(self.below(count)).unwrap()) }
    }
}

/// A runtime that reports when no task can run any more.
pub(crate) struct Idle(Arc<Notify>);

impl Idle {
    pub(crate) fn runtime() -> (Runtime, Idle) {
        let idle = Arc::new(Notify::new());
        let parked = Arc::clone(&idle);
        // The thread is about to sleep, so all tasks wait for something that only the history can
        // bring.
        let mut builder = Builder::new_current_thread();
        builder.on_thread_park(move || parked.notify_waiters());
        (builder.build().unwrap(), Idle(idle))
    }

    /// Waits until no other task can run.
    pub(crate) async fn reached(&self) {
        self.0.notified().await;
    }
}

/// The name of a waiting call: the number of its sender, and its purpose. Calls with the same label
/// do the same.
pub(crate) type Label = (u64, String);

/// The place where calls wait for their turn.
pub(crate) struct CallTurns {
    waiting: Mutex<Vec<(Label, oneshot::Sender<()>)>>,
    /// Whether calls no longer wait.
    is_open: AtomicBool,
    /// The number of calls that were sent.
    sent: AtomicU64,
    /// The number of conditional writes of records and of logs of workspaces.
    conditional: AtomicU64,
    clock: Clock,
    dice: Dice,
}

/// A call that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentCall {
    id: u64,
    at: Instant,
    /// Whether the call needs a turn of its own to arrive, and another one for its answer.
    lingers: bool,
}

tokio::task_local! {
    static CALL: SentCall;
}

impl fmt::Debug for CallTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}

impl CallTurns {
    pub(crate) fn new(clock: Clock, seed: u64) -> Arc<CallTurns> {
        let (waiting, is_open, sent, conditional) = Default::default();
        Arc::new(CallTurns { waiting, is_open, sent, conditional, clock, dice: Dice::of(seed) })
    }

    /// Returns the number of calls that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the number of conditional writes of records and of logs of workspaces.
    pub(crate) fn conditional(&self) -> u64 {
        self.conditional.load(Ordering::Relaxed)
    }

    pub(crate) fn count_conditional(&self) {
        self.conditional.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Label, oneshot::Sender<()>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self, label: Label) {
        if self.is_open.load(Ordering::SeqCst) {
            return;
        }
        let (go, gone) = oneshot::channel();
        self.lock().push((label, go));
        if gone.await.is_err() {
            pending::<()>().await;
        }
    }

    /// Waits for the turn of a call to be sent.
    pub(crate) async fn to_be_sent(&self, label: Label) -> SentCall {
        self.turn(label).await;
        self.sent.fetch_add(1, Ordering::Relaxed);
        let id = self.dice.number();
        SentCall { id, at: self.clock.now(), lingers: id.is_multiple_of(4) }
    }

    /// Waits for the turn of a call, or of its answer, to arrive. There is no wait if no time has
    /// passed since the call was sent, unless the call lingers.
    pub(crate) async fn on_its_way(&self, call: Option<SentCall>, what: &str) {
        if let Some(SentCall { id, at, lingers }) = call
            && (lingers || self.clock.now() > at)
        {
            self.turn((id, what.to_owned())).await;
        }
    }

    /// The number of waiting calls. Calls of dropped tasks are forgotten.
    pub(crate) fn waiting(&self) -> usize {
        let mut waiting = self.lock();
        waiting.retain(|(_, go)| !go.is_closed());
        waiting.len()
    }

    /// Lets one of the waiting calls go.
    pub(crate) fn let_go(&self, which: u64) -> Label {
        let mut waiting = self.lock();
        waiting.sort_by(|(one, _), (other, _)| one.cmp(other));
        let which = usize::try_from(which).unwrap();
        let (label, go) = waiting.remove(which);
        go.send(()).unwrap();
        label
    }

    /// Lets all calls go at once from now on.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
        for (_, go) in self.lock().drain(..) {
            // A call of a killed node does not wait.
            let _ = go.send(());
        }
    }
}

impl SentCall {
    /// The call that the current code is part of.
    pub(crate) fn current() -> Option<SentCall> {
        CALL.try_with(|call| *call).ok()
    }

    pub(crate) async fn scope<T>(self, future: impl Future<Output = T>) -> T {
        CALL.scope(self, future).await
    }

    pub(crate) fn sync_scope<T>(self, act: impl FnOnce() -> T) -> T {
        CALL.sync_scope(self, act)
    }
}
