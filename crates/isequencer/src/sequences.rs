//! The declared sequences, and the number that follows a number.

use std::{iter, ops::Range};

use crate::{SeqId, WsKind};

/// The exclusive upper bound of all numbers. Storages order rows by numbers, and have 62 bits for
/// the order.
pub(crate) const END: u64 = 1 << 62;

/// A sequence: its id, and the ranges that it never leaves.
///
/// ```
/// use isequencer::{SeqId, Sequence};
///
/// let invoices = Sequence::new(SeqId(256), [100..102, 500..600])?;
/// assert_eq!(invoices.after(0), Some(100), "0 is what was given before the first number");
/// assert_eq!(invoices.after(101), Some(500));
/// assert_eq!(invoices.after(599), None);
/// # Ok::<(), isequencer::BadSequences>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    id: SeqId,
    /// At least one range. The ranges are not empty, ascend and are disjoint.
    ranges: Vec<Range<u64>>,
}

/// Why declared sequences are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSequences {
    /// The range is empty, begins at 0, or ends after 2^62. (0 means that no number was given yet.)
    #[error(
        "the range {1:?} of sequence {0} must begin at 1 or later, end after that, and at 2^62 at the latest"
    )]
    Range(SeqId, Range<u64>),
    /// The sequence has no range.
    #[error("sequence {0} has no range of numbers")]
    NoRange(SeqId),
    /// Two ranges share numbers, or do not ascend.
    #[error("the ranges of sequence {0} must ascend and share no number: {1:?} comes before {2:?}")]
    Order(SeqId, Range<u64>, Range<u64>),
    /// A sequence is declared twice for a kind of workspaces.
    #[error("sequence {1} is declared twice for workspaces of kind {0}")]
    Twice(WsKind, SeqId),
    /// A kind of workspaces is declared twice. One sequence id could then mean two sequences.
    #[error("workspaces of kind {0} are declared twice")]
    KindTwice(WsKind),
    /// A kind of workspaces lacks a standard sequence.
    /// [`EventSequencerFactory`](crate::EventSequencerFactory) needs all of them.
    #[error("workspaces of kind {0} lack the standard sequence {1}")]
    NotStandard(WsKind, SeqId),
    /// A kind of workspaces has no sequence, and so needs no sequencer.
    #[error("workspaces of kind {0} have no sequence")]
    Empty(WsKind),
}

impl Sequence {
    /// Makes a sequence that counts from `initial` to the highest possible number.
    ///
    /// # Errors
    /// Fails if `initial` is 0, or 2^62 or higher.
    pub fn counting_from(id: SeqId, initial: u64) -> Result<Sequence, BadSequences> {
        Sequence::within(id, initial..END)
    }

    /// Makes a sequence of one range.
    ///
    /// # Errors
    /// Fails if the range is empty, begins at 0, or ends after 2^62.
    pub fn within(id: SeqId, range: Range<u64>) -> Result<Sequence, BadSequences> {
        Sequence::new(id, iter::once(range))
    }

    /// Makes a sequence of several ranges. The sequence uses up each range before the next one
    /// begins.
    ///
    /// # Errors
    /// Fails if there is no range; if a range is empty, begins at 0 or ends after 2^62; or if the
    /// ranges do not ascend.
    pub fn new(
        id: SeqId,
        ranges: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<Sequence, BadSequences> {
        let ranges: Vec<Range<u64>> = ranges.into_iter().collect();
        if ranges.is_empty() {
            return Err(BadSequences::NoRange(id));
        }
        if let Some(bad) =
            ranges.iter().find(|range| range.start == 0 || range.is_empty() || range.end > END)
        {
            return Err(BadSequences::Range(id, bad.clone()));
        }
        match ranges.iter().zip(ranges.iter().skip(1)).find(|(one, next)| next.start < one.end) {
            Some((one, next)) => Err(BadSequences::Order(id, one.clone(), next.clone())),
            None => Ok(Sequence { id, ranges }),
        }
    }

    /// Makes a sequence of one range that is known to be valid.
    pub(crate) fn known(id: SeqId, range: Range<u64>) -> Sequence {
        Sequence { id, ranges: Vec::from_iter([range]) }
    }

    /// Returns the id of the sequence.
    pub fn id(&self) -> SeqId {
        self.id
    }

    /// Returns the ranges, ascending. A range excludes its end.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Returns the number after `last`; `None` at the end of all ranges. Before the first number,
    /// `last` is 0.
    pub fn after(&self, last: u64) -> Option<u64> {
        let next = last.checked_add(1)?;
        let range = self.ranges.iter().find(|range| next < range.end)?;
        Some(next.max(range.start))
    }
}

/// The sequences of an application, by kind of workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequences {
    kinds: Vec<KindSequences>,
}

/// The sequences of a kind of workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KindSequences {
    kind: WsKind,
    /// The ids of the sequences, in the order of `sequences`.
    pub(crate) ids: Vec<SeqId>,
    pub(crate) sequences: Vec<Sequence>,
}

