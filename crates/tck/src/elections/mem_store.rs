//! A store of elections in memory.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use async_trait::async_trait;
use base::locks::lock;
use bytes::Bytes;
use clock::{Clock, Instant};
use ielections::{ConditionalOutcome, ElectionRow, ObservedLease, StoreError, TtlStore};

type Result<T> = std::result::Result<T, StoreError>;

/// A store of rows in memory. Rows expire by the given clock.
#[derive(Debug)]
pub struct MemStore {
    rows: Mutex<HashMap<ElectionRow, MemRow>>,
    clock: Clock,
}

#[derive(Debug)]
struct MemRow {
    value: Bytes,
    expires: Option<Instant>,
}

impl MemStore {
    /// Makes an empty store.
    pub fn new(clock: Clock) -> MemStore {
        MemStore { rows: Mutex::default(), clock }
    }

    /// Replaces a row if the row is as expected. Comparing and replacing are one atomic step.
    fn swap(
        &self,
        row: ElectionRow,
        expected: Option<&Bytes>,
        value: Option<Bytes>,
        ttl: Option<Duration>,
    ) -> ConditionalOutcome {
        let mut rows = lock(&self.rows);
        let now = self.clock.now();
        let there = rows.get(&row).filter(|stored| stored.is_live(now)).map(|stored| &stored.value);
        if there != expected {
            return ConditionalOutcome::Refused(there.cloned());
        }
        match value {
            Some(value) => rows.insert(row, MemRow { value, expires: ttl.map(|ttl| now + ttl) }),
            None => rows.remove(&row),
        };
        ConditionalOutcome::Done
    }
}

impl MemRow {
    fn is_live(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

#[async_trait]
impl TtlStore for MemStore {
    fn expiry_delay(&self) -> Duration {
        Duration::ZERO
    }

    async fn leases(&self, _: Instant) -> Result<Vec<ObservedLease>> {
        let rows = lock(&self.rows);
        let now = self.clock.now();
        let seen = |(row, stored): (&ElectionRow, &MemRow)| match (row, stored.expires) {
            (ElectionRow::Lease(seat), Some(expires)) if now < expires => Some(ObservedLease {
                seat: *seat,
                value: stored.value.clone(),
                left: expires - now,
            }),
            _ => None,
        };
        Ok(rows.iter().filter_map(seen).collect())
    }

    async fn get(&self, row: ElectionRow, _: Instant) -> Result<Option<Bytes>> {
        let rows = lock(&self.rows);
        let now = self.clock.now();
        let live = rows.get(&row).filter(|stored| stored.is_live(now));
        Ok(live.map(|stored| stored.value.clone()))
    }

    async fn insert_if_not_exists(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        _: Instant,
    ) -> Result<ConditionalOutcome> {
        Ok(self.swap(row, None, Some(value), ttl))
    }

    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        _: Instant,
    ) -> Result<ConditionalOutcome> {
        Ok(self.swap(row, Some(&old), Some(new), ttl))
    }

    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        _: Instant,
    ) -> Result<ConditionalOutcome> {
        Ok(self.swap(row, Some(&old), None, None))
    }
}
