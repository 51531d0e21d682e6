//! The counters that a node holds. The module does no I/O.

use std::{collections::HashMap, fmt, num::NonZeroUsize};

use clock::{Instant, WallTime};
use futures::future::{BoxFuture, Shared};
use lru::LruCache;

use super::{give_back::GivenUp, held::HeldRanges, reserve::KnownRows};
use crate::{CounterKey, DayText, DocNumber, DocNumberError, Period, RenderError, Series, WsId};

/// A task that uses the rows of a counter. All draws that need the rows wait for the same task.
pub(crate) type RowsTask = Shared<BoxFuture<'static, Result<(), DocNumberError>>>;

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
    /// After a failed reservation: the moment before which no other reservation begins, and the
    /// error.
    pub(crate) failed: Option<(Instant, DocNumberError)>,
}

/// The user of the rows of a held counter.
pub(crate) enum RowsState {
    /// No task uses the rows.
    Idle(KnownRows),
    /// A task reserves a range. It takes what is known of the rows when it begins.
    Refilling(RowsTask, Option<KnownRows>),
}

impl fmt::Debug for RowsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowsState::Idle(known) => f.debug_tuple("Idle").field(known).finish(),
            RowsState::Refilling(..) => f.write_str("Refilling"),
        }
    }
}

/// The counters that a node holds, and the text of the day.
///
/// Invariant: a counter is in at most one of `held`, `old` and `returning`, so one task at a time
/// uses its rows. A simpler version forgets a counter that it gives back. The next draw reserves
/// again; if that reservation comes first, the counters of the first range cannot be given back,
/// although no other node exists.
pub(crate) struct HeldCounters {
    day: Option<DayText>,
    held: LruCache<CounterName, HeldCounter>,
    most: NonZeroUsize,
    /// The counters that wait to be given back, in the order in which they came.
    old: LruCache<CounterName, GivenUp>,
    /// The counters that are being given back.
    pub(crate) returning: HashMap<CounterName, RowsTask>,
    /// The number of values that may be lost, because they could not be given back.
    pub(crate) lost: u64,
    /// The number of values that are held and not issued.
    pub(crate) unissued: u64,
    pub(crate) is_closed: bool,
}

impl fmt::Debug for HeldCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, old, unissued) = (self.held.len(), self.old.len(), self.unissued);
        let mut shown = f.debug_struct("HeldCounters");
        shown.field("held", &held).field("old", &old).field("unissued", &unissued);
        shown.finish_non_exhaustive()
    }
}

impl HeldCounter {
    fn new(ranges: HeldRanges, known: KnownRows) -> HeldCounter {
        HeldCounter { ranges, rows: RowsState::Idle(known), failed: None }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.rows, RowsState::Idle(_))
    }
}

impl HeldCounters {
    pub(crate) fn new(most: NonZeroUsize) -> HeldCounters {
        HeldCounters {
            day: None,
            held: LruCache::unbounded(),
            most,
            old: LruCache::unbounded(),
            returning: HashMap::new(),
            lost: 0,
            unissued: 0,
            is_closed: false,
        }
    }

    /// Makes the text of the day of `now`. Returns the names of the idle counters of periods that
    /// are over.
    ///
    /// A clock that goes back ends no period: the periods that it left begin again soon.
    pub(crate) fn begin_day(
        &mut self,
        now: WallTime,
        series: &Series,
    ) -> Result<Vec<CounterName>, RenderError> {
        if self.day.as_ref().is_some_and(|day| day.contains(now)) {
            return Ok(Vec::new());
        }
        let day = series.day(now)?;
        let period = day.period();
        self.day = Some(day);
        let is_over =
            |(name, held): &(&CounterName, &HeldCounter)| name.period < period && held.is_idle();
        Ok(self.held.iter().filter(is_over).map(|(name, _)| *name).collect())
    }

    /// The text of the day that began last.
    pub(crate) fn day(&self) -> Option<&DayText> {
        self.day.as_ref()
    }

    /// The counter of a name, if the node holds it. The counter does not count as used.
    pub(crate) fn find(&mut self, name: CounterName) -> Option<&mut HeldCounter> {
        self.held.peek_mut(&name)
    }

    /// The counter of a name. A counter that the node does not hold is added without a range.
    pub(crate) fn find_or_add(&mut self, name: CounterName) -> &mut HeldCounter {
        let empty = || HeldCounter::new(HeldRanges::default(), KnownRows::default());
        self.held.get_or_insert_mut(name, empty)
    }

    /// Whether the node may add the counter of a name.
    pub(crate) fn has_room_for(&self, name: CounterName) -> bool {
        self.held.len() < self.most.get() || self.held.contains(&name)
    }

    /// The idle counter that was not used for the longest time, or a task of another counter if
    /// none is idle.
    pub(crate) fn oldest(&self) -> Option<Result<CounterName, RowsTask>> {
        let idle = self.held.iter().rev().find(|(_, held)| held.is_idle());
        idle.map(|(name, _)| Ok(*name)).or_else(|| self.tasks().next().map(Err))
    }

    /// Draws `count` numbers. Draws none if the node holds too few values, or if a number has no
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
        for (_, value) in (0..count).zip(counter.ranges.counters(step)) {
            give(day.number(ws, value)?);
        }
        counter.ranges.issue(count, step);
        *all_unissued -= count;
        Ok(Drawn::All { left: unissued - count })
    }

    /// Takes a counter out, with all that the node holds of it.
    pub(crate) fn remove(&mut self, name: CounterName, step: u64) -> Option<HeldCounter> {
        let counter = self.held.pop(&name)?;
        self.unissued -= counter.ranges.unissued(step);
        Some(counter)
    }

    /// Lets a counter wait to be given back. Refuses if too many counters wait.
    pub(crate) fn add_old(&mut self, name: CounterName, given_up: GivenUp) -> bool {
        let has_room = self.old.len() < self.most.get();
        if has_room {
            self.old.put(name, given_up);
        }
        has_room
    }

    /// The number of counters that wait to be given back.
    pub(crate) fn waiting(&self) -> usize {
        self.old.len()
    }

    /// Takes out the counter that waits for the longest time to be given back.
    pub(crate) fn pop_old(&mut self) -> Option<(CounterName, GivenUp)> {
        self.old.pop_lru()
    }

    /// Holds a counter again that waits to be given back. Returns whether there is such a counter.
    pub(crate) fn recall(&mut self, name: CounterName, step: u64) -> bool {
        let Some(GivenUp { held, known, .. }) = self.old.pop(&name) else { return false };
        self.unissued += held.unissued(step);
        self.held.put(name, HeldCounter::new(held, known));
        true
    }

    /// The names of the idle counters.
    pub(crate) fn idle(&self) -> Vec<CounterName> {
        let idle = self.held.iter().filter(|(_, held)| held.is_idle());
        idle.map(|(name, _)| *name).collect()
    }

    /// The names of all held counters.
    pub(crate) fn names(&self) -> Vec<CounterName> {
        self.held.iter().map(|(name, _)| *name).collect()
    }

    /// The tasks that use rows of counters.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = RowsTask> {
        let refilling = |(_, held): (&CounterName, &HeldCounter)| match &held.rows {
            RowsState::Refilling(task, _) => Some(task.clone()),
            RowsState::Idle(_) => None,
        };
        let returning = self.returning.values().cloned();
        self.held.iter().filter_map(refilling).chain(returning)
    }
}

/// The outcome of a draw from the held counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// All numbers are drawn, and so many values are left.
    All { left: u64 },
    /// Nothing is drawn, because so many values are missing.
    Missing(u64),
}