impl KindSequences {
    /// Returns the index of a sequence among the sequences of the kind.
    pub(crate) fn seq_index(&self, seq: SeqId) -> Option<usize> {
        self.ids.iter().position(|id| *id == seq)
    }
}

impl Sequences {
    /// Makes an empty set.
    pub fn new() -> Sequences {
        Sequences::default()
    }

    /// Declares the sequences of a kind of workspace.
    ///
    /// # Errors
    /// Fails if there are no sequences, if a sequence occurs twice, or if the kind was declared
    /// before.
    pub fn with(
        mut self,
        kind: WsKind,
        sequences: impl IntoIterator<Item = Sequence>,
    ) -> Result<Sequences, BadSequences> {
        let sequences: Vec<Sequence> = sequences.into_iter().collect();
        let mut ids: Vec<SeqId> = Vec::with_capacity(sequences.len());
        for sequence in &sequences {
            if ids.contains(&sequence.id) {
                return Err(BadSequences::Twice(kind, sequence.id));
            }
            ids.push(sequence.id);
        }
        if ids.is_empty() {
            return Err(BadSequences::Empty(kind));
        }
        if self.kind_index(kind).is_some() {
            return Err(BadSequences::KindTwice(kind));
        }
        self.kinds.push(KindSequences { kind, ids, sequences });
        Ok(self)
    }

    /// Returns whether workspaces of a kind have a sequence.
    pub fn has(&self, kind: WsKind, seq: SeqId) -> bool {
        self.kind_index(kind).is_some_and(|index| self.kind(index).seq_index(seq).is_some())
    }

    /// Returns the declared kinds of workspaces.
    pub fn kinds(&self) -> impl Iterator<Item = WsKind> {
        self.kinds.iter().map(|declared| declared.kind)
    }

    pub(crate) fn kind_index(&self, kind: WsKind) -> Option<usize> {
        self.kinds.iter().position(|known| known.kind == kind)
    }

    pub(crate) fn kind(&self, index: usize) -> &KindSequences {
        &self.kinds[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQ: SeqId = SeqId(7);

    #[test]
    fn a_sequence_begins_at_its_first_number_and_ends_at_its_last() {
        let sequence = Sequence::within(SEQ, 5..7).unwrap();
        assert_eq!([0, 4, 5].map(|last| sequence.after(last)), [Some(5), Some(5), Some(6)]);
        assert_eq!([6, 7, END, u64::MAX].map(|last| sequence.after(last)), [None; 4]);
        let endless = Sequence::counting_from(SEQ, 1).unwrap();
        assert_eq!(endless.after(0), Some(1));
        assert_eq!(endless.after(END - 2), Some(END - 1));
        assert_eq!(endless.after(END - 1), None);
    }

    #[test]
    fn a_number_between_two_ranges_is_followed_by_the_next_range() {
        let sequence = Sequence::new(SEQ, [10..12, 20..21]).unwrap();
        let after = [9, 10, 11, 15, 19, 20].map(|last| sequence.after(last));
        assert_eq!(after, [Some(10), Some(11), Some(20), Some(20), Some(20), None]);
    }

    #[test]
    fn ranges_may_touch() {
        let sequence = Sequence::new(SEQ, [1..3, 3..5]).unwrap();
        assert_eq!([1, 2, 4].map(|last| sequence.after(last)), [Some(2), Some(3), None]);
    }

    #[test]
    fn invalid_sequences_are_refused() {
        use BadSequences::{Empty, KindTwice, NoRange, Order, Range, Twice};
        let refused = |ranges: &[std::ops::Range<u64>]| {
            Sequence::new(SEQ, ranges.iter().cloned()).unwrap_err()
        };
        assert_eq!(refused(&[]), NoRange(SEQ));
        assert_eq!(Sequence::counting_from(SEQ, 0).unwrap_err(), Range(SEQ, 0..END));
        assert_eq!(Sequence::counting_from(SEQ, END).unwrap_err(), Range(SEQ, END..END));
        assert_eq!(Sequence::within(SEQ, 1..END + 1).unwrap_err(), Range(SEQ, 1..END + 1));
        assert_eq!(Sequence::within(SEQ, 2..2).unwrap_err(), Range(SEQ, 2..2));
        assert_eq!(refused(&[1..2, 3..3]), Range(SEQ, 3..3));
        assert_eq!(refused(&[1..3, 2..4]), Order(SEQ, 1..3, 2..4));
        assert_eq!(refused(&[5..6, 1..2]), Order(SEQ, 5..6, 1..2));
        let (kind, sequence) = (WsKind(1), Sequence::counting_from(SEQ, 1).unwrap());
        let with = |sequences: Vec<Sequence>| Sequences::new().with(kind, sequences);
        assert_eq!(with(vec![]).unwrap_err(), Empty(kind));
        assert_eq!(with(vec![sequence.clone(), sequence.clone()]).unwrap_err(), Twice(kind, SEQ));
        let again = with(vec![sequence.clone()]).unwrap().with(kind, [sequence]);
        assert_eq!(again.unwrap_err(), KindTwice(kind));
    }
}
