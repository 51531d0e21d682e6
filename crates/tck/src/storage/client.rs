//! A storage as the trials call it. Every call has a deadline that a working storage keeps with
//! ease.

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Consistency, Error, ErrorKind, ExpiringRow, FoundRow,
    Key, OrderedPut, Outcome, Put, Range, Result, Row, SharedStorage,
    settle::{SettleLimits, write_if_settled},
};

/// The longest time of a call, or of a page. A call that takes longer fails its trial. On a busy
/// machine a batch of thousands of rows, beside the reads of other trials, took more than a minute.
pub(crate) const CALL: Duration = Duration::from_secs(180);

/// The longest time for settling a write.
const SETTLING: Duration = Duration::from_secs(120);

/// The pause between a refused call and the next one.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
pub(crate) struct TrialClient {
    pub(crate) storage: SharedStorage,
    pub(crate) clock: Clock,
}

impl TrialClient {
    pub(crate) fn soon(&self) -> Instant {
        self.clock.now() + CALL
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Bytes>> {
        self.storage.get(key, Consistency::Plain, self.soon()).await
    }

    pub(crate) async fn get_linearizable(&self, key: &Key) -> Result<Option<Bytes>> {
        self.storage.get_linearizable(key, self.soon()).await
    }

    pub(crate) async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>> {
        let rows = self.storage.get_batch(keys, self.soon()).await?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.value)).collect())
    }

    pub(crate) async fn get_values(&self, keys: &[Key]) -> Result<Vec<Option<Bytes>>> {
        self.storage.get_values(keys, self.soon()).await
    }

    /// Reads rows together, and says of each whether it hides ordered writes.
    pub(crate) async fn found(&self, keys: &[Key]) -> Result<Vec<Option<FoundRow>>> {
        self.storage.get_batch(keys, self.soon()).await
    }

    pub(crate) async fn read(&self, pkey: &Bytes, range: Range) -> Result<Vec<Row>> {
        self.storage.read(pkey.clone(), range, Consistency::Plain, CALL).try_collect().await
    }

    pub(crate) async fn read_linearizable(&self, pkey: &Bytes, range: Range) -> Result<Vec<Row>> {
        self.storage.read_linearizable(pkey.clone(), range, CALL).try_collect().await
    }

    pub(crate) async fn ttl_read(&self, pkey: &Bytes, range: Range) -> Result<Vec<ExpiringRow>> {
        self.storage.ttl_read(pkey.clone(), range, CALL).try_collect().await
    }

    /// The keys of the partitions that begin with `prefix`, sorted.
    pub(crate) async fn partitions(&self, prefix: &[u8]) -> Result<Vec<Bytes>> {
        let prefix = Bytes::copy_from_slice(prefix);
        let mut pkeys: Vec<Bytes> = self.storage.partitions(prefix, CALL).try_collect().await?;
        pkeys.sort_unstable();
        Ok(pkeys)
    }

    pub(crate) async fn query_ttl(&self, key: &Key) -> Result<Option<Option<Duration>>> {
        self.storage.query_ttl(key, CALL).await
    }

    pub(crate) async fn put(&self, key: &Key, value: impl Into<Bytes>) -> Result<()> {
        self.storage.put(key.clone(), value.into(), self.soon()).await
    }

    pub(crate) async fn put_batch(&self, rows: Vec<Put>) -> Result<()> {
        self.storage.put_batch(rows, self.soon()).await
    }

    pub(crate) async fn put_ordered(&self, rows: Vec<OrderedPut>) -> Result<()> {
        self.storage.put_ordered(rows, self.soon()).await
    }

    pub(crate) async fn insert(&self, key: &Key, value: impl Into<Bytes>) -> Result<Outcome> {
        self.insert_for(key, value, None).await
    }

    pub(crate) async fn insert_for(
        &self,
        key: &Key,
        value: impl Into<Bytes>,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<Outcome> {
        let (value, ttl) = (value.into(), ttl.into());
        self.storage.insert_if_not_exists(key.clone(), value, ttl, self.soon()).await
    }

    pub(crate) async fn swap(
        &self,
        key: &Key,
        old: impl Into<Bytes>,
        new: impl Into<Bytes>,
    ) -> Result<Outcome> {
        self.swap_for(key, old, new, None).await
    }

    pub(crate) async fn swap_for(
        &self,
        key: &Key,
        old: impl Into<Bytes>,
        new: impl Into<Bytes>,
        ttl: impl Into<Option<Duration>>,
    ) -> Result<Outcome> {
        let (old, new, ttl) = (old.into(), new.into(), ttl.into());
        self.storage.compare_and_swap(key.clone(), old, new, ttl, self.soon()).await
    }

    pub(crate) async fn delete(&self, key: &Key, old: impl Into<Bytes>) -> Result<Outcome> {
        self.storage.compare_and_delete(key.clone(), old.into(), self.soon()).await
    }

    pub(crate) async fn write_if(&self, pkey: &Bytes, ops: Vec<Conditional>) -> Result<Outcome> {
        self.storage.write_if(pkey.clone(), ops, self.soon()).await
    }

    pub(crate) async fn write_atomic(&self, batch: AtomicBatch) -> Result<Outcome> {
        self.storage.write_atomic(batch, self.soon()).await
    }

    /// Sends a conditional write again while it is unknown or refused. Under contention a storage
    /// may refuse writes.
    pub(crate) async fn settled(&self, pkey: &Bytes, ops: Vec<Conditional>) -> Result<Outcome> {
        let until = self.clock.now() + SETTLING;
        let limits = SettleLimits { call_timeout: SETTLING / 12, until };
        let (storage, clock) = (&*self.storage, &self.clock);
        loop {
            let answer = write_if_settled(storage, clock, pkey.clone(), ops.clone(), limits).await;
            if !self.is_refused_for_now(&answer, until) {
                return answer;
            }
            clock.sleep(PAUSE).await;
        }
    }

    /// Sends an atomic write again while it is refused.
    pub(crate) async fn settled_atomic(&self, batch: AtomicBatch) -> Result<Outcome> {
        let until = self.clock.now() + SETTLING;
        loop {
            let answer = self.write_atomic(batch.clone()).await;
            if !self.is_refused_for_now(&answer, until) {
                return answer;
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    /// Whether nothing was written, and the write may be tried again.
    fn is_refused_for_now(&self, answer: &Result<Outcome>, until: Instant) -> bool {
        let unavailable = |error: &Error| error.kind() == ErrorKind::Unavailable;
        answer.as_ref().err().is_some_and(unavailable) && self.clock.now() < until
    }
}
