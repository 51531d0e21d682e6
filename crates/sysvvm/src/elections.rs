//! The rows of elections in the system keyspace.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use ielections::{ConditionalOutcome, ElectionRow, ObservedLease, Seat, StoreError, TtlStore};
use istorage::{AppStorageExt, Error, ErrorKind, ExpiringRow, Outcome, Range, SharedStorage};

use crate::layout;

type Result<T> = std::result::Result<T, StoreError>;

/// The store of elections over the system keyspace of any driver, made by
/// [`System::elections`](crate::System::elections).
///
/// All leases share one storage partition, so one read returns all seats. Each epoch has a storage
/// partition of its own.
#[derive(Debug)]
pub struct ElectionRows {
    storage: SharedStorage,
    clock: Clock,
}

impl ElectionRows {
    pub(crate) fn new(storage: SharedStorage, clock: Clock) -> ElectionRows {
        ElectionRows { storage, clock }
    }
}

#[async_trait]
impl TtlStore for ElectionRows {
    fn expiry_delay(&self) -> Duration {
        self.storage.capabilities().expiry_delay()
    }

    fn expiry_is_watched(&self) -> bool {
        self.storage.capabilities().expiry_is_watched
    }

    async fn leases(&self, deadline: Instant) -> Result<Vec<ObservedLease>> {
        let timeout = deadline.saturating_since(self.clock.now());
        let rows = self.storage.ttl_read(layout::leases(), Range::all(), timeout);
        let rows: Vec<ExpiringRow> = rows.try_collect().await.map_err(failed)?;
        let seen = |row: ExpiringRow| {
            let seat = Seat::new(u32::from_be_bytes(row.ccols[..].try_into().ok()?))?;
            // A row that does not expire is not the lease of any node. Such a row keeps its seat
            // forever.
            Some(ObservedLease { seat, value: row.value, left: row.ttl.unwrap_or(Duration::MAX) })
        };
        Ok(rows.into_iter().filter_map(seen).collect())
    }

    async fn get(&self, row: ElectionRow, deadline: Instant) -> Result<Option<Bytes>> {
        self.storage.get_linearizable(&layout::election(row), deadline).await.map_err(failed)
    }

    async fn insert_if_not_exists(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome> {
        let key = layout::election(row);
        written(self.storage.insert_if_not_exists(key, value, ttl, deadline).await)
    }

    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<ConditionalOutcome> {
        let key = layout::election(row);
        written(self.storage.compare_and_swap(key, old, new, ttl, deadline).await)
    }

    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        deadline: Instant,
    ) -> Result<ConditionalOutcome> {
        written(self.storage.compare_and_delete(layout::election(row), old, deadline).await)
    }
}

fn written(outcome: istorage::Result<Outcome>) -> Result<ConditionalOutcome> {
    match outcome.map_err(failed)? {
        Outcome::Applied => Ok(ConditionalOutcome::Done),
        Outcome::NotApplied(conflicts) => {
            let there = conflicts.into_iter().next().and_then(|conflict| conflict.actual);
            Ok(ConditionalOutcome::Refused(there))
        }
    }
}

fn failed(error: Error) -> StoreError {
    match error.kind() {
        ErrorKind::Unavailable => StoreError::Unavailable(error.into()),
        ErrorKind::OutcomeUnknown => StoreError::Unknown(error.into()),
        ErrorKind::Invalid | ErrorKind::Corrupt | ErrorKind::Closed => {
            StoreError::Broken(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use istorage::{KeyspaceName, StorageDriver, mem::MemDriver};

    use super::*;

    async fn rows() -> (ElectionRows, SharedStorage) {
        let driver: Arc<dyn StorageDriver> = Arc::new(MemDriver::new(Clock::system()));
        let name = KeyspaceName::new("sys_test").unwrap();
        driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
        let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
        (ElectionRows::new(Arc::clone(&storage), Clock::system()), storage)
    }

    fn seat(number: u32) -> Seat {
        Seat::new(number).unwrap()
    }

    #[tokio::test]
    async fn every_call_keeps_the_contract_of_the_port() {
        let (rows, _) = rows().await;
        let (row, soon) = (ElectionRow::Lease(seat(2)), Instant::FAR_FUTURE);
        let (a, b) = (Bytes::from("a"), Bytes::from("b"));
        let ttl = Some(Duration::from_secs(1_000));
        let refused = |there: &Bytes| ConditionalOutcome::Refused(Some(there.clone()));

        let insert = async |value: &Bytes| {
            rows.insert_if_not_exists(row, value.clone(), ttl, soon).await.unwrap()
        };
        assert_eq!(insert(&a).await, ConditionalOutcome::Done);
        assert_eq!(insert(&b).await, refused(&a));
        assert_eq!(rows.get(row, soon).await.unwrap(), Some(a.clone()));
        assert_eq!(rows.get(ElectionRow::Epoch(seat(2)), soon).await.unwrap(), None);
        let seen = rows.leases(soon).await.unwrap();
        assert!(seen.len() == 1 && seen[0].seat == seat(2) && seen[0].value == a, "{seen:?}");
        assert!(seen[0].left > Duration::from_secs(900), "{seen:?}");

        let swap = async |old: &Bytes, new: &Bytes| {
            rows.compare_and_swap(row, old.clone(), new.clone(), ttl, soon).await.unwrap()
        };
        assert_eq!(swap(&b, &b).await, refused(&a));
        assert_eq!(swap(&a, &b).await, ConditionalOutcome::Done);
        let delete =
            async |old: &Bytes| rows.compare_and_delete(row, old.clone(), soon).await.unwrap();
        assert_eq!(delete(&a).await, refused(&b));
        assert_eq!(delete(&b).await, ConditionalOutcome::Done);
        assert_eq!(delete(&b).await, ConditionalOutcome::Refused(None));
        assert_eq!(rows.leases(soon).await.unwrap(), []);
    }

    #[tokio::test]
    async fn errors_keep_apart_a_failed_and_an_unknown_outcome() {
        let (rows, storage) = rows().await;
        storage.close().await;
        let closed = rows.get(ElectionRow::Epoch(seat(1)), Instant::FAR_FUTURE).await.unwrap_err();
        assert!(matches!(closed, StoreError::Broken(_)), "{closed:?}");
        let of = |kind| failed(Error::new(kind, "test"));
        assert!(matches!(of(ErrorKind::Unavailable), StoreError::Unavailable(_)));
        assert!(matches!(of(ErrorKind::OutcomeUnknown), StoreError::Unknown(_)));
        assert!(matches!(of(ErrorKind::Corrupt), StoreError::Broken(_)));
    }
}
