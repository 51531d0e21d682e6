//! Fast series: nodes reserve ranges of counters, and draw numbers from them in memory.

mod context;
mod counter;
mod error;
mod give_back;
mod held;
mod meters;
mod owner;
mod queues;
mod refill;
mod reserve;
mod returns;
mod settings;
mod shared;
mod state;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use clock::Instant;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::{
    context::SeriesContext, meters::SeriesMeters, queues::QueuedDraw, returns::ReturnState,
    shared::SharedSeries, state::HeldCounters,
};
pub use self::{
    context::SeriesEnd, error::DocNumberError, owner::RangeOwner, settings::FastSettings,
};
use crate::{DocNumber, DocNumberRows, FixError, Policy, Series, WsId};

/// How often a call checks the counters that wait to be given back.
const RETURN_CHECK: Duration = Duration::from_millis(1);

/// A series whose numbers a node draws from reserved ranges, in memory.
///
/// - No number is drawn twice: not by several nodes, and not after a crash, a fail-over or a clock
///   that goes back. A reservation is one conditional write of the storage.
/// - The date in a number and the period of its counter come from one moment.
/// - A counter that is reserved and not issued is in the ledger ([`DocNumberRows::ledger`]). After
///   [`FastSeries::close`], the next node goes on with the next counter, unless other nodes have
///   reserved counters after it.
///
/// If each workspace has its own counter and the template has no `{ws}`, two workspaces draw the
/// same text.
///
/// The first draw of a counter waits for the storage. Later draws wait only if callers draw more
/// than [`refill_below`](FastSettings::refill_below) numbers per round trip, if a block is larger
/// than the values that the node holds, if the counter was given back since, or if the storage
/// fails. Waiting draws of a counter are served in order of arrival. A draw that needs no wait goes
/// before them only while the node holds too few values for the first of them.
///
/// Open a series once in a process. A clone is another handle of the same series. If all handles
/// are dropped without [`close`](FastSeries::close), the rest of each range is lost, as in a crash.
///
/// ```
/// use docnumbers::{Definition, FastSeries, FastSettings, DocNumberRows, Series, WsId};
/// # use docnumbers::{clock::Clock, istorage::{KeyspaceName, StorageDriver, mem::MemDriver}};
/// # use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let clock = Clock::system();
/// # let (driver, name) = (MemDriver::new(clock.clone()), KeyspaceName::new("demo")?);
/// # let soon = clock.now() + Duration::from_secs(5);
/// # driver.create(&name, soon).await?;
/// # let storage = driver.open(&name, soon).await?.ok_or("the keyspace does not exist")?;
/// let rows = DocNumberRows::new(storage, clock, "numbers", Duration::from_secs(1));
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
    owner: Arc<SeriesOwner>,
}

/// Ends the tasks of a series when the last handle is dropped.
#[derive(Debug)]
struct SeriesOwner(Arc<SharedSeries>);

impl Drop for SeriesOwner {
    fn drop(&mut self) {
        let SharedSeries { context, stop, .. } = &*self.0;
        stop.cancel();
        let (unissued, is_closed) = {
            let held = self.0.held();
            (held.unissued, held.is_closed)
        };
        if unissued > 0 && !is_closed {
            warn!(series = %context.series.id(), unissued, "document numbers lost: series not closed");
        }
    }
}

/// A draw that may wait. It leaves its queue when it ends or is dropped.
struct WaitingDraw<'a> {
    shared: &'a SharedSeries,
    queued: Option<QueuedDraw>,
}

impl Drop for WaitingDraw<'_> {
    fn drop(&mut self) {
        if let Some(queued) = self.queued {
            self.shared.held().queues.leave(queued);
        }
    }
}

