//! The counters that a node holds. The module does no I/O.

use std::{collections::HashMap, num::NonZeroUsize};

use clock::WallTime;
use lru::LruCache;

use super::{
    counter::{CounterName, HeldCounter, RowsState, RowsTask},
    give_back::GivenUp,
    queues::{QueuedDraw, Queues},
    reserve::KnownRows,
};
use crate::{DayText, DocNumber, RenderError, Series, WsId};

/// The counters that a node holds, and the text of the day.
///
/// Invariant: a counter is in at most one of `held`, `old` and `returning`, so one task at a time
/// uses its rows. A simpler version forgets a counter that it gives back. The next draw reserves
/// again; if that reservation comes first, the counters of the first range cannot be given back,
/// although no other node exists.
#[derive(Debug)]
pub(crate) struct HeldCounters {
    day: Option<DayText>,
    held: LruCache<CounterName, HeldCounter>,
    most: NonZeroUsize,
    /// The counters that wait to be given back, in order of arrival.
    old: LruCache<CounterName, GivenUp>,
    /// The counters that are being given back.
    pub(crate) returning: HashMap<CounterName, RowsTask>,
    /// The number of held counters whose rows a task uses.
    refilling: usize,
    /// The draws that wait for values.
    pub(crate) queues: Queues,
    /// The number of values that may be lost, because they could not be given back.
    pub(crate) lost: u64,
    /// The number of values that are held and not issued.
    pub(crate) unissued: u64,
    pub(crate) is_closed: bool,
}

impl HeldCounters {
    pub(crate) fn new(most: NonZeroUsize) -> HeldCounters {
        HeldCounters {
            day: None,
            held: LruCache::unbounded(),
            most,
            old: LruCache::unbounded(),
            returning: HashMap::new(),
            refilling: 0,
            queues: Queues::default(),
            lost: 0,
            unissued: 0,
            is_closed: false,
        }
    }

    /// Makes the text of the day of `now`. Returns the names of the idle counters of periods that
    /// are over.
    ///
    /// A clock that goes back ends no period: the later periods begin again soon.
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

    /// The counter of a name, if the node holds it. This does not count as a use of the counter.
    pub(crate) fn find(&mut self, name: CounterName) -> Option<&mut HeldCounter> {
        self.held.peek_mut(&name)
    }

    /// Adds a counter, with the ranges that it had when it began to wait to be given back.
    pub(crate) fn add(&mut self, name: CounterName, old: Option<GivenUp>, step: u64) {
        let (ranges, known) = old.map(|old| (old.held, old.known)).unwrap_or_default();
        self.unissued += ranges.unissued(step);
        let rows = RowsState::Idle(known);
        self.held.put(name, HeldCounter { ranges, rows, failed: None });
    }

    /// Begins a reservation of an idle counter, which `task` makes.
    pub(crate) fn begin_refill(&mut self, name: CounterName, task: RowsTask) {
        let Some(HeldCounter { ranges, rows, .. }) = self.held.peek_mut(&name) else { return };
        let RowsState::Idle(known) = rows else { return };
        known.spent.append(&mut ranges.take_spent());
        *rows = RowsState::Refilling(task, Some(std::mem::take(known)));
        self.refilling += 1;
    }

    /// Ends the reservation of a counter, and gives the counter its known rows back.
    pub(crate) fn end_refill(&mut self, name: CounterName, known: KnownRows) {
        self.refilling = self.refilling.saturating_sub(1);
        if let Some(counter) = self.held.peek_mut(&name) {
            counter.rows = RowsState::Idle(known);
        }
    }

    /// The number of reservations under way.
    pub(crate) fn refilling(&self) -> usize {
        self.refilling
    }

    /// Whether the node holds as many counters as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.held.len() >= self.most.get()
    }

    /// The idle counter that was unused for the longest time.
    pub(crate) fn oldest_idle(&self) -> Option<CounterName> {
        let idle = self.held.iter().rev().find(|(_, held)| held.is_idle());
        idle.map(|(name, _)| *name)
    }

    /// The value that a draw would give next, if the node holds one.
    pub(crate) fn next_value(&self, name: CounterName, step: u64) -> Option<u64> {
        let held = self.held.peek(&name).map(|counter| &counter.ranges);
        let ranges = held.or_else(|| self.old.peek(&name).map(|old| &old.held))?;
        ranges.counters(step).next()
    }

    /// Draws `count` numbers, and returns the number of values that are left. Draws none if the
    /// node holds too few values for this draw and those before it, or if a number has no text.
    pub(crate) fn draw(
        &mut self,
        name: CounterName,
        queued: Option<QueuedDraw>,
        ws: WsId,
        count: u64,
        step: u64,
        mut give: impl FnMut(DocNumber),
    ) -> Result<Option<u64>, RenderError> {
        let HeldCounters { day, held, queues, unissued: all_unissued, .. } = self;
        let (Some(day), Some(counter)) = (day, held.get_mut(&name)) else { return Ok(None) };
        let unissued = counter.ranges.unissued(step);
        if unissued < queues.before(name, queued, unissued) + count {
            return Ok(None);
        }
        for (_, value) in (0..count).zip(counter.ranges.counters(step)) {
            give(day.number(ws, value)?);
        }
        counter.ranges.issue(count, step);
        *all_unissued -= count;
        Ok(Some(unissued - count))
    }

    /// How many more values the waiting draws of a counter need.
    pub(crate) fn missing(&self, name: CounterName, step: u64) -> u64 {
        let unissued = self.held.peek(&name).map_or(0, |counter| counter.ranges.unissued(step));
        self.queues.missing(name, unissued)
    }

    /// Takes a counter out, with everything that the node holds of it.
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

    /// The names of the counters that wait to be given back.
    pub(crate) fn old_names(&self) -> impl Iterator<Item = &CounterName> {
        self.old.iter().map(|(name, _)| name)
    }

    /// The number of counters that wait to be given back.
    pub(crate) fn waiting(&self) -> usize {
        self.old.len()
    }

    /// Takes out the counter that has waited longest to be given back.
    pub(crate) fn pop_old(&mut self) -> Option<(CounterName, GivenUp)> {
        self.old.pop_lru()
    }

    /// Takes out the counter of a name, if it waits to be given back.
    pub(crate) fn take_old(&mut self, name: CounterName) -> Option<GivenUp> {
        self.old.pop(&name)
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
