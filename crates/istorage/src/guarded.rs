//! The rules of every driver: arguments, deadlines, and use after close.

mod page_timeout;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, stream, stream::BoxStream};

use crate::{
    Call, CallAnswer, Error, ExpiringRowStream, Key, Outcome, PartitionStream, RangeRead, Result,
    RowStream, SharedStorage, StorageWrapper, check,
};

/// A storage that keeps the common rules of [`AppStorage`](crate::AppStorage) for the storage of a
/// driver.
///
/// - Arguments are checked against the [`Capabilities`](crate::Capabilities).
/// - If a batch names a row several times, the row is passed on once.
/// - A call without rows is answered here.
/// - No call outlives its deadline.
/// - A closed storage answers `Closed`.
#[derive(Debug)]
pub struct Guarded {
    inner: SharedStorage,
    clock: Clock,
    closed: Arc<AtomicBool>,
}

impl Guarded {
    /// Guards `inner`, with deadlines judged by `clock`.
    pub fn new(inner: SharedStorage, clock: Clock) -> Guarded {
        Guarded { inner, clock, closed: Arc::new(AtomicBool::new(false)) }
    }

    /// Sends a call, without repeated keys. A call without rows is answered here.
    async fn send(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::GetBatch([]) => Ok(CallAnswer::Rows(Vec::new())),
            Call::GetValues([]) => Ok(CallAnswer::Values(Vec::new())),
            Call::GetBatch(keys) if let Some(distinct) = DistinctKeys::if_repeated(keys) => {
                let rows = self.inner.get_batch(&distinct.keys, deadline).await?;
                Ok(CallAnswer::Rows(distinct.spread(&rows)))
            }
            Call::GetValues(keys) if let Some(distinct) = DistinctKeys::if_repeated(keys) => {
                let values = self.inner.get_values(&distinct.keys, deadline).await?;
                Ok(CallAnswer::Values(distinct.spread(&values)))
            }
            Call::Write(write) if write.rows() == 0 => Ok(Outcome::Applied.into()),
            call => call.send(&self.inner, deadline).await,
        }
    }

    /// The check that comes before all others in every call.
    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }

    fn check_range(&self, read: RangeRead) -> Result<RangeRead> {
        self.check_open()?;
        let capabilities = self.inner.capabilities();
        check::pkey(&capabilities, &read.pkey)?;
        Ok(RangeRead { range: read.range.clipped(capabilities.row.ccols), ..read })
    }

    /// The rows of a checked range, read by `send`.
    fn read_with<R: Send + 'static>(
        &self,
        read: RangeRead,
        send: impl FnOnce(RangeRead, &SharedStorage) -> BoxStream<'static, Result<R>>,
    ) -> BoxStream<'static, Result<R>> {
        match self.check_range(read) {
            Err(error) => stream::once(async { Err(error) }).boxed(),
            Ok(read) if read.range.is_empty() => stream::empty().boxed(),
            Ok(read) => {
                let page_timeout = read.page_timeout;
                self.with_page_timeout(send(read, &self.inner), page_timeout)
            }
        }
    }

    /// Bounds how long the stream may go without being woken. A stream is woken for each page, so
    /// this bounds the wait for each page.
    fn with_page_timeout<R: Send + 'static>(
        &self,
        rows: BoxStream<'static, Result<R>>,
        page_timeout: Duration,
    ) -> BoxStream<'static, Result<R>> {
        let (clock, closed) = (self.clock.clone(), Arc::clone(&self.closed));
        stream::unfold(Some((rows, clock, closed)), move |state| async move {
            let (mut rows, clock, closed) = state?;
            if closed.load(Ordering::Acquire) {
                return Some((Err(Error::closed()), None));
            }
            let next = match rows.next().now_or_never() {
                Some(ready) => ready,
                None => {
                    let late = |_| {
                        Some(Err(Error::unavailable("the storage did not send a page in time")))
                    };
                    page_timeout::next(&mut rows, &clock, page_timeout).await.unwrap_or_else(late)
                }
            };
            let row = next?;
            let more = row.is_ok().then_some((rows, clock, closed));
            Some((row, more))
        })
        .boxed()
    }
}

/// The keys of a call without repetitions, if some keys repeat.
struct DistinctKeys {
    keys: Vec<Key>,
    /// For each key of the call, the index of that key among the distinct ones.
    indices: Vec<usize>,
}

impl DistinctKeys {
    /// The distinct keys, `None` if no key repeats, which is the common case.
    fn if_repeated(keys: &[Key]) -> Option<DistinctKeys> {
        let mut first: HashMap<&Key, usize> = HashMap::with_capacity(keys.len());
        let indices: Vec<usize> = keys
            .iter()
            .map(|key| {
                let next = first.len();
                *first.entry(key).or_insert(next)
            })
            .collect();
        if first.len() == keys.len() {
            return None;
        }
        let mut distinct: Vec<(usize, Key)> =
            first.into_iter().map(|(key, index)| (index, key.clone())).collect();
        distinct.sort_unstable_by_key(|(index, _)| *index);
        Some(DistinctKeys { keys: distinct.into_iter().map(|(_, key)| key).collect(), indices })
    }

    fn spread<R: Clone>(&self, rows: &[Option<R>]) -> Vec<Option<R>> {
        self.indices.iter().map(|index| rows.get(*index).cloned().flatten()).collect()
    }
}

impl StorageWrapper for Guarded {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        self.check_open()?;
        let call = check::call(&self.inner.capabilities(), call)?;
        if self.clock.now() >= deadline {
            return Err(Error::unavailable(
                "the deadline passed before the call; nothing was sent",
            ));
        }
        let is_write = matches!(call, Call::Write(_));
        let answer = self.clock.timeout_at(deadline, self.send(call, deadline)).await;
        answer.unwrap_or_else(|_| {
            Err(if is_write {
                Error::outcome_unknown("the storage did not answer a write before its deadline")
            } else {
                Error::unavailable("the storage did not answer a read before its deadline")
            })
        })
    }

    fn read(&self, read: RangeRead) -> RowStream {
        self.read_with(read, RangeRead::send)
    }

    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        self.read_with(read, RangeRead::send_with_ttl)
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        match self.check_open() {
            Err(error) => stream::once(async { Err(error) }).boxed(),
            // No partition has such a key, and a storage may refuse to look for it.
            Ok(()) if prefix.len() > self.inner.capabilities().row.pkey => stream::empty().boxed(),
            Ok(()) => {
                let keys = self.inner.partitions(prefix, page_timeout);
                self.with_page_timeout(keys, page_timeout)
            }
        }
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.inner.close().await;
    }
}