impl FastSeries {
    /// Fixes the definition in the storage, and makes a handle of the series. The ledger shows
    /// `owner` for ranges of this handle. The tasks of the series run on the runtime of this call.
    ///
    /// # Errors
    /// Those of [`DocNumberRows::fix`], and settings that cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open(
        series: Series,
        rows: DocNumberRows,
        owner: impl Into<RangeOwner>,
        settings: FastSettings,
        deadline: Instant,
    ) -> Result<FastSeries, FixError> {
        let most = settings.counters()?;
        rows.fix(&series, Policy::Fast, deadline).await?;
        let owner = owner.into();
        let meters = SeriesMeters::new(series.id(), owner.app.as_deref());
        let shared = SharedSeries {
            context: SeriesContext { series, rows, owner, settings, meters },
            runtime: Handle::current(),
            stop: CancellationToken::new(),
            held: Mutex::new(HeldCounters::new(most)),
            closing: Mutex::new(None),
        };
        Ok(FastSeries { owner: Arc::new(SeriesOwner(Arc::new(shared))) })
    }

    fn shared(&self) -> &Arc<SharedSeries> {
        &self.owner.0
    }

    /// The series.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.shared().context.series
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &FastSettings {
        &self.shared().context.settings
    }

    /// Draws the next number of a workspace.
    ///
    /// # Errors
    /// The reason why no number was drawn.
    ///
    /// # Cancel safety
    /// Safe: a future that is dropped has drawn nothing.
    pub async fn next(&self, ws: WsId, deadline: Instant) -> Result<DocNumber, DocNumberError> {
        let mut drawn = None;
        self.draw(ws, 1, deadline, |number| drawn = Some(number)).await?;
        drawn.ok_or(DocNumberError::Closed)
    }

    /// Draws a block of numbers of a workspace, all of one period: either all of them or none.
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
    ) -> Result<Vec<DocNumber>, DocNumberError> {
        let max = self.settings().max_block;
        if !(1..=max).contains(&count) {
            return Err(DocNumberError::Block { count, max });
        }
        let mut drawn = Vec::with_capacity(count as usize);
        self.draw(ws, count, deadline, |number| drawn.push(number)).await?;
        Ok(drawn)
    }

    /// The number that this node would draw next, if no other caller draws first. Nothing is drawn.
    /// While a reservation of this node is under way, the storage may already count its range, and
    /// the next draw may give an earlier number than this one.
    ///
    /// # Errors
    /// The reason why no number could be drawn.
    pub async fn peek(&self, ws: WsId, deadline: Instant) -> Result<DocNumber, DocNumberError> {
        let context = &self.shared().context;
        let (day, name, held) = {
            let mut held = self.shared().held();
            let name = self.shared().begin(&mut held, ws)?;
            let value = held.next_value(name, context.step());
            (held.day().cloned().ok_or(DocNumberError::Closed)?, name, value)
        };
        let value = match held {
            Some(value) => value,
            None => {
                let stored = context.rows.counter(&name.key(&context.series), deadline).await?;
                stored.unwrap_or(context.series.definition().start)
            }
        };
        Ok(day.number(ws, value)?)
    }

    /// Gives back the counters of some workspaces, for example because another node serves these
    /// workspaces from now on. Waits for the storage until `deadline`; work that takes longer goes
    /// on.
    ///
    /// A later draw of these workspaces reserves a new range. A counter with a reservation under
    /// way is kept, and so is a counter that all workspaces share.
    ///
    /// # Cancel safety
    /// Safe: what has begun goes on.
    pub async fn give_back(&self, is_of: impl Fn(WsId) -> bool, deadline: Instant) {
        let shared = self.shared();
        shared.retire_all(&is_of);
        let clock = shared.context.rows.clock();
        while clock.now() < deadline {
            match shared.return_of(&is_of) {
                ReturnState::Done => break,
                ReturnState::Begun(task) => drop(clock.timeout_at(deadline, task).await),
                ReturnState::Waiting => clock.sleep(RETURN_CHECK).await,
            }
        }
    }

    /// Gives back all counters that are not issued, until `deadline`. Draws fail from now on. A
    /// later call waits for the first one, and returns the same result.
    ///
    /// # Cancel safety
    /// Safe: the first call starts a task, which goes on.
    pub async fn close(&self, deadline: Instant) -> SeriesEnd {
        self.shared().closing(deadline).await
    }

    async fn draw(
        &self,
        ws: WsId,
        count: u32,
        deadline: Instant,
        mut give: impl FnMut(DocNumber),
    ) -> Result<(), DocNumberError> {
        let shared = self.shared();
        let mut waiting = WaitingDraw { shared, queued: None };
        let queued = &mut waiting.queued;
        let Some(mut task) = shared.try_draw(ws, count, queued, &mut give)? else { return Ok(()) };
        let clock = shared.context.rows.clock();
        let since = clock.now();
        let drawn = loop {
            match clock.timeout_at(deadline, task).await {
                Err(_) => break Err(DocNumberError::TimedOut),
                Ok(Err(error)) => break Err(error),
                Ok(Ok(())) => {}
            }
            // Draws that came before may take the range.
            match shared.try_draw(ws, count, queued, &mut give) {
                Ok(Some(next)) => task = next,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        shared.context.meters.refill_wait.record(clock.now() - since);
        drawn
    }
}
