//! The store of the simulation: rows with conditions, leases, member rows, and reads that are late.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use ielections::Incarnation;
use ownership::{
    ClusterSight, GiveUp, Member, MemberId, MemberRow, MoveOrder, OwnerRow, OwnerRowsView,
    PartitionId,
};

/// How long after it was written a member row expires, in milliseconds.
const MEMBER_TTL: u64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) rows: OwnerRowsView,
    /// Former rows, and until when a plain read may still show them.
    former: Vec<(u64, PartitionId, OwnerRow)>,
    /// The lease of each seat, and the time of its end.
    leases: BTreeMap<usize, (Incarnation, u64)>,
    members: BTreeMap<MemberId, (MemberRow, u64)>,
    pub(crate) orders: Vec<MoveOrder>,
    pub(crate) is_paused: bool,
}

/// What a read shows.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) rows: OwnerRowsView,
    pub(crate) living: BTreeSet<Incarnation>,
    pub(crate) members: Vec<MemberRow>,
    orders: Vec<MoveOrder>,
    is_paused: bool,
}

impl View {
    pub(crate) fn sight<'a>(
        &'a self,
        read_at: Instant,
        partitions: &'a BTreeSet<PartitionId>,
        giving: &'a [GiveUp],
    ) -> ClusterSight<'a> {
        ClusterSight {
            partitions,
            rows: &self.rows,
            giving,
            living: &self.living,
            members: &self.members,
            orders: &self.orders,
            is_paused: self.is_paused,
            read_at,
        }
    }
}

impl Store {
    pub(crate) fn row(&self, partition: PartitionId) -> OwnerRow {
        self.rows.get(&partition).copied().unwrap_or_default()
    }

    /// Reads everything with plain reads: some rows may be outdated.
    pub(crate) fn view(&self, now: u64, random: &mut fastrand::Rng) -> View {
        let mut rows = self.rows.clone();
        for (until, partition, row) in self.former.iter().rev() {
            if now < *until && random.u8(..4) == 0 {
                rows.insert(*partition, *row);
            }
        }
        let members = self.members.values().filter(|(_, until)| now < *until);
        View {
            rows,
            living: self.living(now),
            members: members.map(|(row, _)| row.clone()).collect(),
            orders: self.orders.clone(),
            is_paused: self.is_paused,
        }
    }

    /// Changes a row if it is as expected; returns whether it was.
    pub(crate) fn change(
        &mut self,
        now: u64,
        partition: PartitionId,
        from: OwnerRow,
        to: OwnerRow,
    ) -> bool {
        let is_expected = self.row(partition) == from;
        if is_expected {
            self.former.retain(|(until, _, _)| now < *until);
            self.former.push((now + 500, partition, from));
            self.rows.insert(partition, to);
        }
        is_expected
    }

    pub(crate) fn living(&self, now: u64) -> BTreeSet<Incarnation> {
        let living = self.leases.values().filter(|(_, until)| now < *until);
        living.map(|(incarnation, _)| *incarnation).collect()
    }

    pub(crate) fn lease_end(&self, seat: usize) -> u64 {
        self.leases.get(&seat).map_or(0, |(_, until)| *until)
    }

    pub(crate) fn put_lease(&mut self, seat: usize, incarnation: Incarnation, until: u64) {
        self.leases.insert(seat, (incarnation, until));
    }

    pub(crate) fn release(&mut self, seat: usize) {
        self.leases.remove(&seat);
    }

    pub(crate) fn beat(&mut self, now: u64, heartbeat: u64, member: Member) {
        let id = member.id;
        self.members.insert(id, (MemberRow { heartbeat, member }, now + MEMBER_TTL));
    }
}
