//! The store of the simulation: rows with conditions, leases that expire, and reads that are late.

use std::collections::{BTreeMap, BTreeSet};

use ielections::Incarnation;
use ownership::{OwnerChange, OwnerRow, OwnerRowsView, PartitionId};

#[derive(Debug, Default)]
pub(crate) struct Store {
    rows: OwnerRowsView,
    /// Former rows, and until when a plain read may still show them.
    former: Vec<(u64, PartitionId, OwnerRow)>,
    /// The lease of each seat, and the time of its end in milliseconds.
    leases: BTreeMap<usize, (Incarnation, u64)>,
    /// All rows that any partition ever had.
    history: BTreeSet<(PartitionId, Vec<u8>)>,
}

impl Store {
    pub(crate) fn rows(&self) -> OwnerRowsView {
        self.rows.clone()
    }

    pub(crate) fn row(&self, partition: PartitionId) -> OwnerRow {
        self.rows.get(&partition).copied().unwrap_or_default()
    }

    /// Returns the rows as a plain read shows them: some may be outdated.
    pub(crate) fn outdated_rows(&self, now: u64, random: &mut fastrand::Rng) -> OwnerRowsView {
        let mut rows = self.rows();
        for (until, partition, row) in self.former.iter().rev() {
            if now < *until && random.u8(..4) == 0 {
                rows.insert(*partition, *row);
            }
        }
        rows
    }

    /// Makes all changes or none; returns the rows that were not as expected.
    pub(crate) fn change(
        &mut self,
        now: u64,
        changes: &[OwnerChange],
    ) -> Result<(), OwnerRowsView> {
        let wrong: OwnerRowsView = changes
            .iter()
            .map(|change| (change.partition, self.row(change.partition), change.from))
            .filter(|(_, there, from)| there != from)
            .map(|(partition, there, _)| (partition, there))
            .collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        for OwnerChange { partition, from, to } in changes {
            assert!(from.epoch <= to.epoch && from != to, "{from:?} -> {to:?}");
            let is_new = self.history.insert((*partition, to.to_bytes().to_vec()));
            assert!(is_new, "a value came back: {to:?}");
            self.former.push((now + 1_000, *partition, *from));
            self.rows.insert(*partition, *to);
        }
        self.former.retain(|(until, _, _)| now < *until);
        Ok(())
    }

    pub(crate) fn living(&self, now: u64) -> BTreeSet<Incarnation> {
        let living = self.leases.values().filter(|(_, until)| now < *until);
        living.map(|(incarnation, _)| *incarnation).collect()
    }

    /// Takes the lease of a seat whose former process is gone.
    pub(crate) fn take_lease(&mut self, seat: usize, incarnation: Incarnation, until: u64) {
        self.leases.insert(seat, (incarnation, until));
    }

    /// Renews a lease that still exists; returns whether it does.
    pub(crate) fn renew(
        &mut self,
        seat: usize,
        incarnation: Incarnation,
        now: u64,
        until: u64,
    ) -> bool {
        match self.leases.get_mut(&seat) {
            Some((there, end)) if *there == incarnation && now < *end => {
                *end = until;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn release(&mut self, seat: usize) {
        self.leases.remove(&seat);
    }
}
