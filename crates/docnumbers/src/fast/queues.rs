//! The draws that wait for values. The module does no I/O.

use std::collections::{BTreeMap, HashMap};

use super::counter::CounterName;

/// The draws that wait for values of a counter, in order of arrival.
///
/// Invariant: a draw that waits does not wait for draws that come later. Each reservation that
/// begins reserves enough for the first draw, and no later draw takes these values. A simpler
/// version lets draws race for each range. A block of 500 numbers waits; callers of single numbers
/// draw the range before the block holds 500 values, and begin the next reservation; so the block
/// waits until its deadline.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// The number of values that each draw needs, by its number.
    queues: HashMap<CounterName, BTreeMap<u64, u64>>,
    /// The number of the draw that comes next.
    next: u64,
}

/// The place of a draw in the queue of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedDraw {
    pub(crate) counter: CounterName,
    number: u64,
}

impl Queues {
    /// Adds a draw of `count` values after the others.
    pub(crate) fn join(&mut self, counter: CounterName, count: u64) -> QueuedDraw {
        let number = self.next;
        self.next += 1;
        self.queues.entry(counter).or_default().insert(number, count);
        QueuedDraw { counter, number }
    }

    /// Removes a draw that has its values, or that no longer waits.
    pub(crate) fn leave(&mut self, QueuedDraw { counter, number }: QueuedDraw) {
        let Some(queue) = self.queues.get_mut(&counter) else { return };
        queue.remove(&number);
        if queue.is_empty() {
            self.queues.remove(&counter);
        }
    }

    /// The number of values that other draws get before the draw at `queued`, if `unissued` values
    /// are held.
    ///
    /// A draw without a place does not wait yet. It may take values that are too few for the first
    /// draw of the queue.
    pub(crate) fn before(
        &self,
        counter: CounterName,
        queued: Option<QueuedDraw>,
        unissued: u64,
    ) -> u64 {
        // Usually no draw waits, and then a draw does not look for its counter.
        if self.queues.is_empty() {
            return 0;
        }
        let Some(queue) = self.queues.get(&counter) else { return 0 };
        match queued {
            Some(queued) => queue.range(..queued.number).map(|(_, count)| count).sum(),
            None if is_enough_for_first(queue, unissued) => queue.values().sum(),
            None => 0,
        }
    }

    /// The number of values that the draws of a counter wait for, if `unissued` values are held.
    pub(crate) fn missing(&self, counter: CounterName, unissued: u64) -> u64 {
        let Some(queue) = self.queues.get(&counter) else { return 0 };
        let wanted: u64 = queue.values().sum();
        if is_enough_for_first(queue, unissued) {
            wanted.saturating_sub(unissued)
        } else {
            // Draws that do not wait may take all of the values before the reservation ends.
            wanted
        }
    }
}

fn is_enough_for_first(queue: &BTreeMap<u64, u64>, unissued: u64) -> bool {
    queue.values().next().is_some_and(|first| *first <= unissued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Period, Reset};

    #[test]
    fn values_are_for_the_draws_that_came_first() {
        let period = Period::of(Reset::Never, jiff::civil::Date::ZERO);
        let counter = CounterName { period, ws: None };
        let mut queues = Queues::default();
        assert_eq!((queues.before(counter, None, 50), queues.missing(counter, 50)), (0, 0));
        let first = queues.join(counter, 100);
        let second = queues.join(counter, 3);
        // 99 values are too few for the first draw, so new draws may take all of them.
        let new = |unissued| queues.before(counter, None, unissued);
        assert_eq!((new(99), new(100)), (0, 103));
        let missing = |unissued| queues.missing(counter, unissued);
        assert_eq!((missing(99), missing(100), missing(500)), (103, 3, 0));
        let before = |queued| queues.before(counter, Some(queued), 50);
        assert_eq!((before(first), before(second)), (0, 100));
        queues.leave(first);
        assert_eq!((queues.before(counter, Some(second), 50), queues.missing(counter, 2)), (0, 3));
        queues.leave(second);
        assert!(queues.queues.is_empty(), "{queues:?}");
    }
}
