//! The partitions that other nodes may give to this one soon.

use std::{collections::BTreeSet, time::Duration};

use clock::Instant;
use sysvvm::ownership::{OwnerEpoch, PartitionId};

/// A node that waits for partitions and gets none for this time no longer looks often.
const PATIENCE: Duration = Duration::from_secs(5);

/// The partitions that other nodes may give to this one soon, by rows that this node has read.
///
/// A node that expects a partition reads the rows every 50 ms, so that it starts the partition soon
/// after the other node has stopped it. The other node may never stop it: its repair may not end,
/// or its storage may not answer. So the node looks often only for as long as something happens.
#[derive(Debug)]
pub(super) struct ExpectedPartitions {
    all: BTreeSet<(PartitionId, OwnerEpoch)>,
    changed: Instant,
}

impl ExpectedPartitions {
    pub(super) fn new(now: Instant) -> ExpectedPartitions {
        ExpectedPartitions { all: BTreeSet::new(), changed: now }
    }

    /// Notes what is expected now.
    pub(super) fn note(
        &mut self,
        now: Instant,
        all: impl Iterator<Item = (PartitionId, OwnerEpoch)>,
    ) {
        let all = all.collect();
        if self.all != all {
            (self.all, self.changed) = (all, now);
        }
    }

    /// Whether a partition may come soon.
    pub(super) fn may_come(&self, now: Instant) -> bool {
        !self.all.is_empty() && now < self.changed + PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;

    /// A drain that could not end made all nodes of the cluster read the rows 20 times a second.
    #[test]
    fn a_partition_that_does_not_come_is_not_looked_for_without_end() {
        let start = ManualClock::new(1).clock().now();
        let mut expected = ExpectedPartitions::new(start);
        assert!(!expected.may_come(start));
        let both = [0, 1].map(|partition| (PartitionId { app: 1, partition }, OwnerEpoch(1)));
        expected.note(start, both.into_iter());
        assert!(expected.may_come(start));
        let mut now = start + PATIENCE;
        expected.note(now, both.into_iter());
        assert!(!expected.may_come(now));
        // One of them has come.
        expected.note(now, both.into_iter().take(1));
        assert!(expected.may_come(now));
        now = now + PATIENCE / 2;
        expected.note(now, [].into_iter());
        assert!(!expected.may_come(now));
    }
}
