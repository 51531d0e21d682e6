//! What is stored and what is asked: keys, ranges, rows and writes.

use std::time::Duration;

use bytes::Bytes;

use crate::{Error, Result};

/// The place of a row: the partition it lives in and its place there.
///
/// Both parts are any bytes. The partition key is never empty; the clustering columns may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The partition.
    pub pkey: Bytes,
    /// The place in the partition; rows are sorted by it as unsigned bytes.
    pub ccols: Bytes,
}

impl Key {
    /// A key from its two parts.
    pub fn new(pkey: impl Into<Bytes>, ccols: impl Into<Bytes>) -> Key {
        Key { pkey: pkey.into(), ccols: ccols.into() }
    }
}

/// A row as read from a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The place in the partition.
    pub ccols: Bytes,
    /// The value; may be empty.
    pub value: Bytes,
}

/// A row with what is left of its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringRow {
    /// The place in the partition.
    pub ccols: Bytes,
    /// The value; may be empty.
    pub value: Bytes,
    /// How long the row will be there if nobody writes it, by the storage's resolution; `None` if it does not expire.
    pub ttl: Option<Duration>,
}

/// A half-open range of rows in a partition: the start is included, the end is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first row; empty for the beginning of the partition, as no row sorts before the empty key.
    pub start: Bytes,
    /// The first row that is not in the range; `None` for the end of the partition.
    pub end: Option<Bytes>,
}

impl Range {
    /// The whole partition.
    #[must_use]
    pub fn all() -> Range {
        Range { start: Bytes::new(), end: None }
    }

    /// From `start` to the end of the partition.
    pub fn from(start: impl Into<Bytes>) -> Range {
        Range { start: start.into(), end: None }
    }

    /// From `start` up to, but without, `end`.
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Range {
        Range { start: start.into(), end: Some(end.into()) }
    }

    /// The one row at `ccols`.
    #[must_use]
    pub fn only(ccols: &[u8]) -> Range {
        Range { start: Bytes::copy_from_slice(ccols), end: Some(after(ccols)) }
    }

    /// No row can be in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// What is left of the range behind the row at `ccols`.
    #[must_use]
    pub fn behind(&self, ccols: &[u8]) -> Range {
        Range { start: after(ccols), end: self.end.clone() }
    }
}

impl Range {
    /// The same range for rows whose clustering columns have at most `longest` bytes, with bounds that are no longer.
    pub(crate) fn clipped(self, longest: usize) -> Range {
        let clipped = |bound: Bytes| {
            if bound.len() > longest { above(&bound[..longest]) } else { Some(bound) }
        };
        match (clipped(self.start), self.end) {
            (Some(start), end) => Range { start, end: end.and_then(clipped) },
            // No row is that great.
            (None, _) => Range { start: Bytes::new(), end: Some(Bytes::new()) },
        }
    }
}

/// The smallest key that is greater than all keys that start with `prefix`; `None` if there is none.
fn above(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next.into())
}

/// The smallest key that is greater than `ccols`.
fn after(ccols: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(ccols.len() + 1);
    next.extend_from_slice(ccols);
    next.push(0);
    next.into()
}

/// A plain write: the row is this value afterwards, whatever it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Where.
    pub key: Key,
    /// What.
    pub value: Bytes,
}

/// Decides between two writes of one row: the higher one stays, in whatever order they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u64);

impl Order {
    /// The highest order: what a signed 64-bit number holds.
    pub const MAX: u64 = i64::MAX as u64;

    /// An order from 1 to [`Order::MAX`].
    ///
    /// # Errors
    /// `Invalid` outside of these bounds.
    pub fn new(order: u64) -> Result<Order> {
        if order == 0 || order > Order::MAX {
            return Err(Error::invalid(format!(
                "an order must be from 1 to {}, not {order}",
                Order::MAX
            )));
        }
        Ok(Order(order))
    }

    /// An order of two numbers: the higher `first` wins, and of two that are equal the higher `then`. That has 40 bits, and
    /// `first` 23.
    ///
    /// # Errors
    /// `Invalid` if one of them has more, or both are 0.
    pub fn of_two(first: u64, then: u64) -> Result<Order> {
        if first >= 1 << 23 || then >= 1 << 40 {
            return Err(Error::invalid(format!(
                "an order has 23 bits for its first number and 40 for its second, too few for {first} and {then}"
            )));
        }
        Order::new(first << 40 | then)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// An ordered write: it stays unless the row was, or will be, written with a higher order. A row that has expired may, for
/// a while, still keep writes with lower orders out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedPut {
    /// Where.
    pub key: Key,
    /// What.
    pub value: Bytes,
    /// With which order; equal orders of one row must come with equal bytes, and all with a TTL or all without.
    pub order: Order,
    /// For how long; `None` for ever, whatever the row had before.
    pub ttl: Option<Duration>,
}

/// A conditional write of one row of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conditional {
    /// The row must not exist.
    Insert {
        /// Where in the partition.
        ccols: Bytes,
        /// What to write.
        value: Bytes,
        /// For how long; `None` for ever.
        ttl: Option<Duration>,
    },
    /// The row must be equal to what was read.
    Swap {
        /// Where in the partition.
        ccols: Bytes,
        /// What was read.
        old: Bytes,
        /// What to write.
        new: Bytes,
        /// For how long from now on; `None` for ever, whatever the row had before.
        ttl: Option<Duration>,
    },
    /// The row must be equal to what was read, and is removed.
    Delete {
        /// Where in the partition.
        ccols: Bytes,
        /// What was read.
        old: Bytes,
    },
}

