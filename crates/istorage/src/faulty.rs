//! Deliberate faults in front of any storage, from a seed or from a script. A run with a seed
//! replays exactly.

mod fault;

use std::{
    fmt,
    future::{Future, pending},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, TryFutureExt, future::BoxFuture, stream::BoxStream};

pub use self::fault::{Fault, FaultRates};
use crate::{
    AppStorage, AtomicBatch, CallKind, Capabilities, Conditional, Consistency, Error,
    ExpiringRowStream, Key, OrderedPut, Outcome, Put, Range, Result, RowStream, ServerTime,
    SharedStorage,
};

/// A storage that puts [`Fault`]s in front of another storage. The wrapper spawns nothing. It keeps
/// the writes that land late, and does them when their time has come. So the seed and the clock
/// alone decide a schedule.
pub struct Faulty {
    inner: SharedStorage,
    clock: Clock,
    script: Mutex<FaultScript>,
    late: Mutex<Vec<(Instant, LateWrite)>>,
}

type FaultScript = Box<dyn FnMut(CallKind) -> Fault + Send>;

/// A write of any kind that can be kept for later.
enum LateWrite {
    PutBatch(Vec<Put>),
    PutOrdered(Vec<OrderedPut>),
    If(Bytes, Vec<Conditional>),
    Atomic(AtomicBatch),
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Faulty {
    /// Puts the faults of `script` in front of `inner`. The script is asked once for each call, and
    /// once for a whole stream.
    pub fn scripted(
        inner: SharedStorage,
        clock: Clock,
        script: impl FnMut(CallKind) -> Fault + Send + 'static,
    ) -> Faulty {
        Faulty { inner, clock, script: Mutex::new(Box::new(script)), late: Mutex::default() }
    }

    /// Puts random faults in front of `inner`. The same seed and the same calls give the same
    /// faults.
    pub fn seeded(inner: SharedStorage, clock: Clock, seed: u64, rates: FaultRates) -> Faulty {
        let mut random = fastrand::Rng::with_seed(seed);
        Faulty::scripted(inner, clock, move |_| rates.draw(&mut random))
    }

    /// Lets every delayed write land, even before its time has come, and returns the outcome of
    /// each.
    pub async fn land_late_writes(&self) -> Vec<Result<Outcome>> {
        self.land_due(|_| true).await
    }

    async fn land_due(&self, due: impl Fn(Instant) -> bool) -> Vec<Result<Outcome>> {
        let landing: Vec<(Instant, LateWrite)> = {
            let mut late = lock(&self.late);
            let (landing, waiting) =
                mem::take(&mut *late).into_iter().partition(|(at, _)| due(*at));
            *late = waiting;
            landing
        };
        let mut outcomes = Vec::with_capacity(landing.len());
        for (_, write) in landing {
            outcomes.push(self.apply(write, Instant::FAR_FUTURE).await);
        }
        outcomes
    }

    /// The fault of a call. Writes that have become due land first. Their outcomes are dropped,
    /// because no caller waits for them any more.
    async fn next_fault(&self, kind: CallKind) -> Fault {
        let now = self.clock.now();
        drop(self.land_due(|at| at <= now).await);
        (lock(&self.script))(kind)
    }

    async fn apply(&self, write: LateWrite, deadline: Instant) -> Result<Outcome> {
        match write {
            LateWrite::PutBatch(rows) => {
                self.inner.put_batch(rows, deadline).await.map(|()| Outcome::Applied)
            }
            LateWrite::PutOrdered(rows) => {
                self.inner.put_ordered(rows, deadline).await.map(|()| Outcome::Applied)
            }
            LateWrite::If(pkey, ops) => self.inner.write_if(pkey, ops, deadline).await,
            LateWrite::Atomic(batch) => self.inner.write_atomic(batch, deadline).await,
        }
    }

    async fn write_with_fault(
        &self,
        kind: CallKind,
        write: LateWrite,
        deadline: Instant,
    ) -> Result<Outcome> {
        match self.next_fault(kind).await {
            Fault::None => self.apply(write, deadline).await,
            Fault::AppliedButError => {
                let _lost = self.apply(write, deadline).await?;
                Err(Error::outcome_unknown(
                    "injected fault: the write was applied, and its answer was lost",
                ))
            }
            Fault::NotAppliedButError => Err(Error::outcome_unknown(
                "injected fault: the write was not applied, and its answer was lost",
            )),
            Fault::AppliedLate(delay) => {
                lock(&self.late).push((self.clock.now() + delay, write));
                Err(Error::outcome_unknown("injected fault: the write lands late"))
            }
            Fault::Unavailable => Err(Error::unavailable("injected fault: the write was refused")),
            Fault::Hang => pending().await,
            Fault::Slow(delay) => {
                self.clock.sleep(delay).await;
                self.apply(write, deadline).await
            }
            Fault::ReplyAfterDeadline => {
                let answer = self.apply(write, deadline).await;
                self.clock.sleep_until(deadline + Duration::from_millis(1)).await;
                answer
            }
        }
    }

    async fn read_with_fault<T>(
        &self,
        kind: CallKind,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self.next_fault(kind).await {
            Fault::None => call.await,
            Fault::AppliedButError
            | Fault::NotAppliedButError
            | Fault::AppliedLate(_)
            | Fault::Unavailable => Err(Error::unavailable("injected fault: the read failed")),
            Fault::Hang => pending().await,
            Fault::Slow(delay) => {
                self.clock.sleep(delay).await;
                call.await
            }
            Fault::ReplyAfterDeadline => {
                let answer = call.await;
                self.clock.sleep_until(deadline + Duration::from_millis(1)).await;
                answer
            }
        }
    }

    /// The stream with its fault, which happens before the first row.
    fn stream_with_fault<R: Send + 'static>(
        &self,
        rows: BoxStream<'static, Result<R>>,
        page_timeout: Duration,
    ) -> BoxStream<'static, Result<R>> {
        let clock = self.clock.clone();
        let start: BoxFuture<'static, Result<()>> = match (lock(&self.script))(CallKind::Read) {
            Fault::None => return rows,
            Fault::AppliedButError
            | Fault::NotAppliedButError
            | Fault::AppliedLate(_)
            | Fault::Unavailable => {
                async { Err(Error::unavailable("injected fault: the read failed")) }.boxed()
            }
            Fault::Hang => pending().boxed(),
            Fault::Slow(delay) => async move { clock.sleep(delay).await }.map(Ok).boxed(),
            Fault::ReplyAfterDeadline => {
                async move { clock.sleep(page_timeout + Duration::from_millis(1)).await }
                    .map(Ok)
                    .boxed()
            }
        };
        start.map_ok(move |()| rows).try_flatten_stream().boxed()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // If a script panics, its test fails anyway, so a poisoned lock is no further error.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl AppStorage for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        self.read_with_fault(
            CallKind::of_get(consistency),
            deadline,
            self.inner.get(key, consistency, deadline),
        )
        .await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.read_with_fault(CallKind::GetBatch, deadline, self.inner.get_batch(keys, deadline))
            .await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        self.stream_with_fault(
            self.inner.read(pkey, range, consistency, page_timeout),
            page_timeout,
        )
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        self.stream_with_fault(self.inner.ttl_read(pkey, range, page_timeout), page_timeout)
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        self.write_with_fault(CallKind::PutBatch, LateWrite::PutBatch(rows), deadline)
            .await
            .map(drop)
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.write_with_fault(CallKind::PutOrdered, LateWrite::PutOrdered(rows), deadline)
            .await
            .map(drop)
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.write_with_fault(CallKind::WriteIf, LateWrite::If(pkey, ops), deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.write_with_fault(CallKind::WriteAtomic, LateWrite::Atomic(batch), deadline).await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.read_with_fault(CallKind::ServerTime, deadline, self.inner.server_time(deadline)).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
