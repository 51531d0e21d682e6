//! The storage contract for one keyspace of the file.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use istorage::{
    AppStorage, AtomicBatch, Capabilities, Conditional, Consistency, Error, ExpiringRowStream,
    FoundRow, Key, OrderedPut, Outcome, PartitionStream, Put, Range, Result, Row, RowLimits,
    RowStream, ServerTime,
};

use crate::{
    engine::RedbEngine,
    layout::{Keyspace, row_key},
    queue::BATCH,
    read::{self, page, partitions},
    time::Moment,
    view::RowView,
};

/// The abilities and limits of a redb storage, the same for every file.
pub const CAPABILITIES: Capabilities = Capabilities {
    row: RowLimits { pkey: 65_535, ccols: 65_535, value: 16 << 20 },
    conditional: BATCH,
    atomic: Some(BATCH),
    ordered: Some(BATCH),
    expiry_resolution: Duration::from_millis(1),
    expiry_is_watched: false,
    // Only one process at a time has the file open. When another process opens the file, the first
    // process has ended, and all its writes have ended too.
    late_write: Duration::ZERO,
};

/// The largest number of keys in one read job. Other jobs get their turn between the jobs of a
/// large call.
const LOOKUPS: usize = 1_000;

/// One keyspace of the file.
#[derive(Debug)]
pub(crate) struct RedbStorage {
    engine: Arc<RedbEngine>,
    keyspace: Arc<Keyspace>,
}

impl RedbStorage {
    pub(crate) fn new(engine: Arc<RedbEngine>, keyspace: Arc<Keyspace>) -> RedbStorage {
        RedbStorage { engine, keyspace }
    }

    async fn rows(&self, keys: &[Key]) -> Result<Vec<Option<FoundRow>>> {
        let now = self.engine.now();
        let mut rows = Vec::with_capacity(keys.len());
        for keys in keys.chunks(LOOKUPS) {
            let keys: Vec<_> = keys.iter().map(|key| row_key(&key.pkey, &key.ccols)).collect();
            let read = move |view: &mut RowView, keyspace: &Keyspace| {
                read::rows(view, keyspace, &keys, now)
            };
            rows.extend(self.engine.read(&self.keyspace, read).await?);
        }
        Ok(rows)
    }

    /// The items of all pages, from the page at `first` on: one page per read job. `read` returns
    /// the items of a page, and the place of the next one.
    fn pages<P: Send + 'static, T: Send + 'static>(
        &self,
        first: P,
        read: impl Fn(&mut RowView, &Keyspace, &P, Moment) -> Result<(Vec<T>, Option<P>)>
        + Clone
        + Send
        + 'static,
    ) -> impl Stream<Item = Result<T>> + Send + 'static {
        let (engine, keyspace) = (Arc::clone(&self.engine), Arc::clone(&self.keyspace));
        stream::try_unfold(Some(first), move |place| {
            let (engine, keyspace, read) =
                (Arc::clone(&engine), Arc::clone(&keyspace), read.clone());
            async move {
                let Some(place) = place else { return Ok(None) };
                let now = engine.now();
                let read = move |view: &mut RowView, keyspace: &Keyspace| {
                    read(view, keyspace, &place, now)
                };
                let (items, rest) = engine.read(&keyspace, read).await?;
                Ok::<_, Error>(Some((stream::iter(items.into_iter().map(Ok)), rest)))
            }
        })
        .try_flatten()
    }

    async fn write(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.engine.write(&self.keyspace, batch, deadline).await
    }
}

#[async_trait]
impl AppStorage for RedbStorage {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn get(&self, key: &Key, _: Consistency, _: Instant) -> Result<Option<Bytes>> {
        let mut rows = self.rows(std::slice::from_ref(key)).await?;
        Ok(rows.pop().flatten().map(|row| row.value))
    }

    async fn get_batch(&self, keys: &[Key], _: Instant) -> Result<Vec<Option<FoundRow>>> {
        self.rows(keys).await
    }

    fn read(&self, pkey: Bytes, range: Range, _: Consistency, _: Duration) -> RowStream {
        let rows = self.ttl_read(pkey, range, Duration::MAX);
        rows.map_ok(|row| Row { ccols: row.ccols, value: row.value }).boxed()
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, _: Duration) -> ExpiringRowStream {
        self.pages(range, move |view, keyspace, range, now| {
            page::read(view, keyspace, &pkey, range, now)
        })
        .boxed()
    }

    fn partitions(&self, prefix: Bytes, _: Duration) -> PartitionStream {
        self.pages(Vec::new(), move |view, keyspace, from, _| {
            partitions::read(view, keyspace, &prefix, from)
        })
        .boxed()
    }

    async fn put_batch(&self, puts: Vec<Put>, deadline: Instant) -> Result<()> {
        let batch = AtomicBatch { puts, ..AtomicBatch::default() };
        self.write(batch, deadline).await.map(drop)
    }

    async fn put_ordered(&self, ordered: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        let batch = AtomicBatch { ordered, ..AtomicBatch::default() };
        self.write(batch, deadline).await.map(drop)
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let conditionals = ops.into_iter().map(|op| (pkey.clone(), op)).collect();
        let batch = AtomicBatch { conditionals, ..AtomicBatch::default() };
        self.write(batch, deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.write(batch, deadline).await
    }

    async fn server_time(&self, _: Instant) -> Result<Option<ServerTime>> {
        self.engine.check_open().map(|()| None)
    }

    /// Does nothing: the driver owns the file, and the `Guarded` around this storage refuses later
    /// calls.
    async fn close(&self) {}
}
