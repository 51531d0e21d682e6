//! The counters that a node holds. The module does no I/O.

use std::{fmt, num::NonZeroUsize};

use clock::{Instant, WallTime};
use futures::future::{BoxFuture, Shared};
use lru::LruCache;

use super::{held::HeldRanges, reserve::KnownRows};
use crate::{CounterKey, DayText, DocNumber, DrawError, Period, RenderError, Series, WsId};

/// A reservation under way. All draws that need it wait for the same one.
pub(crate) type Refill = Shared<BoxFuture<'static, Result<(), DrawError>>>;

/// The name of a counter of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CounterName {
    pub(crate) period: Period,
    /// `None` if the application has one counter.
    pub(crate) ws: Option<WsId>,
}

impl CounterName {
    /// The name of the stored rows.
    pub(crate) fn key(self, series: &Series) -> CounterKey {
        CounterKey { series: series.id().clone(), period: self.period, ws: self.ws }
    }
}

/// A counter of which the node holds ranges.
#[derive(Debug)]
pub(crate) struct HeldCounter {
    pub(crate) ranges: HeldRanges,
    pub(crate) rows: RowsState,
    /// No range is reserved ahead before this moment, because the last reservation failed.
    pub(crate) paused_until: Option<Instant>,
}

/// The task that uses the rows of a counter. One task at a time does.
pub(crate) enum RowsState {
    Idle(KnownRows),
    Refilling(Refill),
}

impl fmt::Debug for RowsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowsState::Idle(known) => f.debug_tuple("Idle").field(known).finish(),
            RowsState::Refilling(_) => f.write_str("Refilling"),
        }
    }
}

/// The counters that a node holds, and the text of the day.
#[derive(Debug)]
pub(crate) struct HeldCounters {
    day: Option<DayText>,
    held: LruCache<CounterName, HeldCounter>,
    most: NonZeroUsize,
    /// The number of counters that are held and not issued.
    pub(crate) unissued: u64,
    pub(crate) is_closed: bool,
}

impl HeldCounter {
    fn new() -> HeldCounter {
        let rows = RowsState::Idle(KnownRows::default());
        HeldCounter { ranges: HeldRanges::default(), rows, paused_until: None }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.rows, RowsState::Idle(_))
    }
}

impl HeldCounters {
    pub(crate) fn new(most: NonZeroUsize) -> HeldCounters {
        let held = LruCache::unbounded();
        HeldCounters { day: None, held, most, unissued: 0, is_closed: false }
    }

    /// Makes the text of the day of `now`. Returns the counters of periods that are over.
    ///
    /// A clock that goes back retires nothing: the periods that it left begin again soon.
    pub(crate) fn begin_day(
        &mut self,
        now: WallTime,
        series: &Series,
    ) -> Result<Vec<(CounterName, HeldCounter)>, RenderError> {
        if self.day.as_ref().is_some_and(|day| day.contains(now)) {
            return Ok(Vec::new());
        }
        let day = series.day(now)?;
        let period = day.period();
        self.day = Some(day);
        let is_over =
            |(name, held): &(&CounterName, &HeldCounter)| name.period < period && held.is_idle();
        let over: Vec<CounterName> =
            self.held.iter().filter(is_over).map(|(name, _)| *name).collect();
        Ok(over.iter().filter_map(|name| self.remove(name)).collect())
    }

    /// The text of the day that began last.
    pub(crate) fn day(&self) -> Option<&DayText> {
        self.day.as_ref()
    }

    /// The counter of a name. If the node holds too many counters then, the other value is the one
    /// that was not used for the longest time. A counter with a reservation under way stays.
    pub(crate) fn counter(
        &mut self,
        name: CounterName,
    ) -> (&mut HeldCounter, Option<(CounterName, HeldCounter)>) {
        let mut evicted = None;
        if !self.held.contains(&name) && self.held.len() >= self.most.get() {
            let idle = self.held.iter().rev().find(|(_, held)| held.is_idle());
            let idle = idle.map(|(name, _)| *name);
            evicted = idle.and_then(|name| self.remove(&name));
        }
        (self.held.get_or_insert_mut(name, HeldCounter::new), evicted)
    }

    /// The counter of a name, if the node holds it. The counter does not count as used.
    pub(crate) fn find(&mut self, name: CounterName) -> Option<&mut HeldCounter> {
        self.held.peek_mut(&name)
    }

    /// Draws `count` numbers. Draws none if the node holds too few counters, or if a number has no
    /// text.
    pub(crate) fn draw(
        &mut self,
        name: CounterName,
        (ws, count, step): (WsId, u64, u64),
        mut give: impl FnMut(DocNumber),
    ) -> Result<Drawn, RenderError> {
        let HeldCounters { day, held, unissued: all_unissued, .. } = self;
        let (Some(day), Some(counter)) = (day, held.get_mut(&name)) else {
            return Ok(Drawn::Missing(count));
        };
        let unissued = counter.ranges.unissued(step);
        if let Some(missing) = count.checked_sub(unissued).filter(|missing| *missing > 0) {
            return Ok(Drawn::Missing(missing));
        }
        for (_, at) in (0..count).zip(counter.ranges.counters(step)) {
            give(day.number(ws, at)?);
        }
        counter.ranges.issue(count, step);
        *all_unissued -= count;
        Ok(Drawn::All { left: unissued - count })
    }

    /// Takes a counter out, with all that the node holds of it.
    pub(crate) fn remove(&mut self, name: &CounterName) -> Option<(CounterName, HeldCounter)> {
        self.held.pop_entry(name)
    }

    /// The reservations under way.
    pub(crate) fn refills(&self) -> Vec<Refill> {
        let refill = |(_, held): (&CounterName, &HeldCounter)| match &held.rows {
            RowsState::Refilling(refill) => Some(refill.clone()),
            RowsState::Idle(_) => None,
        };
        self.held.iter().filter_map(refill).collect()
    }

    /// Takes all counters out.
    pub(crate) fn remove_all(&mut self) -> Vec<(CounterName, HeldCounter)> {
        std::iter::from_fn(|| self.held.pop_lru()).collect()
    }
}

/// The outcome of a draw from the held counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// All numbers are drawn, and so many counters are left.
    All { left: u64 },
    /// Nothing is drawn, because so many counters are missing.
    Missing(u64),
}
