//! The rules that hold for every driver: arguments, deadlines, and use after close.

use std::{
    future::Future,
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

/// Wraps a driver's storage and keeps the common rules of [`AppStorage`]: arguments are checked against the
/// [`Capabilities`], several writes of one row in a batch become one, no call outlives its deadline, and a closed
/// storage answers `Closed`.
#[derive(Debug)]
pub struct Guarded {
    inner: SharedStorage,
    clock: Clock,
    closed: Arc<AtomicBool>,
}

impl Guarded {
    /// Guards `inner`; deadlines are judged by `clock`.
    pub fn new(inner: SharedStorage, clock: Clock) -> Guarded {
        Guarded {
            inner,
            clock,
            closed: Arc::new(AtomicBool::new(false)),
        }
    }

    async fn reading<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let late = || Error::unavailable("the storage did not answer a read before its deadline");
        self.call(deadline, call, late).await
    }

    async fn writing<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let late =
            || Error::outcome_unknown("the storage did not answer a write before its deadline");
        self.call(deadline, call, late).await
    }

    async fn call<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
        late: impl FnOnce() -> Error,
    ) -> Result<T> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        if self.clock.now() >= deadline {
            return Err(Error::unavailable(
                "the deadline had passed before the call; nothing was sent",
            ));
        }
        self.clock
            .timeout_at(deadline, call)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    fn check_range(&self, pkey: &Bytes) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        check::pkey(&self.inner.capabilities(), pkey)
    }

    /// Bounds the wait for each row that is not there at once, which is the wait for a page.
    fn paced<R: Send + 'static>(
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
                    let deadline = clock.now() + page_timeout;
                    let late = |_| {
                        Some(Err(Error::unavailable(
                            "the storage did not send a page in time",
                        )))
                    };
                    clock
                        .timeout_at(deadline, rows.next())
                        .await
                        .unwrap_or_else(late)
                }
            };
            let row = next?;
            let more = row.is_ok().then_some((rows, clock, closed));
            Some((row, more))
        })
        .boxed()
    }
}

fn failed<R: Send + 'static>(error: Error) -> BoxStream<'static, Result<R>> {
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
        check::key(&self.inner.capabilities(), key)?;
        self.reading(deadline, self.inner.get(key, consistency, deadline))
            .await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        let capabilities = self.inner.capabilities();
        keys.iter()
            .try_for_each(|key| check::key(&capabilities, key))?;
        self.reading(deadline, self.inner.get_batch(keys, deadline))
            .await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        match self.check_range(&pkey) {
            Err(error) => failed(error),
            Ok(()) if range.is_empty() => stream::empty().boxed(),
            Ok(()) => self.paced(
                self.inner.read(pkey, range, consistency, page_timeout),
                page_timeout,
            ),
        }
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        match self.check_range(&pkey) {
            Err(error) => failed(error),
            Ok(()) if range.is_empty() => stream::empty().boxed(),
            Ok(()) => self.paced(self.inner.ttl_read(pkey, range, page_timeout), page_timeout),
        }
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        let rows = check::puts(&self.inner.capabilities(), rows)?;
        self.writing(deadline, self.inner.put_batch(rows, deadline))
            .await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        let rows = check::ordered(&self.inner.capabilities(), rows)?;
        self.writing(deadline, self.inner.put_ordered(rows, deadline))
            .await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        check::write_if(&self.inner.capabilities(), &pkey, &ops)?;
        self.writing(deadline, self.inner.write_if(pkey, ops, deadline))
            .await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        let batch = check::write_atomic(&self.inner.capabilities(), batch)?;
        self.writing(deadline, self.inner.write_atomic(batch, deadline))
            .await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.reading(deadline, self.inner.server_time(deadline))
            .await
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.inner.close().await;
    }
}
