//! Fast series: nodes reserve ranges of counters, and draw numbers from them in memory.

mod context;
mod error;
mod give_back;
mod held;
mod meters;
mod refill;
mod reserve;
mod settings;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Instant;
use futures::future::join_all;

pub use self::{context::SeriesEnd, error::DrawError, settings::FastSettings};
use self::{
    context::{Returns, SeriesContext},
    meters::SeriesMeters,
    state::{CounterName, Drawn, HeldCounter, HeldCounters, Refill, RowsState},
};
use crate::{DocNumber, FixError, NumberRows, Policy, Series, WsId};

/// A series whose numbers a node draws from reserved ranges, in memory.
///
/// - No number is drawn twice: not by several nodes, and not after a crash, a fail-over or a clock
///   that goes back. A reservation is one conditional write of the storage.
/// - The date in a number and the period of its counter come from one moment.
/// - A counter that is reserved and not issued is in the ledger ([`NumberRows::ledger`]). After
///   [`FastSeries::close`], the next node goes on with the next counter, unless other nodes have
///   reserved counters behind it.
///
/// The next range is reserved in the background. So a draw waits for the storage only if numbers
/// are drawn faster than a range per round trip, or if the storage fails.
///
/// A clone is another handle of the same series. If all handles are dropped without
/// [`close`](FastSeries::close), the rest of each range is lost, as in a crash.
///
/// ```
/// use docnumbers::{Definition, FastSeries, FastSettings, NumberRows, Series, WsId};
/// # use docnumbers::{clock::Clock, istorage::{KeyspaceName, StorageDriver, mem::MemDriver}};
/// # use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let clock = Clock::system();
/// # let (driver, name) = (MemDriver::new(clock.clone()), KeyspaceName::new("demo")?);
/// # let soon = clock.now() + Duration::from_secs(5);
/// # driver.create(&name, soon).await?;
/// # let storage = driver.open(&name, soon).await?.ok_or("it was just created")?;
/// let rows = NumberRows::new(storage, clock, "numbers", Duration::from_secs(1));
/// let tickets = Series::new(Definition::new("ticket", "T-{counter:4}"))?;
/// let tickets = FastSeries::open(tickets, rows, "node 1", FastSettings::default(), soon).await?;
///
/// assert_eq!(tickets.next(WsId(1), soon).await?.text, "T-0000");
/// assert_eq!(tickets.next(WsId(1), soon).await?.text, "T-0001");
/// let end = tickets.close(soon).await;
/// assert_eq!((end.given_back, end.not_issued, end.not_given_back), (198, 0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FastSeries {
    shared: Arc<SharedSeries>,
}

/// The state that all handles and reservations of a series share.
#[derive(Debug)]
struct SharedSeries {
    context: Arc<SeriesContext>,
    held: Mutex<HeldCounters>,
    returns: Mutex<Option<Returns>>,
}

