//! The partitions that fail soon after their starts.

use std::{collections::BTreeMap, time::Duration};

use sysvvm::ownership::PartitionId;

/// A partition that fails this often, each time soon after its start, is refused.
const MOST: u32 = 3;

/// A partition that has worked for this long did not fail soon.
const LASTING: Duration = Duration::from_secs(60);

/// How often partitions have failed soon after their starts.
#[derive(Debug, Default)]
pub(super) struct EarlyFailures(BTreeMap<PartitionId, u32>);

impl EarlyFailures {
    /// Notes that a partition has failed after it had worked for this time. Returns whether the
    /// node cannot run the partition: another node should try it.
    pub(super) fn note(&mut self, partition: PartitionId, worked: Duration) -> bool {
        let failures = self.0.entry(partition).or_insert(0);
        *failures = if worked >= LASTING { 1 } else { *failures + 1 };
        *failures >= MOST
    }

    /// Forgets a partition that has left this node.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.0.remove(&partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A partition that failed on one node, for example on a full disk of that machine, started
    /// there again and again, although another node could run it.
    #[test]
    fn a_partition_that_fails_three_times_soon_after_its_start_is_refused() {
        let mut failures = EarlyFailures::default();
        let [one, other] = [1, 2].map(|partition| PartitionId { app: 1, partition });
        let soon = LASTING - Duration::from_nanos(1);
        assert_eq!([0, 1, 2, 3].map(|_| failures.note(one, soon)), [false, false, true, true]);
        assert!(!failures.note(other, soon));
        assert!(!failures.note(one, LASTING), "it has worked for long");
        assert_eq!([0, 1].map(|_| failures.note(one, soon)), [false, true]);
        failures.forget(one);
        assert!(!failures.note(one, soon));
    }
}
