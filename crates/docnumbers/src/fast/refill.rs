//! The task that reserves a range for a counter.

use std::{sync::Arc, time::Duration};

use base::with_causes;
use futures::FutureExt;
use tracing::warn;

use super::{
    FastSettings,
    counter::{CounterName, RowsState, RowsTask},
    held::HeldRange,
    reserve::KnownRows,
    shared::SharedSeries,
    state::HeldCounters,
};
use crate::DocNumberError;

/// How long after a failed reservation draws that need a range fail at once.
const PAUSE: Duration = Duration::from_millis(200);

/// With this many reservations under way, a series begins another one only if a draw waits for it.
const MOST_AHEAD: usize = 100;

/// The rows of a counter that a task uses. They go back to the counter when the task ends, even if
/// the task is dropped during a call.
struct TakenRows {
    shared: Arc<SharedSeries>,
    name: CounterName,
    known: Option<KnownRows>,
}

impl Drop for TakenRows {
    fn drop(&mut self) {
        if let Some(known) = self.known.take() {
            self.shared.held().end_refill(self.name, known);
        }
    }
}

impl SharedSeries {
    /// Reserves the next range of a counter in the background, unless the node has one, or a
    /// reservation is under way or has just failed. If too many reservations are under way, a later
    /// draw tries again.
    pub(super) fn refill_ahead(self: &Arc<Self>, held: &mut HeldCounters, name: CounterName) {
        let has_room = held.refilling() < MOST_AHEAD;
        let Some(counter) = held.find(name) else { return };
        if has_room && !counter.ranges.has_spare() && counter.is_idle() {
            // The counter keeps the task, which needs no caller to wait for it.
            let _ = self.refill(held, name);
        }
    }

    /// The task that reserves the next range of a counter. Starts it if no reservation is under
    /// way. If draws wait, the range has enough values for the first of them.
    ///
    /// # Errors
    /// The error of a reservation that has just failed. [`DocNumberError::Closed`] if the node does
    /// not hold the counter.
    pub(super) fn refill(
        self: &Arc<Self>,
        held: &mut HeldCounters,
        name: CounterName,
    ) -> Result<RowsTask, DocNumberError> {
        let FastSettings { range, max_block, .. } = self.context.settings;
        let count = range.max(held.missing(name, self.context.step()).min(max_block.into()));
        let Some(counter) = held.find(name) else { return Err(DocNumberError::Closed) };
        if let RowsState::Refilling(task, _) = &counter.rows {
            return Ok(task.clone());
        }
        let now = self.context.rows.clock().now();
        if let Some((_, error)) = counter.failed.as_ref().filter(|(until, _)| now < *until) {
            return Err(error.clone());
        }
        // The task takes the rows when it begins. If its runtime has ended, the task is dropped
        // here, under the lock, and so must not need the lock.
        let task = self.spawn(reserve(Arc::clone(self), name, count));
        let ended = |ended: Option<_>| ended.unwrap_or(Err(DocNumberError::Closed));
        let task = task.map(ended).boxed().shared();
        held.begin_refill(name, task.clone());
        Ok(task)
    }

    /// Takes the rows of a counter whose reservation begins.
    fn take_rows(&self, name: CounterName) -> Option<KnownRows> {
        match &mut self.held().find(name)?.rows {
            RowsState::Refilling(_, known) => known.take(),
            RowsState::Idle(_) => None,
        }
    }

    /// Gives a counter its rows back, and its range or the error.
    fn end_refill(
        self: &Arc<Self>,
        mut taken: TakenRows,
        reserved: &Result<HeldRange, DocNumberError>,
    ) {
        let (context, name) = (&self.context, taken.name);
        let mut held = self.held();
        held.end_refill(name, taken.known.take().unwrap_or_default());
        let Some(counter) = held.find(name) else { return };
        match reserved {
            Ok(range) => {
                counter.failed = None;
                counter.ranges.push(range.clone());
                held.unissued += range.unissued(context.step());
                context.meters.remaining.set(held.unissued as f64);
            }
            Err(error) => {
                counter.failed = Some((context.rows.clock().now() + PAUSE, error.clone()));
            }
        }
        // The period may have ended during the reservation.
        if !held.is_closed && held.day().is_some_and(|day| name.period < day.period()) {
            self.retire(&mut held, name);
        }
    }

    /// Logs the end of a reservation. Warns when a range first reaches `warn_at_percent`, and at
    /// the node's first range of a nearly full counter.
    fn report(
        &self,
        name: CounterName,
        is_first: bool,
        reserved: &Result<HeldRange, DocNumberError>,
    ) {
        let (series, meters) = (&self.context.series, &self.context.meters);
        let (id, period, ws) = (series.id(), name.period, name.ws.map(|ws| ws.0));
        match reserved {
            Ok(range) => {
                meters.reserved.increment(1);
                let last = range.until.saturating_sub(self.context.step());
                let has_warned = series.is_nearly_full(range.next) && !is_first;
                if series.is_nearly_full(last) && !has_warned {
                    let digits = series.counter_width();
                    warn!(series = %id, %period, ws, last, digits, "document numbers nearly full");
                }
            }
            // The callers learn that the counter is full. The storage has not failed.
            Err(DocNumberError::Render(_)) => {}
            Err(error) => {
                meters.failed.increment(1);
                let error = with_causes(error);
                warn!(series = %id, %period, ws, error, "document numbers not reserved");
            }
        }
    }
}

async fn reserve(
    shared: Arc<SharedSeries>,
    name: CounterName,
    count: u64,
) -> Result<(), DocNumberError> {
    let mut taken = TakenRows { known: shared.take_rows(name), shared: Arc::clone(&shared), name };
    let context = &shared.context;
    let Some(known) = &mut taken.known else { return Err(DocNumberError::Closed) };
    let is_first = known.counter.is_none();
    let (of, until) = (name.key(&context.series), context.rows.several_calls());
    let reserved = context.reserver().reserve(&of, known, count, until).await;
    shared.end_refill(taken, &reserved);
    shared.report(name, is_first, &reserved);
    reserved.map(drop)
}
