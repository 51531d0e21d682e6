//! The free partitions, and when this node takes each of them.

use std::{collections::BTreeMap, time::Duration};

use clock::Instant;

use super::cluster::Cluster;
use crate::{OwnerRow, PartitionId};

/// The wait of each rank after the best candidate.
const RANK_WAIT: Duration = Duration::from_secs(1);

/// The wait does not grow after this rank.
const LAST_RANK: u32 = 3;

/// The longest random part of a wait, in milliseconds.
const JITTER_MS: u64 = 500;

/// A free partition is taken at most this time after the candidates have seen that it is free, as
/// long as one of the first four candidates takes it.
pub const LONGEST_TAKE_WAIT: Duration =
    Duration::from_millis(RANK_WAIT.as_millis() as u64 * LAST_RANK as u64 + JITTER_MS);

/// A partition that has been free for this long does not stop the moves of others.
const HOPELESS: Duration = Duration::from_secs(60);

/// The wait of a node that could not start the partition.
const REFUSED_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct FreePartitions {
    seed: u64,
    /// The rows of free partitions, and when they were seen first.
    since: BTreeMap<PartitionId, (OwnerRow, Instant)>,
}

/// What a deal gives to this node.
#[derive(Debug, Default)]
pub(super) struct Dealt {
    /// The partitions to take now.
    pub(super) take: Vec<PartitionId>,
    /// Whether there is a free partition that a node should take soon.
    pub(super) is_waiting: bool,
}

impl FreePartitions {
    pub(super) fn new(seed: u64) -> FreePartitions {
        FreePartitions { seed, since: BTreeMap::new() }
    }

    pub(super) fn deal(&mut self, now: Instant, cluster: &Cluster<'_>) -> Dealt {
        let mut candidates = cluster.candidates.clone();
        let mut dealt = Dealt::default();
        for &partition in cluster.partitions {
            let row = cluster.row(partition);
            if !cluster.is_free(row) || row.epoch.next().is_none() {
                self.since.remove(&partition);
                continue;
            }
            let since = self.since.entry(partition).or_insert((row, now));
            if since.0 != row {
                *since = (row, now);
            }
            let mut ranks: Vec<_> = (0..candidates.len())
                .filter(|&which| candidates[which].can_run(partition))
                .collect();
            ranks.sort_by_key(|&which| candidates[which].place(partition));
            let Some(&best) = ranks.first() else { continue };
            let free_for = now.saturating_since(since.1);
            dealt.is_waiting |= candidates[best].is_willing(partition) && free_for < HOPELESS;
            let is_me = |&&which: &&usize| candidates[which].owner == cluster.me;
            let rank = ranks.iter().zip(0..).find(|(which, _)| is_me(which));
            if let Some((&me, rank)) = rank {
                let has_refused = candidates[me].has_refused(partition);
                let wait = if has_refused { REFUSED_WAIT } else { self.wait(rank, partition, row) };
                if free_for >= wait {
                    dealt.take.push(partition);
                }
            }
            candidates[best].load += 1;
        }
        dealt
    }

    fn wait(&self, rank: u32, partition: PartitionId, row: OwnerRow) -> Duration {
        if rank == 0 {
            return Duration::ZERO;
        }
        let place = u64::from(partition.app) << 16 | u64::from(partition.partition);
        let random = mixed(self.seed ^ mixed(place ^ u64::from(row.epoch.0) << 42));
        RANK_WAIT * rank.min(LAST_RANK) + Duration::from_millis(random % JITTER_MS)
    }
}

/// Spreads the bits of a number, as SplitMix64 does.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
