//! Giving back counters whose period is over, and counters that nobody has used for a long time.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::oneshot;

use super::{
    context::SIDE_BY_SIDE,
    counter::{CounterName, RowsTask},
    give_back::GivenUp,
    shared::SharedSeries,
    state::HeldCounters,
};
use crate::WsId;

/// The state of counters that are being given back.
pub(super) enum ReturnState {
    /// All were given back.
    Done,
    /// A task gives one of them back.
    Begun(RowsTask),
    /// They wait for a task.
    Waiting,
}

/// A counter that is being given back. When this is dropped, draws of the counter go on.
struct Returning {
    shared: Arc<SharedSeries>,
    name: CounterName,
    /// How many values may be lost if the task is dropped; afterwards, how many are lost.
    unissued: u64,
    /// Whether the metrics have these values.
    is_counted: bool,
    /// Draws wait until this is dropped.
    _ended: oneshot::Sender<()>,
}

impl Drop for Returning {
    fn drop(&mut self) {
        let mut held = self.shared.held();
        held.returning.remove(&self.name);
        held.lost += self.unissued;
        if !self.is_counted {
            self.shared.context.meters.not_given_back.increment(self.unissued);
        }
    }
}

impl SharedSeries {
    /// Stops holding a counter, and lets a task give it back.
    pub(super) fn retire(self: &Arc<Self>, held: &mut HeldCounters, name: CounterName) {
        let step = self.context.step();
        let Some(counter) = held.remove(name, step) else { return };
        let Some(given_up) = self.context.given_up(name, counter) else { return };
        let unissued = given_up.unissued(step);
        if !held.add_old(name, given_up) {
            self.context.meters.not_given_back.increment(unissued);
            held.lost += unissued;
        } else if held.returning.len() + held.waiting() <= SIDE_BY_SIDE {
            // The task ends with the series, or when no counter waits.
            drop(self.spawn(give_old_back(Arc::clone(self))));
        }
    }

    /// Stops holding the idle counters of some workspaces, and lets tasks give them back.
    pub(super) fn retire_all(self: &Arc<Self>, is_of: &impl Fn(WsId) -> bool) {
        let mut held = self.held();
        for name in held.idle().into_iter().filter(|name| name.ws.is_some_and(is_of)) {
            self.retire(&mut held, name);
        }
    }

    /// The state of the counters of some workspaces that are being given back.
    pub(super) fn return_of(&self, is_of: &impl Fn(WsId) -> bool) -> ReturnState {
        let held = self.held();
        let is_it = |name: &CounterName| name.ws.is_some_and(is_of);
        if let Some((_, task)) = held.returning.iter().find(|(name, _)| is_it(name)) {
            return ReturnState::Begun(task.clone());
        }
        if held.old_names().any(is_it) { ReturnState::Waiting } else { ReturnState::Done }
    }

    /// Takes a counter that waits to be given back.
    fn begin_return(self: &Arc<Self>) -> Option<(Returning, GivenUp)> {
        let mut held = self.held();
        // A task that began late may find that enough tasks are at work.
        if held.returning.len() >= SIDE_BY_SIDE {
            return None;
        }
        let (name, given_up) = held.pop_old()?;
        let (ended, end) = oneshot::channel();
        let unissued = given_up.unissued(self.context.step());
        let task = end.map(|_| Ok(())).boxed().shared();
        held.returning.insert(name, task);
        let shared = Arc::clone(self);
        let returning = Returning { shared, name, unissued, is_counted: false, _ended: ended };
        Some((returning, given_up))
    }
}

async fn give_old_back(shared: Arc<SharedSeries>) {
    while let Some((mut returning, given_up)) = shared.begin_return() {
        let deadline = shared.context.rows.several_calls();
        let end = shared.context.give_back(given_up, deadline).await;
        (returning.unissued, returning.is_counted) = (end.not_given_back, true);
    }
}
