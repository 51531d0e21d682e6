//! The order in which the two threads of a driver change a disk.
//!
//! Before each change by the writer, and before it looks at its log, a random number of changes by
//! the filer are done, and no others. The filer waits for its turn. So the same seed makes the same
//! history, although there are two threads, and a filing that is done in part meets each change of
//! the log. The filer stands still while the writer judges a group.
//!
//! While the writer waits for the filer, the filer needs no turn.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{desk::Desk, power::rng::Rng};

/// How long a thread waits before it looks again at what nobody tells it.
const LOOK: Duration = Duration::from_micros(100);

pub(in crate::power) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    rng: Rng,
    /// The desk of the filer of an open driver. Without it nobody waits.
    desk: Option<Arc<Desk>>,
    /// Whether the filer may make its next change.
    is_let: bool,
    filer_waits: bool,
    /// Whether the filer needs no turns until it is idle: it met an error, or opens the file
    /// again.
    is_open: bool,
    /// Whether the next change of the filer needs no turn.
    passes_next: bool,
    stands_still: bool,
    holds_writer: bool,
    writer_waits: bool,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    pub(super) fn new(rng: Rng) -> Gate {
        let state = GateState {
            rng,
            desk: None,
            is_let: false,
            filer_waits: false,
            is_open: false,
            passes_next: false,
            stands_still: false,
            holds_writer: false,
            writer_waits: false,
        };
        Gate { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_again<'g>(&self, state: MutexGuard<'g, GateState>) -> MutexGuard<'g, GateState> {
        let waited = self.changed.wait_timeout(state, LOOK);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Orders the changes by the filer of this desk, which is idle.
    pub(in crate::power) fn guard(&self, desk: Arc<Desk>) {
        let mut state = self.lock();
        (state.desk, state.is_let, state.is_open) = (Some(desk), false, false);
        state.passes_next = false;
    }

    /// Stops the writer before its next change.
    pub(in crate::power) fn hold_writer(&self) {
        self.lock().holds_writer = true;
    }

    /// Whether the writer stands before a change.
    pub(in crate::power) fn has_writer(&self) -> bool {
        self.lock().writer_waits
    }

    pub(in crate::power) fn let_writer_go(&self) {
        self.lock().holds_writer = false;
        self.changed.notify_all();
    }

    /// Waits until this thread may change the disk.
    pub(super) fn pass(&self) {
        match thread::current().name() {
            Some("redb-filer") => self.pass_filer(),
            Some("redb-writer") => self.pass_writer(),
            _ => {}
        }
    }

    /// Lets this thread change the disk. The next change of the filer belongs to this one.
    pub(super) fn pass_with_next(&self) {
        match thread::current().name() {
            Some("redb-filer") => self.lock().passes_next = true,
            _ => self.pass(),
        }
    }

    fn pass_filer(&self) {
        let mut state = self.lock();
        if std::mem::take(&mut state.passes_next) {
            return;
        }
        state.filer_waits = true;
        self.changed.notify_all();
        while !state.lets_filer() {
            state = self.look_again(state);
        }
        (state.filer_waits, state.is_let) = (false, false);
    }

    fn pass_writer(&self) {
        let mut state = self.lock();
        while state.holds_writer {
            state.writer_waits = true;
            state = self.look_again(state);
        }
        state.writer_waits = false;
        for _ in 0..state.turns() {
            state = self.wait_for_filer(state);
            state.is_let = state.filer_waits;
            self.changed.notify_all();
        }
        drop(self.wait_for_filer(state));
    }

    /// Waits until the filer stands before a change, or is idle.
    fn wait_for_filer<'g>(
        &self,
        mut state: MutexGuard<'g, GateState>,
    ) -> MutexGuard<'g, GateState> {
        while !state.has_filer_at_rest() {
            state = self.look_again(state);
        }
        state
    }

    /// Whether the filer stands before a change, or is idle.
    pub(in crate::power) fn has_filer_at_rest(&self) -> bool {
        self.lock().has_filer_at_rest()
    }

    /// Lets the filer work until it is idle, if this is the filer.
    pub(super) fn opens(&self) {
        if thread::current().name() == Some("redb-filer") {
            let mut state = self.lock();
            (state.is_open, state.passes_next) = (true, false);
        }
    }
}

impl GateState {
    fn has_filer_at_rest(&mut self) -> bool {
        let is_idle = self.desk.as_ref().is_none_or(|desk| desk.is_idle());
        self.is_open &= !is_idle;
        is_idle || self.filer_waits && !self.is_let && !self.is_open
    }

    fn lets_filer(&self) -> bool {
        let desk = self.desk.as_ref();
        self.is_let || self.is_open || desk.is_none_or(|desk| desk.is_awaited())
    }

    /// How many changes the filer makes before the next change of the writer, if it has so many.
    /// It stands still for a time now and then, so that the writer meets the bound of its table.
    fn turns(&mut self) -> u64 {
        if self.rng.below(64) == 0 {
            self.stands_still = self.rng.below(3) == 0;
        }
        match self.rng.below(8) {
            _ if self.stands_still => 0,
            0..4 => 0,
            4..6 => 1,
            6 => 2 + self.rng.below(10),
            _ => 1_000,
        }
    }
}
