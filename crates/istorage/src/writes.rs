//! The writes of the contract, and their outcomes.

use std::time::Duration;

use bytes::Bytes;

use crate::{Error, Key, Result};

/// A plain write: afterwards the row has this value. The former value does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The row.
    pub key: Key,
    /// The value to write.
    pub value: Bytes,
}

/// The order of an ordered write: of two writes of one row, the write with the higher order stays,
/// whichever arrives first.
///
/// Orders have two bands. An order is made in the band *last*: of two writes, the one with the
/// higher number stays. [`Order::first_wins`] gives the same number in the band *first*: of two
/// writes, the one with the lower number stays. All orders of *last* are higher than all orders of
/// *first*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(i64);

impl Order {
    /// The highest number of a band. It has 62 bits, so that a storage can keep both bands below
    /// the times of its clocks in a signed 64-bit number.
    pub const MAX: u64 = (1 << 62) - 1;

    /// Makes an order of the band *last*, from 1 to [`Order::MAX`].
    ///
    /// # Errors
    /// `Invalid` outside of these bounds.
    pub fn new(order: u64) -> Result<Order> {
        match i64::try_from(order) {
            Ok(number) if (1..=Order::MAX).contains(&order) => Ok(Order(number)),
            _ => Err(Error::invalid(format!(
                "an order must be from 1 to {}, not {order}",
                Order::MAX
            ))),
        }
    }

    /// Makes an order of two numbers, in the band *last*. Orders compare by `high`, and those with
    /// an equal `high` by `low`. `high` has at most 22 bits, and `low` at most 40.
    ///
    /// # Errors
    /// `Invalid` if a number has more bits, or if both are 0.
    pub fn from_parts(high: u64, low: u64) -> Result<Order> {
        if high >= 1 << 22 || low >= 1 << 40 {
            return Err(Error::invalid(format!(
                "an order holds 22 bits and 40 bits, which is too little for {high} and {low}"
            )));
        }
        Order::new(high << 40 | low)
    }

    /// Returns the order with the same number in the band *first*.
    ///
    /// ```
    /// # use istorage::Order;
    /// let [five, six] = [5, 6].map(|number| Order::new(number).unwrap());
    /// assert!(six.first_wins() < five.first_wins() && five.first_wins() < five && five < six);
    /// ```
    #[must_use]
    pub fn first_wins(self) -> Order {
        Order(-self.0.abs())
    }

    /// Returns whether the order is in the band *first*.
    #[must_use]
    pub fn is_first_wins(self) -> bool {
        self.0 < 0
    }

    /// Returns a number that compares as the order does: the number of an order of *last*, and the
    /// negative number of an order of *first*. It is never 0, and at most [`Order::MAX`] away from
    /// 0.
    #[must_use]
    pub fn rank(self) -> i64 {
        self.0
    }
}

/// An ordered write. It stays until a write with a higher order, a plain write or a conditional
/// write replaces it. If such a write came first, the ordered write changes nothing. For a while,
/// an expired row may still win against writes with lower orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedPut {
    /// The row.
    pub key: Key,
    /// The value to write.
    pub value: Bytes,
    /// The order. Two writes of one row with equal orders must have equal bytes, and either both a
    /// TTL or neither.
    pub order: Order,
    /// The TTL of the row. With `None` the row does not expire, even if it had a TTL before.
    pub ttl: Option<Duration>,
}

/// A conditional write of one row of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The row must not exist.
    Insert {
        /// The place in the partition.
        ccols: Bytes,
        /// The value to write.
        value: Bytes,
        /// The TTL of the row, `None` if the row does not expire.
        ttl: Option<Duration>,
    },
    /// The row must be equal to the value that was read, and gets a new value.
    Swap {
        /// The place in the partition.
        ccols: Bytes,
        /// The value that was read.
        old: Bytes,
        /// The value to write.
        new: Bytes,
        /// The TTL of the row from now on. With `None` the row does not expire, even if it had a
        /// TTL before.
        ttl: Option<Duration>,
    },
    /// The row must be equal to the value that was read, and is removed.
    Delete {
        /// The place in the partition.
        ccols: Bytes,
        /// The value that was read.
        old: Bytes,
    },
}

