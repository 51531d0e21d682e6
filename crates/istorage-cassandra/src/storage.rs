//! A keyspace on Cassandra, as an implementation of the storage contract.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Instant, WallTime};
use futures::StreamExt;
use istorage::{
    AppStorage, AtomicBatch, Capabilities, Conditional, Consistency, Error, ExpiringRowStream,
    FoundRow, Key, OrderedPut, Outcome, PartitionStream, Put, Range, Result, RowStream, ServerTime,
};
use scylla::value::CqlTimestamp;

use crate::{
    conditional, errors::RequestKind, layout::Statements, limits::CAPABILITIES, read,
    session::SharedClient, write,
};

/// The storage of one keyspace. The [`Guarded`](istorage::Guarded) around this storage checks
/// deadlines, arguments and use after close, and drops a call that is late. The client then forgets
/// the request, but the server may still do it.
#[derive(Debug)]
pub(crate) struct CassandraStorage {
    shared: SharedClient,
    statements: Statements,
}

impl CassandraStorage {
    pub(crate) fn new(shared: SharedClient, statements: Statements) -> CassandraStorage {
        CassandraStorage { shared, statements }
    }
}

#[async_trait]
impl AppStorage for CassandraStorage {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        let statement = match consistency {
            Consistency::Plain => &self.statements.get,
            Consistency::Linearizable => &self.statements.get_linearizable,
        };
        read::get(&*self.shared.client().await?, statement, key, deadline).await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<FoundRow>>> {
        let client = self.shared.client().await?;
        let rows = read::get_batch(&client, &self.statements.rows, keys, deadline).await?;
        Ok(rows.into_iter().map(|row| row.map(read::ReadRow::found)).collect())
    }

    /// The write time of a row costs the servers much, so it is not read here.
    async fn get_values(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        let client = self.shared.client().await?;
        let rows = read::get_batch(&client, &self.statements.values, keys, deadline).await?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.value)).collect())
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        let statement = match consistency {
            Consistency::Plain => &self.statements.read,
            Consistency::Linearizable => &self.statements.read_linearizable,
        };
        read::rows(self.shared.clone(), statement, pkey, range, page_timeout).boxed()
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        read::expiring_rows(
            self.shared.clone(),
            &self.statements.ttl_read,
            pkey,
            range,
            page_timeout,
        )
        .boxed()
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        let statement = self.statements.partitions.clone();
        read::partitions(self.shared.clone(), statement, prefix, page_timeout).boxed()
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        write::put_batch(&*self.shared.client().await?, &self.statements, &rows, deadline).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        write::put_ordered(&*self.shared.client().await?, &self.statements, &rows, deadline).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        conditional::write_if(
            &*self.shared.client().await?,
            &self.statements,
            &pkey,
            &ops,
            deadline,
        )
        .await
    }

    async fn write_atomic(&self, _batch: AtomicBatch, _deadline: Instant) -> Result<Outcome> {
        Err(Error::invalid("Cassandra cannot write atomically across storage partitions"))
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        let client = self.shared.client().await?;
        let result = client.execute(&self.statements.server_time, (), deadline).await;
        let result = result.map_err(|error| RequestKind::Read.failed(error))?;
        let rows = result
            .into_rows_result()
            .map_err(|error| RequestKind::Read.unexpected_answer(error))?;
        let row = rows.single_row::<(CqlTimestamp,)>();
        let (CqlTimestamp(millis),) =
            row.map_err(|error| RequestKind::Read.unexpected_answer(error))?;
        let at = WallTime::from_millis(u64::try_from(millis).unwrap_or(0));
        Ok(Some(ServerTime { at, uncertainty: Duration::from_millis(1) }))
    }

    /// Does nothing: the session belongs to the driver, and the storage holds nothing else to give
    /// back.
    async fn close(&self) {}
}
