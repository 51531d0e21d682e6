//! The state that the handles and the tasks of a fast series share.

use std::sync::{Arc, Mutex, MutexGuard};

use base::locks::lock;
use clock::Instant;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, join, join_all},
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    DocNumberError, SeriesEnd,
    context::SeriesContext,
    counter::{CounterName, RowsTask},
    give_back::GivenUp,
    queues::QueuedDraw,
    state::HeldCounters,
};
use crate::{DayText, DocNumber, WsId};

/// The state that the handles and the tasks of a series share.
#[derive(Debug)]
pub(super) struct SharedSeries {
    pub(super) context: SeriesContext,
    pub(super) runtime: Handle,
    /// Ends the tasks, even during a call.
    pub(super) stop: CancellationToken,
    pub(super) held: Mutex<HeldCounters>,
    pub(super) closing: Mutex<Option<Shared<BoxFuture<'static, SeriesEnd>>>>,
}

impl SharedSeries {
    pub(super) fn held(&self) -> MutexGuard<'_, HeldCounters> {
        // No code that holds the lock leaves the state half changed.
        lock(&self.held)
    }

    /// Starts a task that ends with the series. The output is `None` if the task ended early.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send + 'static {
        let stop = self.stop.clone();
        #[expect(clippy::disallowed_methods, reason = "the series owns the task and ends it")]
        let task = self.runtime.spawn(async move { stop.run_until_cancelled(work).await });
        task.map(|ended| ended.ok().flatten())
    }

    /// Begins the day of now. Returns the name of the counter of a workspace.
    ///
    /// Invariant: the clock is read under the lock. A simpler version reads the clock first. Caller
    /// A reads 23:59; caller B reads 00:00, begins the day and retires the counters of yesterday;
    /// caller A begins yesterday again, and reserves a range for one number.
    pub(super) fn begin(
        self: &Arc<Self>,
        held: &mut HeldCounters,
        ws: WsId,
    ) -> Result<CounterName, DocNumberError> {
        if held.is_closed {
            return Err(DocNumberError::Closed);
        }
        let SeriesContext { series, rows, .. } = &self.context;
        for name in held.begin_day(rows.clock().wall(), series)? {
            self.retire(held, name);
        }
        let period = held.day().map(DayText::period).ok_or(DocNumberError::Closed)?;
        Ok(CounterName { period, ws: series.counter_of(ws) })
    }

    /// Draws numbers, or returns the task that must end first. Meanwhile the draw has a place in
    /// the queue.
    pub(super) fn try_draw(
        self: &Arc<Self>,
        ws: WsId,
        count: u32,
        queued: &mut Option<QueuedDraw>,
        give: &mut impl FnMut(DocNumber),
    ) -> Result<Option<RowsTask>, DocNumberError> {
        let (context, count) = (&self.context, u64::from(count));
        let (step, settings) = (context.step(), &context.settings);
        let mut guard = self.held();
        let held = &mut *guard;
        let name = self.begin(held, ws)?;
        // The period may have ended.
        if let Some(other) = queued.take_if(|queued| queued.counter != name) {
            held.queues.leave(other);
        }
        loop {
            if let Some(left) = held.draw(name, *queued, ws, count, step, &mut *give)? {
                if let Some(queued) = queued.take() {
                    held.queues.leave(queued);
                }
                if left < settings.refill_below {
                    self.refill_ahead(held, name);
                }
                drop(guard);
                context.meters.issued.increment(count);
                return Ok(None);
            }
            // Reserve nothing for a workspace that has too many digits for the template.
            if let Some(day) = held.day() {
                let _ = day.number(ws, context.series.definition().start)?;
            }
            queued.get_or_insert_with(|| held.queues.join(name, count));
            if held.find(name).is_some() {
                return self.refill(held, name).map(Some);
            }
            if let Err(task) = self.hold(held, name) {
                return Ok(Some(task));
            }
        }
    }

    /// Holds one more counter: one that waits to be given back, with its ranges, or else one
    /// without a range. If the node holds as many counters as it may, it stops holding the one that
    /// was unused for the longest time.
    ///
    /// # Errors
    /// The task that must end first.
    pub(super) fn hold(
        self: &Arc<Self>,
        held: &mut HeldCounters,
        name: CounterName,
    ) -> Result<(), RowsTask> {
        if let Some(task) = held.returning.get(&name) {
            return Err(task.clone());
        }
        let is_full = held.is_full();
        let oldest = if is_full { held.oldest_idle() } else { None };
        if is_full
            && oldest.is_none()
            && let Some(task) = held.tasks().next()
        {
            // The reservation of another counter may fail, and then this counter has room.
            return Err(task.map(|_| Ok(())).boxed().shared());
        }
        // Now there is a place for the other counter among those that wait to be given back.
        let old = held.take_old(name);
        if let Some(oldest) = oldest {
            self.retire(held, oldest);
        }
        held.add(name, old, self.context.step());
        Ok(())
    }

    /// The task that closes the series. The first call starts it.
    pub(super) fn closing(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Shared<BoxFuture<'static, SeriesEnd>> {
        let start = || {
            let lost = {
                let mut held = self.held();
                held.is_closed = true;
                SeriesEnd { not_given_back: held.unissued, ..SeriesEnd::default() }
            };
            #[expect(clippy::disallowed_methods, reason = "the series owns the task, which ends")]
            let task = self.runtime.spawn(Arc::clone(self).close(deadline));
            // The runtime may have ended.
            task.map(move |end| end.unwrap_or(lost)).boxed().shared()
        };
        let mut closing = lock(&self.closing);
        closing.get_or_insert_with(start).clone()
    }

    /// Gives everything back. Counters without a reservation under way do not wait for the others.
    async fn close(self: Arc<Self>, deadline: Instant) -> SeriesEnd {
        let context = &self.context;
        let (idle, tasks) = {
            let mut held = self.held();
            let names = held.idle();
            (self.take(&mut held, names), held.tasks().collect::<Vec<_>>())
        };
        let waiting = context.rows.clock().timeout_at(deadline, join_all(tasks));
        let (first, _) = join(context.give_all_back(idle, deadline), waiting).await;
        // The other tasks end in the middle of their calls, and give the rows back.
        self.stop.cancel();
        let tasks: Vec<_> = self.held().tasks().collect();
        join_all(tasks).await;
        let (rest, lost) = {
            let mut held = self.held();
            let names = held.names();
            (self.take(&mut held, names), held.lost)
        };
        let rest = context.give_all_back(rest, deadline).await;
        context.meters.remaining.set(0.0);
        first + rest + SeriesEnd { not_given_back: lost, ..SeriesEnd::default() }
    }

    /// Takes out these counters, and those that wait to be given back.
    fn take(&self, held: &mut HeldCounters, names: Vec<CounterName>) -> Vec<GivenUp> {
        let step = self.context.step();
        let mut all: Vec<_> = std::iter::from_fn(|| held.pop_old()).map(|(_, old)| old).collect();
        all.extend(names.into_iter().filter_map(|name| {
            let counter = held.remove(name, step)?;
            self.context.given_up(name, counter)
        }));
        all
    }
}
