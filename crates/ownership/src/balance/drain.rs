//! The drain of a node: all its partitions go to other nodes.

use super::{Balancer, DRAINS, GiveUp, cluster::Cluster};

impl Balancer {
    /// Returns the partitions to begin to give away now. Those that no other node can run come
    /// last, because a node that stops keeps them to the end.
    pub(super) fn drain(&self, giving: &[GiveUp], cluster: &Cluster<'_>) -> Vec<GiveUp> {
        let me = self.me.incarnation;
        let mut candidates = cluster.candidates.clone();
        // Count a partition that is on its way as one of its successor.
        for to in giving.iter().filter_map(|step| step.to) {
            let mut candidates = candidates.iter_mut();
            if let Some(to) = candidates.find(|it| it.owner.incarnation == to.incarnation) {
                to.load += 1;
            }
        }
        let (mut give_up, mut without) = (Vec::new(), Vec::new());
        for (&partition, row) in cluster.rows {
            let is_mine = row.owner.is_some_and(|owner| owner.incarnation == me);
            // A partition whose row makes no sense cannot be given away.
            let can_leave = cluster.partitions.contains(&partition);
            if !is_mine || !can_leave || giving.iter().any(|begun| begun.partition == partition) {
                continue;
            }
            let epoch = row.epoch;
            let able = candidates.iter_mut().filter(|candidate| candidate.can_run(partition));
            let (silent, able): (Vec<_>, Vec<_>) =
                able.partition(|to| self.is_unanswered(to.owner.incarnation));
            match able.into_iter().min_by_key(|to| to.place(partition)) {
                Some(to) => {
                    to.load += 1;
                    give_up.push(GiveUp { partition, epoch, to: Some(to.owner) });
                }
                // A successor that did not answer may answer soon.
                None if !silent.is_empty() && !self.is_hurried => {}
                None => without.push(GiveUp { partition, epoch, to: None }),
            }
        }
        give_up.extend(without);
        if !self.is_hurried {
            give_up.truncate(DRAINS.saturating_sub(giving.len()));
        }
        give_up
    }
}
