//! The calls that callers get on top of the contract.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use futures::TryStreamExt;

use crate::{
    AppStorage, Conditional, Consistency, ExpiringRow, Key, Outcome, Put, Range, Result, RowStream,
};

/// Convenient calls on top of [`AppStorage`]. Each makes one call of the contract.
#[async_trait]
pub trait AppStorageExt: AppStorage {
    /// Reads the value of a row with [`Consistency::Linearizable`].
    async fn get_linearizable(&self, key: &Key, deadline: Instant) -> Result<Option<Bytes>> {
        self.get(key, Consistency::Linearizable, deadline).await
    }

    /// Reads the rows of a range. Each page takes part in the order of conditional writes.
    fn read_linearizable(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> RowStream {
        self.read(pkey, range, Consistency::Linearizable, page_timeout)
    }

    /// Writes one row.
    async fn put(&self, key: Key, value: Bytes, deadline: Instant) -> Result<()> {
        self.put_batch(vec![Put { key, value }], deadline).await
    }

    /// Writes a row if it does not exist.
    async fn insert_if_not_exists(
        &self,
        key: Key,
        value: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.write_if(
            key.pkey,
            vec![Conditional::Insert { ccols: key.ccols, value, ttl }],
            deadline,
        )
        .await
    }

    /// Writes a row if its value is equal to `old`.
    async fn compare_and_swap(
        &self,
        key: Key,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.write_if(
            key.pkey,
            vec![Conditional::Swap { ccols: key.ccols, old, new, ttl }],
            deadline,
        )
        .await
    }

    /// Removes a row if its value is equal to `old`.
    async fn compare_and_delete(&self, key: Key, old: Bytes, deadline: Instant) -> Result<Outcome> {
        self.write_if(key.pkey, vec![Conditional::Delete { ccols: key.ccols, old }], deadline).await
    }

    /// Reads a row with its remaining TTL, `None` if the row does not exist.
    async fn ttl_get(&self, key: &Key, timeout: Duration) -> Result<Option<ExpiringRow>> {
        self.ttl_read(key.pkey.clone(), Range::only(&key.ccols), timeout).try_next().await
    }

    /// Reads the remaining TTL of a row: `None` if the row does not exist, `Some(None)` if it does
    /// not expire.
    async fn query_ttl(&self, key: &Key, timeout: Duration) -> Result<Option<Option<Duration>>> {
        Ok(self.ttl_get(key, timeout).await?.map(|row| row.ttl))
    }
}

impl<S: AppStorage + ?Sized> AppStorageExt for S {}
