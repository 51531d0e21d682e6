//! The task that reserves a range for a counter.

use std::{sync::Arc, time::Duration};

use causes::with_causes;
use futures::FutureExt;
use tracing::warn;

use super::{
    SharedSeries,
    held::HeldRange,
    reserve::KnownRows,
    state::{CounterName, HeldCounter, HeldCounters, Refill, RowsState},
};
use crate::DrawError;

/// The time after a failed reservation in which no range is reserved ahead.
const PAUSE: Duration = Duration::from_millis(200);

impl SharedSeries {
    /// Reserves the next range of a counter in the background, unless this is under way already.
    pub(super) fn refill_ahead(self: &Arc<Self>, held: &mut HeldCounters, name: CounterName) {
        let Some(counter) = held.find(name) else { return };
        if counter.ranges.has_spare() || !counter.is_idle() {
            return;
        }
        let now = self.context.rows.clock().now();
        if counter.paused_until.is_none_or(|until| until <= now) {
            // The counter keeps the reservation, which needs no caller to wait for it.
            drop(self.refill(counter, name, self.context.settings.range));
        }
    }

    /// Starts the reservation of `count` counters for an idle counter.
    pub(super) fn refill(
        self: &Arc<Self>,
        counter: &mut HeldCounter,
        name: CounterName,
        count: u64,
    ) -> Refill {
        let idle = RowsState::Idle(KnownRows::default());
        let mut known = match std::mem::replace(&mut counter.rows, idle) {
            RowsState::Idle(known) => known,
            RowsState::Refilling(refill) => return refill,
        };
        known.spent.append(&mut counter.ranges.take_spent());
        #[expect(clippy::disallowed_methods, reason = "the counter owns the task, which ends soon")]
        let task = tokio::spawn(Arc::clone(self).reserve(name, known, count));
        // A task ends early only if its runtime ends.
        let refill = task.map(|ended| ended.unwrap_or(Err(DrawError::Closed))).boxed().shared();
        counter.rows = RowsState::Refilling(refill.clone());
        refill
    }

    async fn reserve(
        self: Arc<Self>,
        name: CounterName,
        mut known: KnownRows,
        count: u64,
    ) -> Result<(), DrawError> {
        let context = &self.context;
        let of = name.key(&context.series);
        let until = context.rows.several_calls();
        let is_first = known.counter.is_none();
        let reserved = context.reserver().reserve(&of, &mut known, count, until).await;
        let mut held = self.held();
        let Some(counter) = held.find(name) else {
            // The series was closed, and its deadline did not wait for this reservation.
            return Err(DrawError::Closed);
        };
        counter.rows = RowsState::Idle(known);
        match &reserved {
            Ok(range) => {
                counter.paused_until = None;
                counter.ranges.push(range.clone());
                held.unissued += range.unissued(context.step());
                context.meters.reserved.increment(1);
                context.meters.remaining.set(held.unissued as f64);
                self.warn_if_nearly_full(name, range, is_first);
            }
            Err(error) => {
                counter.paused_until = Some(context.rows.clock().now() + PAUSE);
                context.meters.failed.increment(1);
                let (series, error) = (&of.series, with_causes(error));
                warn!(%series, period = %of.period, error, "document numbers not reserved");
            }
        }
        // The period may have ended during the reservation.
        let is_over = held.day().is_some_and(|day| name.period < day.period());
        if is_over && let Some(counter) = held.remove(&name) {
            self.retire(&mut held, counter);
        }
        reserved.map(drop)
    }

    /// Warns when the first range is reserved that has counters with nearly too many digits.
    fn warn_if_nearly_full(&self, name: CounterName, range: &HeldRange, is_first: bool) {
        let series = &self.context.series;
        let has_warned = series.is_nearly_full(range.next) && !is_first;
        if series.is_nearly_full(range.until.saturating_sub(self.context.step())) && !has_warned {
            let (ws, digits) = (name.ws.map(|ws| ws.0), series.counter_width());
            let (series, period, until) = (series.id(), name.period, range.until);
            warn!(%series, %period, ws, until, digits, "document numbers nearly full");
        }
    }
}
