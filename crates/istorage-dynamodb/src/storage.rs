//! A keyspace on DynamoDB, as an implementation of the storage contract.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use futures::{StreamExt, TryStreamExt};
use istorage::{
    AppStorage, AtomicBatch, BatchLimits, Capabilities, Conditional, Consistency,
    ExpiringRowStream, FoundRow, Key, OrderedPut, Outcome, PartitionStream, Put, Range, Result,
    Row, RowLimits, RowStream, ServerTime,
};

use crate::{layout, table::KeyspaceTable, time::EXPIRY_RESOLUTION, transact::write_atomic};

/// The limits of a transaction. DynamoDB's own limit is 4 MB, and the rest is for names, expiries
/// and orders.
const TRANSACTION: BatchLimits = BatchLimits { rows: 100, bytes: 3_900_000 };

/// The capabilities of DynamoDB.
pub const CAPABILITIES: Capabilities = Capabilities {
    row: RowLimits { pkey: layout::PKEY_MAX, ccols: layout::CCOLS_MAX, value: layout::VALUE_MAX },
    conditional: TRANSACTION,
    atomic: Some(TRANSACTION),
    ordered: None,
    expiry_resolution: EXPIRY_RESOLUTION,
    expiry_is_watched: true,
    // After the client gives up a connection, the kernel still sends the remaining bytes. By
    // default it does so for less than two minutes.
    late_write: Duration::from_secs(120),
};

/// The storage of one keyspace, which is a table.
#[derive(Debug)]
pub(crate) struct DynamoDbStorage(pub(crate) KeyspaceTable);

#[async_trait]
impl AppStorage for DynamoDbStorage {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn get(&self, key: &Key, _: Consistency, deadline: Instant) -> Result<Option<Bytes>> {
        self.0.get(key, deadline).await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<FoundRow>>> {
        self.0.get_batch(keys, deadline).await
    }

    fn read(&self, pkey: Bytes, range: Range, _: Consistency, page_timeout: Duration) -> RowStream {
        let rows = self.0.rows(pkey, range, page_timeout);
        rows.map_ok(|row| Row { ccols: row.ccols, value: row.value }).boxed()
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        self.0.rows(pkey, range, page_timeout).boxed()
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        self.0.partitions(prefix, page_timeout).boxed()
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        self.0.put_batch(&rows, deadline).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.0.put_ordered(&rows, deadline).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        if let [op] = &ops[..] {
            return self.0.write_one_if(&pkey, op, deadline).await;
        }
        let conditionals = ops.into_iter().map(|op| (pkey.clone(), op)).collect();
        let batch = AtomicBatch { conditionals, ..AtomicBatch::default() };
        write_atomic(&self.0, batch, deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        write_atomic(&self.0, batch, deadline).await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.0.server_time(deadline).await.map(Some)
    }

    /// Does nothing: the connection belongs to the driver, and the guard around this storage
    /// refuses later calls.
    async fn close(&self) {}
}
