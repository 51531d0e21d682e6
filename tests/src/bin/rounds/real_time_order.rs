//! Whether operations can be put into one order that real time and their results allow.
//!
//! Each operation has a rank, which is its place in the order by its result: the version that it
//! wrote or read, the offset, the epoch. The order of the results is possible if no operation that
//! ended before another one began has a higher rank. This is linearizability for a value whose
//! order of writes is known: the write of version `v` has the rank `2 * v`, a read of that version
//! has `2 * v + 1`.

use std::ops::RangeInclusive;

/// An operation between its begin and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) begin: u64,
    /// [`u64::MAX`] if the end is not known.
    pub(crate) end: u64,
    pub(crate) rank: u64,
    /// The number of the operation in the history.
    pub(crate) operation: u64,
}

/// The rank of the write of a version.
pub(crate) fn of_write(version: usize) -> u64 {
    2 * version as u64
}

/// The rank of a read of a version.
pub(crate) fn of_read(version: usize) -> u64 {
    2 * version as u64 + 1
}

/// Returns two operations that contradict each other: the first one ended before the second one
/// began, and has a higher rank.
pub(crate) fn contradiction(operations: &[Ranked]) -> Option<(Ranked, Ranked)> {
    let floors = RankFloors::of(operations);
    operations.iter().find_map(|later| {
        let earlier = floors.before(later.begin)?;
        (earlier.rank > later.rank).then_some((earlier, *later))
    })
}

/// The highest rank of the operations that had ended before a moment.
#[derive(Debug)]
pub(crate) struct RankFloors {
    /// The ends in their order, each with the operation of the highest rank up to there.
    highest: Vec<(u64, Ranked)>,
}

impl RankFloors {
    pub(crate) fn of(operations: &[Ranked]) -> RankFloors {
        let mut by_end = operations.to_vec();
        by_end.sort_by_key(|operation| operation.end);
        let mut highest: Vec<(u64, Ranked)> = Vec::with_capacity(by_end.len());
        for operation in by_end {
            let top = highest.last().map(|(_, top)| *top).filter(|top| top.rank >= operation.rank);
            highest.push((operation.end, top.unwrap_or(operation)));
        }
        RankFloors { highest }
    }

    pub(crate) fn before(&self, moment: u64) -> Option<Ranked> {
        let count = self.highest.partition_point(|(end, _)| *end < moment);
        self.highest[..count].last().map(|(_, top)| *top)
    }
}

/// The lowest rank of the operations that began after a moment.
#[derive(Debug)]
struct RankCeilings {
    /// The begins from the last to the first, each with the operation of the lowest rank from
    /// there.
    lowest: Vec<(u64, Ranked)>,
}

impl RankCeilings {
    fn of(operations: &[Ranked]) -> RankCeilings {
        let mut by_begin = operations.to_vec();
        by_begin.sort_by_key(|operation| std::cmp::Reverse(operation.begin));
        let mut lowest: Vec<(u64, Ranked)> = Vec::with_capacity(by_begin.len());
        for operation in by_begin {
            let low = lowest.last().map(|(_, low)| *low).filter(|low| low.rank <= operation.rank);
            lowest.push((operation.begin, low.unwrap_or(operation)));
        }
        RankCeilings { lowest }
    }

    fn after(&self, moment: u64) -> Option<Ranked> {
        let count = self.lowest.partition_point(|(begin, _)| *begin > moment);
        self.lowest[..count].last().map(|(_, low)| *low)
    }
}

/// What the operations of a value say of each moment.
#[derive(Debug)]
pub(crate) struct Limits {
    floors: RankFloors,
    ceilings: RankCeilings,
}

impl Limits {
    pub(crate) fn of(operations: &[Ranked]) -> Limits {
        Limits { floors: RankFloors::of(operations), ceilings: RankCeilings::of(operations) }
    }

    /// The operation of the highest rank before a time, and that of the lowest rank after it.
    pub(crate) fn around(&self, begin: u64, end: u64) -> (Option<Ranked>, Option<Ranked>) {
        (self.floors.before(begin), self.ceilings.after(end))
    }
}

/// The versions that a read can have returned. `floor` is the operation of the highest rank that
/// ended before the read, and `ceiling` that of the lowest rank that began after the read.
pub(crate) fn possible(
    floor: Option<Ranked>,
    ceiling: Option<Ranked>,
    last: usize,
) -> RangeInclusive<usize> {
    let version = |rank: u64| usize::try_from(rank / 2).unwrap_or(usize::MAX);
    let first = floor.map_or(0, |floor| version(floor.rank));
    // No read returns a version whose write began after the read.
    let below = ceiling.map_or(last, |ceiling| version(ceiling.rank.saturating_sub(1)));
    first..=below.min(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(begin: u64, end: u64, rank: u64) -> Ranked {
        Ranked { begin, end, rank, operation: begin }
    }

    #[test]
    fn operations_at_the_same_time_can_have_any_order() {
        let (write, read) = (ranked(0, 10, of_write(1)), ranked(5, 6, of_read(0)));
        assert_eq!(contradiction(&[write, read]), None);
        assert_eq!(contradiction(&[write, ranked(5, 6, of_read(1))]), None);
        assert_eq!(contradiction(&[write, ranked(10, 11, of_read(0))]), None, "they touch");
    }

    #[test]
    fn a_read_after_a_write_returns_its_version_or_a_later_one() {
        let (write, stale) = (ranked(0, 10, of_write(1)), ranked(11, 12, of_read(0)));
        assert_eq!(contradiction(&[stale, write]).map(|pair| pair.1), Some(stale));
        assert_eq!(contradiction(&[write, ranked(11, 12, of_read(1))]), None);
    }

    #[test]
    fn a_read_returns_no_version_that_is_written_later() {
        let (read, write) = (ranked(0, 1, of_read(1)), ranked(2, 3, of_write(1)));
        assert_eq!(contradiction(&[read, write]), Some((read, write)));
    }

    #[test]
    fn the_possible_versions_of_a_read_are_those_without_a_contradiction() {
        let ranks = || (of_read(0)..of_write(4)).map(Some).chain([None]);
        for (floor, ceiling) in ranks().flat_map(|floor| ranks().map(move |of| (floor, of))) {
            let floor = floor.map(|rank| ranked(0, 1, rank));
            let ceiling = ceiling.map(|rank| ranked(5, 6, rank));
            let others: Vec<Ranked> = floor.into_iter().chain(ceiling).collect();
            let is_possible = |version: &usize| {
                let read = ranked(2, 4, of_read(*version));
                let pairs = others.iter().map(|other| [*other, read]);
                pairs.into_iter().all(|pair| contradiction(&pair).is_none())
            };
            let expected: Vec<usize> = (0..=3).filter(is_possible).collect();
            let versions: Vec<usize> = possible(floor, ceiling, 3).collect();
            assert_eq!(versions, expected, "{floor:?} {ceiling:?}");
        }
    }

    #[test]
    fn the_highest_rank_of_all_earlier_operations_counts() {
        let (high, low) = (ranked(0, 1, of_read(5)), ranked(2, 3, of_read(6)));
        let middle = ranked(4, 5, of_read(4));
        assert!(contradiction(&[high, low, middle]).is_some());
        let open = ranked(0, u64::MAX, of_write(9));
        assert_eq!(contradiction(&[open, ranked(7, 8, of_read(0))]), None);
    }
}
