//! A keyspace in memory, as the contract sees it.

use std::time::Duration;

use async_trait::async_trait;
use base::locks::lock;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{StreamExt, TryStreamExt, stream};

use super::rows::{SharedRows, StoredRow};
use crate::{
    AppStorage, AtomicBatch, BatchLimits, Capabilities, Conditional, Consistency, ExpiringRow,
    ExpiringRowStream, FoundRow, Key, OrderedPut, Outcome, PartitionStream, Put, Range, Result,
    Row, RowLimits, RowStream, ServerTime,
};

const PAGE: usize = 256;

const BATCH: BatchLimits = BatchLimits { rows: 100_000, bytes: 256 << 20 };

/// The abilities and limits of the storage in memory.
pub const CAPABILITIES: Capabilities = Capabilities {
    row: RowLimits { pkey: 65_535, ccols: 65_535, value: 16 << 20 },
    conditional: BATCH,
    atomic: Some(BATCH),
    ordered: Some(BATCH),
    expiry_resolution: Duration::from_nanos(1),
    expiry_is_watched: false,
    late_write: Duration::ZERO,
};

#[derive(Debug)]
pub(super) struct MemStorage {
    rows: SharedRows,
    clock: Clock,
}

impl MemStorage {
    pub(super) fn new(rows: SharedRows, clock: Clock) -> MemStorage {
        MemStorage { rows, clock }
    }

    /// Reads the rows of a range page by page. Each row comes with the moment when its page was
    /// read.
    fn pages(
        &self,
        pkey: Bytes,
        range: Range,
    ) -> impl futures::Stream<Item = Result<(Bytes, StoredRow, Instant)>> + Send + 'static {
        let (rows, clock) = (SharedRows::clone(&self.rows), self.clock.clone());
        stream::try_unfold(Some(range), move |range| {
            let page = range.map(|range| {
                let now = clock.now();
                let rows = lock(&rows);
                rows.check_open().map(|()| (rows.page(&pkey, &range, now, PAGE), range, now))
            });
            async move {
                let Some((page, range, now)) = page.transpose()? else {
                    return Ok(None);
                };
                let more = match page.last() {
                    Some((last, _)) if page.len() == PAGE => Some(range.behind(last)),
                    _ => None,
                };
                let rows = page.into_iter().map(move |(ccols, stored)| Ok((ccols, stored, now)));
                Ok(Some((stream::iter(rows), more)))
            }
        })
        .try_flatten()
    }
}

#[async_trait]
impl AppStorage for MemStorage {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn get(
        &self,
        key: &Key,
        _consistency: Consistency,
        _deadline: Instant,
    ) -> Result<Option<Bytes>> {
        let rows = lock(&self.rows);
        rows.check_open()?;
        Ok(rows.get(&key.pkey, &key.ccols, self.clock.now()).map(|stored| stored.value.clone()))
    }

    async fn get_batch(&self, keys: &[Key], _deadline: Instant) -> Result<Vec<Option<FoundRow>>> {
        let (rows, now) = (lock(&self.rows), self.clock.now());
        rows.check_open()?;
        let found = |key: &Key| {
            let stored = rows.get(&key.pkey, &key.ccols, now)?;
            let (value, hides_ordered) = (stored.value.clone(), stored.hides_ordered());
            Some(FoundRow { value, hides_ordered })
        };
        Ok(keys.iter().map(found).collect())
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        _consistency: Consistency,
        _page_timeout: Duration,
    ) -> RowStream {
        self.pages(pkey, range)
            .map_ok(|(ccols, stored, _)| Row { ccols, value: stored.value })
            .boxed()
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, _page_timeout: Duration) -> ExpiringRowStream {
        self.pages(pkey, range)
            .map_ok(|(ccols, stored, now)| {
                let ttl = stored.expires().map(|expires| expires - now);
                ExpiringRow { ccols, value: stored.value, ttl }
            })
            .boxed()
    }

    fn partitions(&self, prefix: Bytes, _page_timeout: Duration) -> PartitionStream {
        let rows = SharedRows::clone(&self.rows);
        stream::try_unfold(Some(None), move |behind: Option<Option<Bytes>>| {
            let page = behind.map(|behind| {
                let rows = lock(&rows);
                rows.check_open().map(|()| rows.partitions(&prefix, behind.as_ref(), PAGE))
            });
            async move {
                let Some(keys) = page.transpose()? else { return Ok(None) };
                let next = keys.last().filter(|_| keys.len() == PAGE).cloned().map(Some);
                Ok(Some((stream::iter(keys.into_iter().map(Ok)), next)))
            }
        })
        .try_flatten()
        .boxed()
    }

    async fn put_batch(&self, puts: Vec<Put>, deadline: Instant) -> Result<()> {
        let batch = AtomicBatch { puts, ..AtomicBatch::default() };
        self.write_atomic(batch, deadline).await.map(drop)
    }

    async fn put_ordered(&self, ordered: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        let batch = AtomicBatch { ordered, ..AtomicBatch::default() };
        self.write_atomic(batch, deadline).await.map(drop)
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let conditionals = ops.into_iter().map(|op| (pkey.clone(), op)).collect();
        self.write_atomic(AtomicBatch { conditionals, ..AtomicBatch::default() }, deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, _deadline: Instant) -> Result<Outcome> {
        let mut rows = lock(&self.rows);
        let now = self.clock.now();
        rows.write(batch, now)
    }

    async fn server_time(&self, _deadline: Instant) -> Result<Option<ServerTime>> {
        lock(&self.rows).check_open()?;
        Ok(None)
    }

    async fn close(&self) {}
}