impl Conditional {
    /// Where in the partition.
    #[must_use]
    pub fn ccols(&self) -> &Bytes {
        match self {
            Conditional::Insert { ccols, .. }
            | Conditional::Swap { ccols, .. }
            | Conditional::Delete { ccols, .. } => ccols,
        }
    }

    /// What the row must be for the write to happen; `None` if it must not exist.
    #[must_use]
    pub fn expected(&self) -> Option<&Bytes> {
        match self {
            Conditional::Insert { .. } => None,
            Conditional::Swap { old, .. } | Conditional::Delete { old, .. } => Some(old),
        }
    }

    /// What the row is once the write has happened; `None` if it is gone.
    #[must_use]
    pub fn written(&self) -> Option<&Bytes> {
        match self {
            Conditional::Insert { value, .. } => Some(value),
            Conditional::Swap { new, .. } => Some(new),
            Conditional::Delete { .. } => None,
        }
    }

    /// For how long the row is written.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        match self {
            Conditional::Insert { ttl, .. } | Conditional::Swap { ttl, .. } => *ttl,
            Conditional::Delete { .. } => None,
        }
    }
}

/// Writes of any partitions that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtomicBatch {
    /// Conditional writes, each with its partition. If one fails, nothing is written.
    pub conditionals: Vec<(Bytes, Conditional)>,
    /// Ordered writes; one that is superseded is skipped and fails nothing.
    pub ordered: Vec<OrderedPut>,
    /// Plain writes.
    pub puts: Vec<Put>,
}

/// The answer to a conditional or atomic write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a conditional write that was not applied wrote nothing"]
pub enum Outcome {
    /// Everything is written.
    Applied,
    /// Nothing is written: these conditions failed, at least one, in the order of the operations.
    NotApplied(Vec<Conflict>),
}

impl Outcome {
    /// Everything is written.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(self, Outcome::Applied)
    }
}

/// A condition that failed, and what was there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The index of the operation among the conditional ones.
    pub op: usize,
    /// The row's value; `None` if it does not exist.
    pub there: Option<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_two_is_that_of_the_first_and_then_of_the_second() {
        let order = |first, then| Order::of_two(first, then).unwrap();
        let last = (1 << 40) - 1;
        assert!(order(0, 1) < order(0, 2) && order(0, last) < order(1, 0));
        assert!(order(1, last) < order(2, 0));
        assert_eq!(order((1 << 23) - 1, last).get(), Order::MAX);
        for (first, then) in [(0, 0), (1 << 23, 0), (0, 1 << 40)] {
            assert_eq!(Order::of_two(first, then).unwrap_err().kind(), crate::ErrorKind::Invalid);
        }
    }

    #[test]
    fn a_clipped_range_holds_the_same_rows() {
        const LONGEST: usize = 2;
        let alphabet = [0, 1, 0xfe, 0xff];
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for len in 0..LONGEST + 1 {
            let longer: Vec<_> = keys.iter().filter(|key| key.len() == len).cloned().collect();
            keys.extend(
                longer.iter().flat_map(|key| alphabet.map(|byte| [&key[..], &[byte]].concat())),
            );
        }
        let holds = |range: &Range, key: &[u8]| {
            *key >= range.start[..] && range.end.as_ref().is_none_or(|end| *key < end[..])
        };
        for start in &keys {
            for end in keys.iter().map(|end| Some(Bytes::from(end.clone()))).chain([None]) {
                let range = Range { start: start.clone().into(), end };
                let clipped = range.clone().clipped(LONGEST);
                assert!(
                    clipped.start.len() <= LONGEST
                        && clipped.end.as_ref().is_none_or(|end| end.len() <= LONGEST)
                );
                for key in keys.iter().filter(|key| key.len() <= LONGEST) {
                    assert_eq!(
                        holds(&range, key),
                        holds(&clipped, key),
                        "{range:?} {clipped:?} {key:?}"
                    );
                }
            }
        }
    }
}
