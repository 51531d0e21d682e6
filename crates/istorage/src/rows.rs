//! Keys, ranges and rows.

use std::time::Duration;

use bytes::Bytes;

/// The key of a row: its partition, and its place in the partition.
///
/// Both parts may be any bytes. The partition key is never empty; the clustering columns may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The partition key.
    pub pkey: Bytes,
    /// The place in the partition. Rows are sorted by it as unsigned bytes.
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
    /// The value, which may be empty.
    pub value: Bytes,
}

/// A row as [`get_batch`](crate::AppStorage::get_batch) finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRow {
    /// The value, which may be empty.
    pub value: Bytes,
    /// Whether the row was last written plainly or conditionally. Such a row hides every ordered
    /// write, so no ordered write replaces it.
    pub hides_ordered: bool,
}

/// A row with its remaining TTL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringRow {
    /// The place in the partition.
    pub ccols: Bytes,
    /// The value, which may be empty.
    pub value: Bytes,
    /// The remaining TTL: the time until the row expires if it is not written again, as exact as
    /// the storage's resolution. `None` if the row does not expire.
    pub ttl: Option<Duration>,
}

/// A half-open range of rows in a partition: the start is included, the end is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first row. An empty start is the beginning of the partition, because no row sorts before
    /// the empty key.
    pub start: Bytes,
    /// The first row that is not in the range, `None` for the end of the partition.
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

    /// From `start` up to `end`, without `end`.
    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Range {
        Range { start: start.into(), end: Some(end.into()) }
    }

    /// The one row at `ccols`.
    #[must_use]
    pub fn only(ccols: &[u8]) -> Range {
        Range { start: Bytes::copy_from_slice(ccols), end: Some(after(ccols)) }
    }

    /// Whether no row can be in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// The rest of the range, after the row at `ccols`.
    #[must_use]
    pub fn behind(&self, ccols: &[u8]) -> Range {
        Range { start: after(ccols), end: self.end.clone() }
    }
}

impl Range {
    /// The same range for rows with clustering columns of at most `longest` bytes. The bounds of
    /// the result have at most `longest` bytes, too.
    pub(crate) fn clipped(self, longest: usize) -> Range {
        let clipped = |bound: Bytes| {
            if bound.len() > longest { above(&bound[..longest]) } else { Some(bound) }
        };
        match (clipped(self.start), self.end) {
            (Some(start), end) => Range { start, end: end.and_then(clipped) },
            // No row is as great as the start, so the range is empty.
            (None, _) => Range { start: Bytes::new(), end: Some(Bytes::new()) },
        }
    }
}

/// The smallest key that is greater than all keys that start with `prefix`, `None` if there is no
/// such key.
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

#[cfg(test)]
mod tests {
    use super::*;

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
