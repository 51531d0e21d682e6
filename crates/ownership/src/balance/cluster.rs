//! The candidates of a plan, with their loads.

use std::collections::{BTreeMap, BTreeSet};

use ielections::Incarnation;

use super::{ClusterSight, GiveUp, moves::Move, watch::Watch};
use crate::{
    Member, MemberId, MemberState, Owner, OwnerRow, OwnerRowsView, PartitionId, PartitionLoad,
};

#[derive(Debug)]
pub(super) struct Cluster<'a> {
    pub(super) me: Owner,
    pub(super) partitions: &'a BTreeSet<PartitionId>,
    pub(super) rows: &'a OwnerRowsView,
    living: &'a BTreeSet<Incarnation>,
    /// The candidates, in the order of their ids.
    pub(super) candidates: Vec<Candidate<'a>>,
    /// Whether a partition of a fresh member recovers.
    pub(super) is_recovering: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) owner: Owner,
    pub(super) member: &'a Member,
    pub(super) is_steady: bool,
    /// How many partitions the candidate owns.
    pub(super) load: usize,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(
        me: Owner,
        own: &'a Member,
        sight: &ClusterSight<'a>,
        watch: &Watch,
    ) -> Cluster<'a> {
        let others = sight.members.iter().map(|row| &row.member);
        let others = others.filter(|member| member.id != own.id && watch.is_fresh(member.id));
        let fresh: BTreeMap<_, _> = others.chain([own]).map(|member| (member.id, member)).collect();
        let mut loads = BTreeMap::new();
        for owner in sight.rows.values().filter_map(|row| row.owner) {
            *loads.entry(owner.incarnation).or_insert(0) += 1;
        }
        let candidate = |member: &'a Member| {
            let is_me = member.id == own.id;
            let incarnation = if is_me { me.incarnation } else { member.incarnation? };
            let Member { advertised, cluster, .. } = *member;
            let owner = if is_me { me } else { Owner { incarnation, advertised, cluster } };
            let is_living = sight.living.contains(&incarnation);
            let is_steady = !watch.is_flapping(member);
            let load = loads.get(&incarnation).copied().unwrap_or(0);
            (is_living && member.state == MemberState::Ready).then_some(Candidate {
                owner,
                member,
                is_steady,
                load,
            })
        };
        Cluster {
            me,
            partitions: sight.partitions,
            rows: sight.rows,
            living: sight.living,
            candidates: fresh.values().copied().filter_map(candidate).collect(),
            is_recovering: fresh.values().any(|member| member.is_recovering),
        }
    }

    pub(super) fn row(&self, partition: PartitionId) -> OwnerRow {
        self.rows.get(&partition).copied().unwrap_or_default()
    }

    /// Whether a partition has no owner, or an owner without a lease.
    pub(super) fn is_free(&self, row: OwnerRow) -> bool {
        row.owner.is_none_or(|owner| !self.living.contains(&owner.incarnation))
    }

    /// The steady candidates, in the order of their ids.
    pub(super) fn steady(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.candidates.iter().filter(|candidate| candidate.is_steady)
    }

    pub(super) fn candidate(&self, incarnation: Incarnation) -> Option<&Candidate<'a>> {
        self.candidates.iter().find(|candidate| candidate.owner.incarnation == incarnation)
    }

    /// The partitions that this node owns and has refused, with the candidates that get them.
    pub(super) fn refused(&self, own: &Member) -> Vec<GiveUp> {
        let mut candidates = self.candidates.clone();
        let mut give_up = Vec::new();
        for &partition in &own.refused {
            let OwnerRow { epoch, owner } = self.row(partition);
            if owner.is_none_or(|owner| owner.incarnation != self.me.incarnation) {
                continue;
            }
            let willing = candidates.iter_mut().filter(|to| to.is_willing(partition));
            if let Some(to) = willing.min_by_key(|to| to.place(partition)) {
                to.load += 1;
                give_up.push(GiveUp { partition, epoch, to: Some(to.owner) });
            }
        }
        give_up
    }

    /// Whether the successor asks for this move.
    pub(super) fn wants(&self, step: &Move) -> bool {
        let to = self.candidate(step.to.incarnation);
        to.is_some_and(|to| to.member.wants.get(&step.partition) == Some(&step.epoch))
    }
}

impl Candidate<'_> {
    pub(super) fn can_run(&self, partition: PartitionId) -> bool {
        self.member.apps.contains(&partition.app)
    }

    pub(super) fn has_refused(&self, partition: PartitionId) -> bool {
        self.member.refused.contains(&partition)
    }

    /// Whether the candidate is a good choice for a partition.
    pub(super) fn is_willing(&self, partition: PartitionId) -> bool {
        self.is_steady && self.can_run(partition) && !self.has_refused(partition)
    }

    /// Whether a partition of this node can move: it is ready.
    pub(super) fn can_give(&self, partition: PartitionId) -> bool {
        self.member.loads.get(&partition).is_none_or(PartitionLoad::is_ready)
    }

    /// The place of the candidate among all candidates for a partition: the lowest is the best.
    pub(super) fn place(&self, partition: PartitionId) -> (bool, usize, MemberId) {
        (!self.is_willing(partition), self.load, self.member.id)
    }
}
