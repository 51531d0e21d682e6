//! Which sequences there are, and what follows a number.

use std::{iter, ops::Range};

use crate::{SeqId, WsKind};

/// All numbers are below: storages order rows by them, and have 63 bits for that.
pub(crate) const END: u64 = 1 << 63;

/// A sequence: its number, and the ranges that it never leaves.
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
    /// Not empty, each not empty, ascending and disjoint.
    ranges: Vec<Range<u64>>,
}

/// Sequences that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSequences {
    /// There is no number in it, or 0 is, which means that no number was given, or one that is too high.
    #[error(
        "the range {1:?} of sequence {0} must begin at 1 or later, end after that, and at 2^63 at the latest"
    )]
    Range(SeqId, Range<u64>),
    /// There is no range.
    #[error("sequence {0} has no range of numbers")]
    NoRange(SeqId),
    /// Two ranges share numbers, or the later comes first.
    #[error("the ranges of sequence {0} must ascend and share no number: {1:?} comes before {2:?}")]
    Order(SeqId, Range<u64>, Range<u64>),
    /// A sequence is declared twice for one kind of workspaces.
    #[error("sequence {1} is declared twice for workspaces of kind {0}")]
    Twice(WsKind, SeqId),
    /// The same workspaces would have two different sequences of one number.
    #[error("workspaces of kind {0} are declared twice")]
    KindTwice(WsKind),
    /// Who draws for events needs it.
    #[error("workspaces of kind {0} lack the standard sequence {1}")]
    NotStandard(WsKind, SeqId),
    /// Workspaces without a sequence need no sequencer.
    #[error("workspaces of kind {0} have no sequence")]
    Empty(WsKind),
}

impl Sequence {
    /// One that counts from `initial` for as long as there are numbers.
    ///
    /// # Errors
    /// If it begins at 0, or at 2^63 or later.
    pub fn counting_from(id: SeqId, initial: u64) -> Result<Sequence, BadSequences> {
        Sequence::within(id, initial..END)
    }

    /// One that draws from a range to its end.
    ///
    /// # Errors
    /// If the range is empty, begins at 0, or ends after 2^63.
    pub fn within(id: SeqId, range: Range<u64>) -> Result<Sequence, BadSequences> {
        Sequence::new(id, iter::once(range))
    }

    /// One that draws from each range to its end, one after another.
    ///
    /// # Errors
    /// If there is no range, one is empty, begins at 0 or ends after 2^63, or they do not ascend.
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

    /// One whose range is known to be right.
    pub(crate) fn known(id: SeqId, range: Range<u64>) -> Sequence {
        Sequence { id, ranges: Vec::from_iter([range]) }
    }

    /// Its number.
    pub fn id(&self) -> SeqId {
        self.id
    }

    /// The number after the last one that was given, which is 0 before the first; `None` at the end of all ranges.
    pub fn after(&self, last: u64) -> Option<u64> {
        let next = last.checked_add(1)?;
        let range = self.ranges.iter().find(|range| next < range.end)?;
        Some(next.max(range.start))
    }
}

/// All sequences of an application, by kind of workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequences {
    kinds: Vec<Kind>,
}

/// The sequences of a kind of workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    kind: WsKind,
    /// In the order of `sequences`.
    pub(crate) ids: Vec<SeqId>,
    pub(crate) sequences: Vec<Sequence>,
}

impl Kind {
    /// Where a sequence is among those of the kind.
    pub(crate) fn place(&self, seq: SeqId) -> Option<usize> {
        self.ids.iter().position(|id| *id == seq)
    }
}

impl Sequences {
    /// None yet.
    pub fn new() -> Sequences {
        Sequences::default()
    }

    /// Declares the sequences of a kind of workspaces.
    ///
    /// # Errors
    /// If there are none, one is there twice, or the kind was declared before.
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
        if self.place(kind).is_some() {
            return Err(BadSequences::KindTwice(kind));
        }
        self.kinds.push(Kind { kind, ids, sequences });
        Ok(self)
    }

    /// Whether workspaces of a kind have a sequence.
    pub fn has(&self, kind: WsKind, seq: SeqId) -> bool {
        self.place(kind).is_some_and(|place| self.at(place).place(seq).is_some())
    }

    pub(crate) fn place(&self, kind: WsKind) -> Option<usize> {
        self.kinds.iter().position(|known| known.kind == kind)
    }

    pub(crate) fn at(&self, place: usize) -> &Kind {
        &self.kinds[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQ: SeqId = SeqId(7);

    #[test]
    fn a_sequence_begins_where_it_is_told_to_and_ends_with_its_last_number() {
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
    fn sequences_that_cannot_be_are_refused() {
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
