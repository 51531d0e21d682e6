//! The rules that hold for every driver: arguments, deadlines, and use after close.

mod page_timeout;

use std::{
    collections::HashMap,
    future::{Future, ready},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, stream, stream::BoxStream};

use crate::{
    AppStorage, AtomicBatch, Capabilities, Conditional, Consistency, Error, ExpiringRowStream, Key,
    OrderedPut, Outcome, Put, Range, Result, RowStream, ServerTime, SharedStorage, check,
};

/// A storage that keeps the common rules of [`AppStorage`] for the storage of a driver.
///
/// - Arguments are checked against the [`Capabilities`].
/// - A row that is named several times in a batch is passed on once.
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

    async fn bounded_read<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let late = || Error::unavailable("the storage did not answer a read before its deadline");
        self.bounded_call(deadline, call, late).await
    }

    async fn bounded_write<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let late =
            || Error::outcome_unknown("the storage did not answer a write before its deadline");
        self.bounded_call(deadline, call, late).await
    }

    async fn bounded_call<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
        late: impl FnOnce() -> Error,
    ) -> Result<T> {
        if self.clock.now() >= deadline {
            return Err(Error::unavailable(
                "the deadline passed before the call; nothing was sent",
            ));
        }
        self.clock.timeout_at(deadline, call).await.unwrap_or_else(|_| Err(late()))
    }

    /// The check that comes before all others in every call.
    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }

    fn check_range(&self, pkey: &Bytes, range: Range) -> Result<Range> {
        self.check_open()?;
        let capabilities = self.inner.capabilities();
        check::pkey(&capabilities, pkey)?;
        Ok(range.clipped(capabilities.row.ccols))
    }

    /// The stream with a bound for the time in which it is not woken. A stream is woken for each
    /// page, so the wait for each page is bounded.
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

/// The keys of a call in which some keys repeat, without the repetitions.
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

    fn spread(&self, values: &[Option<Bytes>]) -> Vec<Option<Bytes>> {
        self.indices.iter().map(|index| values.get(*index).cloned().flatten()).collect()
    }
}

fn error_stream<R: Send + 'static>(error: Error) -> BoxStream<'static, Result<R>> {
    stream::once(async { Err(error) }).boxed()
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl AppStorage for Guarded {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        self.check_open()?;
        check::key(&self.inner.capabilities(), key)?;
        self.bounded_read(deadline, self.inner.get(key, consistency, deadline)).await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.check_open()?;
        let capabilities = self.inner.capabilities();
        keys.iter().try_for_each(|key| check::key(&capabilities, key))?;
        let call = async {
            match DistinctKeys::if_repeated(keys) {
                _ if keys.is_empty() => Ok(Vec::new()),
                None => self.inner.get_batch(keys, deadline).await,
                Some(distinct) => {
                    let values = self.inner.get_batch(&distinct.keys, deadline).await?;
                    Ok(distinct.spread(&values))
                }
            }
        };
        self.bounded_read(deadline, call).await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        match self.check_range(&pkey, range) {
            Err(error) => error_stream(error),
            Ok(range) if range.is_empty() => stream::empty().boxed(),
            Ok(range) => self.with_page_timeout(
                self.inner.read(pkey, range, consistency, page_timeout),
                page_timeout,
            ),
        }
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        match self.check_range(&pkey, range) {
            Err(error) => error_stream(error),
            Ok(range) if range.is_empty() => stream::empty().boxed(),
            Ok(range) => {
                self.with_page_timeout(self.inner.ttl_read(pkey, range, page_timeout), page_timeout)
            }
        }
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        self.check_open()?;
        let rows = check::puts(&self.inner.capabilities(), rows)?;
        if rows.is_empty() {
            return self.bounded_write(deadline, ready(Ok(()))).await;
        }
        self.bounded_write(deadline, self.inner.put_batch(rows, deadline)).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.check_open()?;
        let rows = check::ordered(&self.inner.capabilities(), rows)?;
        if rows.is_empty() {
            return self.bounded_write(deadline, ready(Ok(()))).await;
        }
        self.bounded_write(deadline, self.inner.put_ordered(rows, deadline)).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.check_open()?;
        check::write_if(&self.inner.capabilities(), &pkey, &ops)?;
        if ops.is_empty() {
            return self.bounded_write(deadline, ready(Ok(Outcome::Applied))).await;
        }
        self.bounded_write(deadline, self.inner.write_if(pkey, ops, deadline)).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.check_open()?;
        let batch = check::write_atomic(&self.inner.capabilities(), batch)?;
        if batch == AtomicBatch::default() {
            return self.bounded_write(deadline, ready(Ok(Outcome::Applied))).await;
        }
        self.bounded_write(deadline, self.inner.write_atomic(batch, deadline)).await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.check_open()?;
        self.bounded_read(deadline, self.inner.server_time(deadline)).await
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.inner.close().await;
    }
}
