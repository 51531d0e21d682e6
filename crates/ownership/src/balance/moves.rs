//! The moves between candidates: those that operators order, and those that even out the loads.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use ielections::Incarnation;

use super::{
    GiveUp, MoveOrder,
    cluster::{Candidate, Cluster},
};
use crate::{Owner, OwnerEpoch, PartitionId};

/// A move of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) partition: PartitionId,
    pub(super) epoch: OwnerEpoch,
    pub(super) from: Incarnation,
    pub(super) to: Owner,
}

impl Move {
    pub(super) fn give_up(&self) -> GiveUp {
        GiveUp { partition: self.partition, epoch: self.epoch, to: Some(self.to) }
    }
}

/// Returns the moves that operators ordered and that are possible now.
pub(super) fn ordered(cluster: &Cluster<'_>, orders: &[MoveOrder]) -> Vec<Move> {
    let step = |order: &MoveOrder| {
        let MoveOrder { partition, epoch, to } = *order;
        let row = cluster.row(partition);
        let from = row.owner.filter(|_| row.epoch == epoch && !cluster.is_free(row))?.incarnation;
        let to = cluster.candidates.iter().find(|candidate| candidate.member.id == to)?;
        let to = (to.can_run(partition) && to.owner.incarnation != from).then_some(to.owner)?;
        Some(Move { partition, epoch, from, to })
    };
    orders.iter().filter_map(step).collect()
}

/// Returns the moves that even out the loads after the moves that are `under_way`.
///
/// The greatest difference of loads comes first, then the lowest ids of owner and successor. Of the
/// partitions of an owner, those that the fewest candidates can run come first: the others are left
/// for candidates that can run only those.
///
/// Moves that successors ask for already come before all others, as long as they do not make the
/// plan longer. So a plan stays the same while its moves are done in any order. A simpler version
/// plans anew from the rows alone. The plan is "0 and 3 to A, 1 to B", and the move of 3 is done
/// first. Now the plan is "0 to B, 1 to A", while the owner already gives 0 to A. So A gets one
/// partition too many.
pub(super) fn even_out(cluster: &Cluster<'_>, under_way: &[Move]) -> Vec<Move> {
    let mut sketch = Sketch::new(cluster);
    under_way.iter().for_each(|step| sketch.make(*step));
    sketch.moves.clear();
    let mut shares = sketch.clone();
    shares.even_out();
    let count = |of: fn(&Move) -> Incarnation| {
        let mut counts = BTreeMap::new();
        shares.moves.iter().for_each(|step| *counts.entry(of(step)).or_insert(0_usize) += 1);
        counts
    };
    let (mut give, mut get) = (count(|step| step.from), count(|step| step.to.incarnation));
    for to in cluster.steady() {
        for (&partition, &epoch) in &to.member.wants {
            let row = cluster.row(partition);
            let Some(from) = row.owner.filter(|_| row.epoch == epoch) else { continue };
            let gives = give.get_mut(&from.incarnation).filter(|count| **count > 0);
            let gets = get.get_mut(&to.owner.incarnation).filter(|count| **count > 0);
            let (Some(gives), Some(gets)) = (gives, gets) else { continue };
            let from = from.incarnation;
            if to.is_willing(partition)
                && sketch.has(from, partition)
                && sketch.gap(from, to.owner.incarnation) > 1
            {
                sketch.make(Move { partition, epoch, from, to: to.owner });
                *gives -= 1;
                *gets -= 1;
            }
        }
    }
    sketch.even_out();
    sketch.moves
}

/// Returns the number of candidates that can run a partition.
fn choices(cluster: &Cluster<'_>, partition: PartitionId) -> usize {
    cluster.steady().filter(|to| to.is_willing(partition)).count()
}

/// The loads and the partitions of the steady candidates after some moves.
#[derive(Clone, Debug)]
struct Sketch<'a> {
    cluster: &'a Cluster<'a>,
    loads: BTreeMap<Incarnation, usize>,
    /// The partitions of each candidate that can move, each with the number of candidates for it.
    movable: BTreeMap<Incarnation, BTreeSet<(usize, PartitionId)>>,
    moves: Vec<Move>,
}

impl<'a> Sketch<'a> {
    fn new(cluster: &'a Cluster<'a>) -> Sketch<'a> {
        let loads = cluster.candidates.iter();
        let loads = loads.map(|candidate| (candidate.owner.incarnation, candidate.load)).collect();
        let mut movable: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        // Include the partitions that this node cannot run: all nodes must make the same plan.
        for &partition in cluster.rows.keys() {
            let from =
                cluster.row(partition).owner.and_then(|it| cluster.candidate(it.incarnation));
            if let Some(from) = from.filter(|from| from.can_give(partition)) {
                let there = movable.entry(from.owner.incarnation).or_default();
                there.insert((choices(cluster, partition), partition));
            }
        }
        Sketch { cluster, loads, movable, moves: Vec::new() }
    }

    fn has(&self, from: Incarnation, partition: PartitionId) -> bool {
        let key = (choices(self.cluster, partition), partition);
        self.movable.get(&from).is_some_and(|movable| movable.contains(&key))
    }

    fn gap(&self, from: Incarnation, to: Incarnation) -> usize {
        let load = |incarnation| self.loads.get(&incarnation).copied().unwrap_or(0);
        load(from).saturating_sub(load(to))
    }

    fn make(&mut self, step: Move) {
        self.loads.entry(step.from).and_modify(|load| *load = load.saturating_sub(1));
        self.loads.entry(step.to.incarnation).and_modify(|load| *load += 1);
        if let Some(movable) = self.movable.get_mut(&step.from) {
            movable.remove(&(choices(self.cluster, step.partition), step.partition));
        }
        self.moves.push(step);
    }

    /// Moves partitions until the loads differ by at most 1, or no move helps.
    fn even_out(&mut self) {
        while let Some(step) = self.best_move() {
            self.make(step);
        }
    }

    fn best_move(&self) -> Option<Move> {
        let steady = || self.cluster.steady();
        let pairs = steady().flat_map(|from| steady().map(move |to| (from, to)));
        let gap = |from: &Candidate<'_>, to: &Candidate<'_>| {
            self.gap(from.owner.incarnation, to.owner.incarnation)
        };
        let mut pairs: Vec<_> = pairs.filter(|(from, to)| gap(from, to) > 1).collect();
        // The sort is stable, and the candidates are in the order of their ids.
        pairs.sort_by_key(|(from, to)| Reverse(gap(from, to)));
        pairs.into_iter().find_map(|(from, to)| {
            let from = from.owner.incarnation;
            let mut movable = self.movable.get(&from)?.iter();
            let (_, partition) = *movable.find(|(_, partition)| to.is_willing(*partition))?;
            let epoch = self.cluster.row(partition).epoch;
            Some(Move { partition, epoch, from, to: to.owner })
        })
    }
}
