//! The ranges of a counter that a node holds, and the drawing of counters from them.
//!
//! The module does no I/O.

use std::collections::VecDeque;

use bytes::Bytes;

/// A range that the node has reserved. The counters from `next` on are not issued yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldRange {
    pub(crate) ledger: StoredRange,
    pub(crate) next: u64,
    /// The first counter that does not belong to the range.
    pub(crate) until: u64,
}

/// The ledger row of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRange {
    /// The first counter of the range, which is the key of the row.
    pub(crate) first: u64,
    /// The stored bytes.
    pub(crate) row: Bytes,
}

impl HeldRange {
    /// The number of counters that are not issued yet.
    pub(crate) fn unissued(&self, step: u64) -> u64 {
        self.until.saturating_sub(self.next).div_ceil(step)
    }
}

/// The ranges of a counter that the node holds: the current one, and usually the next one. A block
/// that waits may add a longer range after them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldRanges {
    /// Each of them has a counter that is not issued.
    ranges: VecDeque<HeldRange>,
    /// The ranges whose counters are all issued. Their ledger rows go with the next reservation.
    spent: Vec<StoredRange>,
}

impl HeldRanges {
    /// Adds a range after the others.
    pub(crate) fn push(&mut self, range: HeldRange) {
        self.ranges.push_back(range);
    }

    /// Whether another range follows the current one.
    pub(crate) fn has_spare(&self) -> bool {
        self.ranges.len() > 1
    }

    /// The number of counters that are not issued yet.
    pub(crate) fn unissued(&self, step: u64) -> u64 {
        self.ranges.iter().map(|range| range.unissued(step)).sum()
    }

    /// The counters that are not issued yet, in their order.
    pub(crate) fn counters(&self, step: u64) -> impl Iterator<Item = u64> {
        self.ranges.iter().flat_map(move |range| {
            let following = move |counter: &u64| counter.checked_add(step);
            std::iter::successors(Some(range.next), following)
                .take_while(|next| *next < range.until)
        })
    }

    /// Issues the first `count` counters.
    pub(crate) fn issue(&mut self, mut count: u64, step: u64) {
        while let Some(range) = self.ranges.front_mut().filter(|_| count > 0) {
            let issued = count.min(range.unissued(step));
            count -= issued;
            range.next = range.next.saturating_add(issued.saturating_mul(step)).min(range.until);
            if range.next == range.until {
                self.spent.extend(self.ranges.pop_front().map(|range| range.ledger));
            }
        }
    }

    /// Whether the node holds neither a range nor a ledger row.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.spent.is_empty()
    }

    /// Takes the ledger rows that are no longer needed.
    pub(crate) fn take_spent(&mut self) -> Vec<StoredRange> {
        std::mem::take(&mut self.spent)
    }

    /// All ranges, in their order, and the ledger rows that are no longer needed.
    pub(crate) fn into_parts(self) -> (VecDeque<HeldRange>, Vec<StoredRange>) {
        (self.ranges, self.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, until: u64) -> HeldRange {
        HeldRange { ledger: StoredRange { first, row: Bytes::new() }, next: first, until }
    }

    #[test]
    fn counters_are_issued_once_and_in_order() {
        let step = 3;
        for blocks in [[1, 1, 1, 1, 1], [2, 1, 2, 0, 0], [5, 0, 0, 0, 0], [0, 4, 1, 0, 0]] {
            let mut held = HeldRanges::default();
            held.push(range(10, 19)); // 10, 13, 16
            held.push(range(28, 34)); // 28, 31
            let mut issued = Vec::new();
            for count in blocks {
                issued.extend(held.counters(step).take(count));
                held.issue(count as u64, step);
                assert_eq!(held.unissued(step), 5 - issued.len() as u64);
                assert_eq!(held.counters(step).count() as u64, held.unissued(step));
            }
            assert_eq!(issued, [10, 13, 16, 28, 31], "{blocks:?}");
            let spent: Vec<u64> = held.take_spent().iter().map(|spent| spent.first).collect();
            assert_eq!(spent, [10, 28]);
            assert!(!held.has_spare());
        }
    }

    #[test]
    fn the_last_counters_of_all_do_not_overflow() {
        let mut held = HeldRanges::default();
        held.push(range(u64::MAX - 5, u64::MAX));
        assert_eq!(held.counters(4).collect::<Vec<_>>(), [u64::MAX - 5, u64::MAX - 1]);
        held.issue(2, 4);
        assert_eq!(held.unissued(4), 0);
    }
}