impl FastSeries {
    /// Fixes the definition in the storage, and makes a handle of the series. The ledger shows
    /// `owner` for ranges of this handle: take the name of the node.
    ///
    /// # Errors
    /// Those of [`NumberRows::fix`], and settings that cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open(
        series: Series,
        rows: NumberRows,
        owner: impl Into<String>,
        settings: FastSettings,
        deadline: Instant,
    ) -> Result<FastSeries, FixError> {
        let most = settings.check()?;
        rows.fix(&series, Policy::Fast, deadline).await?;
        let (owner, meters) = (owner.into(), SeriesMeters::new(series.id()));
        let context = Arc::new(SeriesContext { series, rows, owner, settings, meters });
        let returns = Mutex::new(Some(Returns::start(Arc::clone(&context))));
        let held = Mutex::new(HeldCounters::new(most));
        Ok(FastSeries { shared: Arc::new(SharedSeries { context, held, returns }) })
    }

    /// The series.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.shared.context.series
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &FastSettings {
        &self.shared.context.settings
    }

    /// Draws the next number of a workspace.
    ///
    /// # Errors
    /// The reason why no number was drawn.
    ///
    /// # Cancel safety
    /// Safe: a future that is dropped has drawn nothing.
    pub async fn next(&self, ws: WsId, deadline: Instant) -> Result<DocNumber, DrawError> {
        let mut drawn = None;
        self.draw(ws, 1, deadline, |number| drawn = Some(number)).await?;
        drawn.ok_or(DrawError::Closed)
    }

    /// Draws a block of numbers of a workspace, all of one period. Draws either all of them or none.
    ///
    /// # Errors
    /// The reason why no number was drawn.
    ///
    /// # Cancel safety
    /// Safe: a future that is dropped has drawn nothing.
    pub async fn block(
        &self,
        ws: WsId,
        count: u32,
        deadline: Instant,
    ) -> Result<Vec<DocNumber>, DrawError> {
        let max = self.settings().max_block;
        if !(1..=max).contains(&count) {
            return Err(DrawError::Block { count, max });
        }
        let mut drawn = Vec::with_capacity(count as usize);
        self.draw(ws, count, deadline, |number| drawn.push(number)).await?;
        Ok(drawn)
    }

    /// The number that this node would draw next. Nothing is drawn, and another caller may draw it.
    ///
    /// # Errors
    /// The reason why no number could be drawn.
    pub async fn peek(&self, ws: WsId, deadline: Instant) -> Result<DocNumber, DrawError> {
        let context = &self.shared.context;
        let (day, name, held) = {
            let mut held = self.shared.held();
            let name = self.shared.begin(&mut held, ws)?;
            let counters = held.find(name).map(|counter| &counter.ranges);
            let first = counters.and_then(|ranges| ranges.counters(context.step()).next());
            (held.day().cloned(), name, first)
        };
        let counter = match held {
            Some(counter) => counter,
            None => {
                let stored = context.rows.counter(&name.key(&context.series), deadline).await?;
                stored.unwrap_or(context.series.definition().start)
            }
        };
        let day = day.map_or_else(|| context.series.day(context.rows.clock().wall()), Ok)?;
        Ok(day.number(ws, counter)?)
    }

    /// Gives back all counters that are not issued, until `deadline`. Draws fail from now on. The
    /// second call does nothing.
    pub async fn close(&self, deadline: Instant) -> SeriesEnd {
        let SharedSeries { context, returns, .. } = &*self.shared;
        let refills = {
            let mut held = self.shared.held();
            held.is_closed = true;
            held.refills()
        };
        let clock = context.rows.clock();
        // A range that is reserved only now is given back, too.
        let _ = clock.timeout_at(deadline, join_all(refills)).await;
        let all = {
            let mut held = self.shared.held();
            held.unissued = 0;
            held.remove_all()
        };
        let all = all.into_iter().filter_map(|counter| context.given_up(counter)).collect();
        let end = context.give_all_back(all, deadline).await;
        context.meters.remaining.set(0.0);
        let returns = returns.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = returns.map(Returns::ending)
            && clock.timeout_at(deadline, &mut task).await.is_err()
        {
            task.abort();
        }
        end
    }

    async fn draw(
        &self,
        ws: WsId,
        count: u32,
        deadline: Instant,
        mut give: impl FnMut(DocNumber),
    ) -> Result<(), DrawError> {
        let Some(mut refill) = self.shared.try_draw(ws, count, &mut give)? else { return Ok(()) };
        let clock = self.shared.context.rows.clock();
        let since = clock.now();
        let drawn = loop {
            match clock.timeout_at(deadline, refill).await {
                Err(_) => break Err(DrawError::TimedOut),
                Ok(Err(error)) => break Err(error),
                Ok(Ok(())) => {}
            }
            // Other draws may have taken the range.
            match self.shared.try_draw(ws, count, &mut give) {
                Ok(Some(next)) => refill = next,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.shared.context.meters.refill_wait.record(clock.now() - since);
        drawn
    }
}

impl SharedSeries {
    fn held(&self) -> MutexGuard<'_, HeldCounters> {
        // No code that holds the lock leaves the state half changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the day of now. Returns the name of the counter of a workspace.
    ///
    /// Invariant: the clock is read under the lock. A simpler version reads the clock first. Caller
    /// A reads 23:59; caller B reads 00:00, begins the day and retires the counters of yesterday;
    /// caller A begins yesterday again, and reserves a range for one number.
    fn begin(&self, held: &mut HeldCounters, ws: WsId) -> Result<CounterName, DrawError> {
        if held.is_closed {
            return Err(DrawError::Closed);
        }
        let SeriesContext { series, rows, .. } = &*self.context;
        for counter in held.begin_day(rows.clock().wall(), series)? {
            self.retire(held, counter);
        }
        let period = held.day().map(crate::DayText::period).ok_or(DrawError::Closed)?;
        Ok(CounterName { period, ws: series.counter_of(ws) })
    }

    /// Draws numbers, or returns the reservation that must come first.
    fn try_draw(
        self: &Arc<Self>,
        ws: WsId,
        count: u32,
        give: &mut impl FnMut(DocNumber),
    ) -> Result<Option<Refill>, DrawError> {
        let (context, count) = (&self.context, u64::from(count));
        let (step, settings) = (context.step(), &context.settings);
        let mut guard = self.held();
        let held = &mut *guard;
        let name = self.begin(held, ws)?;
        let missing = match held.draw(name, (ws, count, step), give)? {
            Drawn::All { left } => {
                context.meters.issued.increment(count);
                if left <= settings.refill_below {
                    self.refill_ahead(held, name);
                }
                return Ok(None);
            }
            Drawn::Missing(missing) => missing,
        };
        let (counter, evicted) = held.counter(name);
        let refill = match &counter.rows {
            RowsState::Refilling(refill) => refill.clone(),
            RowsState::Idle(_) => self.refill(counter, name, settings.range.max(missing)),
        };
        if let Some(evicted) = evicted {
            self.retire(held, evicted);
        }
        Ok(Some(refill))
    }

    /// Hands a counter to the task that gives counters back.
    fn retire(&self, held: &mut HeldCounters, counter: (CounterName, HeldCounter)) {
        let unissued = counter.1.ranges.unissued(self.context.step());
        held.unissued -= unissued;
        let Some(given_up) = self.context.given_up(counter) else { return };
        let returns = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        if !returns.as_ref().is_some_and(|returns| returns.send(given_up)) {
            self.context.meters.not_given_back.increment(unissued);
        }
    }
}
