//! A store with slots of its own among the slots of other trials.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use ielections::{ConditionalOutcome, ElectionRow, ObservedLease, Slot, StoreError, TtlStore};

use crate::context::SLOTS_PER_TRIAL;

/// A view of a store with shifted slots. Slot 1 of the view is slot `first + 1` of the store.
#[derive(Clone, Debug)]
pub(crate) struct ShiftedStore {
    pub(crate) store: Arc<dyn TtlStore>,
    pub(crate) first: u32,
}

impl ShiftedStore {
    fn there(&self, row: ElectionRow) -> ElectionRow {
        let shift = |slot: Slot| Slot::new(slot.get() + self.first).unwrap_or(slot);
        match row {
            ElectionRow::Lease(slot) => ElectionRow::Lease(shift(slot)),
            ElectionRow::Epoch(slot) => ElectionRow::Epoch(shift(slot)),
        }
    }

    fn here(&self, seen: ObservedLease) -> Option<ObservedLease> {
        let number = seen.slot.get().checked_sub(self.first)?;
        let slot = Slot::new(number).filter(|slot| slot.get() <= SLOTS_PER_TRIAL)?;
        Some(ObservedLease { slot, ..seen })
    }
}

#[async_trait]
impl TtlStore for ShiftedStore {
    fn expiry_delay(&self) -> Duration {
        self.store.expiry_delay()
    }

    fn expiry_is_watched(&self) -> bool {
        self.store.expiry_is_watched()
    }

    async fn leases(&self, deadline: Instant) -> Result<Vec<ObservedLease>, StoreError> {
        let leases = self.store.leases(deadline).await?;
        Ok(leases.into_iter().filter_map(|seen| self.here(seen)).collect())
    }

    async fn get(&self, row: ElectionRow, deadline: Instant) -> Result<Option<Bytes>, StoreError> {
        self.store.get(self.there(row), deadline).await
    }

    async fn insert_if_not_exist(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.store.insert_if_not_exist(self.there(row), value, ttl, deadline).await
    }

    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.store.compare_and_swap(self.there(row), old, new, ttl, deadline).await
    }

    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        deadline: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.store.compare_and_delete(self.there(row), old, deadline).await
    }
}
