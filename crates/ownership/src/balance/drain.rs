//! The drain of a node: all its partitions go to other nodes.

use clock::Instant;

use super::{Balancer, DRAINS, GiveUp, cluster::Cluster};

impl Balancer {
    /// Returns the partitions to give away now, and those that are on their way.
    pub(super) fn drain(&mut self, now: Instant, cluster: &Cluster<'_>) -> Vec<GiveUp> {
        let me = self.me.incarnation;
        let mut candidates = cluster.candidates.clone();
        let mut give_up = Vec::new();
        let mut rest = Vec::new();
        for (&partition, row) in cluster.rows {
            if row.owner.is_none_or(|owner| owner.incarnation != me) {
                continue;
            }
            // A partition that is on its way keeps its successor, which counts as an owner.
            let given = self.given.get(&partition).filter(|given| given.epoch == row.epoch);
            let to = given.and_then(|given| {
                candidates.iter_mut().find(|to| Some(to.owner.incarnation) == given.to)
            });
            match to {
                Some(to) => {
                    to.load += 1;
                    let to = Some(to.owner);
                    give_up.push(GiveUp { partition, epoch: row.epoch, to });
                }
                None => rest.push((partition, row.epoch)),
            }
        }
        for (partition, epoch) in rest {
            if give_up.len() >= DRAINS && !self.is_hurried {
                break;
            }
            let able = candidates.iter_mut().filter(|candidate| candidate.can_run(partition));
            let (silent, able): (Vec<_>, Vec<_>) =
                able.partition(|to| self.is_unanswered(to.owner.incarnation));
            let to = able.into_iter().min_by_key(|to| to.place(partition));
            // A successor that did not answer may answer soon.
            if to.is_none() && !silent.is_empty() && !self.is_hurried {
                continue;
            }
            let to = to.map(|to| {
                to.load += 1;
                to.owner
            });
            give_up.push(GiveUp { partition, epoch, to });
        }
        self.give(now, give_up)
    }
}
