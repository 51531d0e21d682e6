//! Deliberate faults in the calls of any storage, from a seed or from a script. A run with a seed
//! replays exactly.

mod fault;

use std::{fmt, future::pending, mem, sync::Mutex, time::Duration};

use base::locks::lock;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, TryFutureExt, future::BoxFuture, stream::BoxStream};
use istorage::{
    Call, CallAnswer, CallKind, Error, ExpiringRowStream, Outcome, PartitionStream, RangeRead,
    Result, RowStream, SharedStorage, StorageWrapper, Write,
};

pub use self::fault::{Fault, FaultRates};

/// A storage that puts [`Fault`]s in front of another storage. The wrapper spawns nothing. It keeps
/// the writes that land late, and does them when their time has come. So the seed and the clock
/// alone decide a schedule.
pub struct Faulty {
    inner: SharedStorage,
    clock: Clock,
    script: Mutex<FaultScript>,
    late: Mutex<Vec<(Instant, Write)>>,
}

type FaultScript = Box<dyn FnMut(CallKind) -> Fault + Send>;

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Faulty {
    /// Puts the faults of `script` into the calls of `inner`. It calls `script` once for each call,
    /// and once for a whole stream.
    pub fn scripted(
        inner: SharedStorage,
        clock: Clock,
        script: impl FnMut(CallKind) -> Fault + Send + 'static,
    ) -> Faulty {
        Faulty { inner, clock, script: Mutex::new(Box::new(script)), late: Mutex::default() }
    }

    /// Puts random faults into the calls of `inner`. The same seed and the same calls give the same
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
        let landing: Vec<(Instant, Write)> = {
            let mut late = lock(&self.late);
            let (landing, waiting) =
                mem::take(&mut *late).into_iter().partition(|(at, _)| due(*at));
            *late = waiting;
            landing
        };
        let mut outcomes = Vec::with_capacity(landing.len());
        for (_, write) in landing {
            outcomes.push(write.send(&self.inner, Instant::FAR_FUTURE).await);
        }
        outcomes
    }

    /// The fault of a call. Writes that have become due land first. Their outcomes are dropped,
    /// because no caller waits for them.
    async fn next_fault(&self, kind: CallKind) -> Fault {
        let now = self.clock.now();
        drop(self.land_due(|at| at <= now).await);
        (lock(&self.script))(kind)
    }

    async fn write_with_fault(&self, write: Write, deadline: Instant) -> Result<Outcome> {
        match self.next_fault(write.kind()).await {
            Fault::None => write.send(&self.inner, deadline).await,
            Fault::AppliedButError => {
                let _lost = write.send(&self.inner, deadline).await?;
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
                write.send(&self.inner, deadline).await
            }
            Fault::ReplyAfterDeadline => {
                let answer = write.send(&self.inner, deadline).await;
                self.clock.sleep_until(deadline + Duration::from_millis(1)).await;
                answer
            }
        }
    }

    async fn read_with_fault(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match self.next_fault(call.kind()).await {
            Fault::None => call.send(&self.inner, deadline).await,
            Fault::AppliedButError
            | Fault::NotAppliedButError
            | Fault::AppliedLate(_)
            | Fault::Unavailable => Err(Error::unavailable("injected fault: the read failed")),
            Fault::Hang => pending().await,
            Fault::Slow(delay) => {
                self.clock.sleep(delay).await;
                call.send(&self.inner, deadline).await
            }
            Fault::ReplyAfterDeadline => {
                let answer = call.send(&self.inner, deadline).await;
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

impl StorageWrapper for Faulty {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::Write(write) => Ok(self.write_with_fault(write, deadline).await?.into()),
            read => self.read_with_fault(read, deadline).await,
        }
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let page_timeout = read.page_timeout;
        self.stream_with_fault(read.send(&self.inner), page_timeout)
    }

    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        let page_timeout = read.page_timeout;
        self.stream_with_fault(read.send_with_ttl(&self.inner), page_timeout)
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        self.stream_with_fault(self.inner.partitions(prefix, page_timeout), page_timeout)
    }
}