impl Conditional {
    /// The place in the partition.
    #[must_use]
    pub fn ccols(&self) -> &Bytes {
        match self {
            Conditional::Insert { ccols, .. }
            | Conditional::Swap { ccols, .. }
            | Conditional::Delete { ccols, .. } => ccols,
        }
    }

    /// The value that the row must have for the write to happen, `None` if the row must not exist.
    #[must_use]
    pub fn expected(&self) -> Option<&Bytes> {
        match self {
            Conditional::Insert { .. } => None,
            Conditional::Swap { old, .. } | Conditional::Delete { old, .. } => Some(old),
        }
    }

    /// The value of the row after the write, `None` if the row is gone.
    #[must_use]
    pub fn written(&self) -> Option<&Bytes> {
        match self {
            Conditional::Insert { value, .. } => Some(value),
            Conditional::Swap { new, .. } => Some(new),
            Conditional::Delete { .. } => None,
        }
    }

    /// The TTL of the written row, `None` if the row will not expire or is removed.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        match self {
            Conditional::Insert { ttl, .. } | Conditional::Swap { ttl, .. } => *ttl,
            Conditional::Delete { .. } => None,
        }
    }
}

/// Writes in any partitions that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtomicBatch {
    /// Conditional writes, each with its partition key. If one condition fails, nothing is written.
    pub conditionals: Vec<(Bytes, Conditional)>,
    /// Ordered writes. A superseded write is skipped and does not fail the batch.
    pub ordered: Vec<OrderedPut>,
    /// Plain writes.
    pub puts: Vec<Put>,
}

/// The answer to a conditional or atomic write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a conditional write that was not applied wrote nothing"]
pub enum Outcome {
    /// All rows are written.
    Applied,
    /// Nothing is written, because at least one condition failed. The conflicts are in the order of
    /// the operations.
    NotApplied(Vec<Conflict>),
}

impl Outcome {
    /// Whether all rows are written.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(self, Outcome::Applied)
    }
}

/// A condition that failed, and the value of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The index of the operation among the conditional ones.
    pub op: usize,
    /// The value that the row has instead of the expected one, `None` if the row does not exist.
    pub actual: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_first_lies_below_last_and_counts_backwards() {
        let order = |number| Order::new(number).unwrap();
        let (one, two, most) = (order(1), order(2), order(Order::MAX));
        let ascending = [most.first_wins(), two.first_wins(), one.first_wins(), one, two, most];
        assert!(ascending.is_sorted_by(|lower, higher| lower < higher));
        assert!(ascending.is_sorted_by(|lower, higher| lower.rank() < higher.rank()));
        assert_eq!(one.first_wins().first_wins(), one.first_wins());
        assert!(one.first_wins().is_first_wins() && !one.is_first_wins());
        // Both bands fit below the times of clocks, which are not negative.
        let least = -(1 << 62) + most.first_wins().rank();
        assert!(least > i64::MIN && -(1 << 62) + most.rank() < 0);
    }

    #[test]
    fn orders_compare_by_the_high_part_and_then_by_the_low_part() {
        let order = |high, low| Order::from_parts(high, low).unwrap();
        let last = (1 << 40) - 1;
        assert!(order(0, 1) < order(0, 2) && order(0, last) < order(1, 0));
        assert!(order(1, last) < order(2, 0));
        assert_eq!(order((1 << 22) - 1, last).rank().unsigned_abs(), Order::MAX);
        for (high, low) in [(0, 0), (1 << 22, 0), (0, 1 << 40)] {
            assert_eq!(Order::from_parts(high, low).unwrap_err().kind(), crate::ErrorKind::Invalid);
        }
    }
}
