//! Metrics of any storage.

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{StreamExt, stream, stream::BoxStream};
use metrics::{Counter, Histogram};

use crate::{
    AppStorage, AtomicBatch, CallKind, Capabilities, Conditional, Consistency, ErrorKind,
    ExpiringRowStream, Key, OrderedPut, Outcome, Put, Range, Result, RowStream, ServerTime,
    SharedStorage,
};

/// A storage that reports every call of another storage through the `metrics` facade:
///
/// - histogram `istorage_call_seconds{driver, op, result}`: the duration of calls. `result` is
///   `ok`, `not_applied`, `unavailable`, `outcome_unknown`, `invalid`, `corrupt` or `closed`. A
///   call that is dropped is not reported. A `read` is reported when its stream ends, with the time
///   that was spent waiting for rows.
/// - counter `istorage_rows_total{driver, op}`: the rows that were asked for one by one, came in a
///   stream, or were to be written. Rows count for every result of the call.
///
/// Install the recorder before making this wrapper.
#[derive(Debug)]
pub struct Metered {
    inner: SharedStorage,
    clock: Clock,
    meters: Arc<Vec<Meter>>,
}

struct Meter {
    driver: &'static str,
    kind: CallKind,
    /// The histogram of each result, made on first use. Most results never happen, and are then not
    /// reported.
    seconds: [OnceLock<Histogram>; RESULTS.len()],
    rows: Counter,
}

impl Meter {
    fn new(driver: &'static str, kind: CallKind) -> Meter {
        let rows =
            metrics::counter!("istorage_rows_total", "driver" => driver, "op" => kind.name());
        Meter { driver, kind, seconds: Default::default(), rows }
    }

    fn record(&self, result: usize, took: Duration, rows: u64) {
        let seconds = self.seconds[result].get_or_init(|| {
            metrics::histogram!(
                "istorage_call_seconds",
                "driver" => self.driver, "op" => self.kind.name(), "result" => RESULTS[result]
            )
        });
        seconds.record(took);
        self.rows.increment(rows);
    }
}

const RESULTS: [&str; 7] =
    ["ok", "not_applied", "unavailable", "outcome_unknown", "invalid", "corrupt", "closed"];
const OK: usize = 0;
const NOT_APPLIED: usize = 1;

fn index_of(kind: ErrorKind) -> usize {
    match kind {
        ErrorKind::Unavailable => 2,
        ErrorKind::OutcomeUnknown => 3,
        ErrorKind::Invalid => 4,
        ErrorKind::Corrupt => 5,
        ErrorKind::Closed => 6,
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meter")
    }
}

impl Metered {
    /// Reports the calls of `inner` under the name of its driver.
    pub fn new(inner: SharedStorage, driver: &'static str, clock: Clock) -> Metered {
        let meters = CallKind::ALL.into_iter().map(|kind| Meter::new(driver, kind)).collect();
        Metered { inner, clock, meters: Arc::new(meters) }
    }

    async fn report_call<T>(
        &self,
        kind: CallKind,
        rows: usize,
        call: impl Future<Output = Result<T>>,
        applied: impl FnOnce(&T) -> bool,
    ) -> Result<T> {
        let start = self.clock.now();
        let answer = call.await;
        let result = match &answer {
            Ok(value) if applied(value) => OK,
            Ok(_) => NOT_APPLIED,
            Err(error) => index_of(error.kind()),
        };
        self.meters[kind as usize].record(result, self.clock.now() - start, rows as u64);
        answer
    }

    /// Counts rows and the time spent waiting for them, and reports both when the stream ends or is
    /// dropped.
    fn report_stream<R: Send + 'static>(
        &self,
        rows: BoxStream<'static, Result<R>>,
    ) -> BoxStream<'static, Result<R>> {
        let tally = StreamTally {
            meters: Arc::clone(&self.meters),
            waited: Duration::ZERO,
            rows: 0,
            result: OK,
        };
        let clock = self.clock.clone();
        stream::unfold((rows, tally), move |(mut rows, mut tally)| {
            let clock = clock.clone();
            async move {
                let start = clock.now();
                let row = rows.next().await;
                tally.waited += clock.now() - start;
                match &row {
                    Some(Ok(_)) => tally.rows += 1,
                    Some(Err(error)) => tally.result = index_of(error.kind()),
                    None => {}
                }
                row.map(|row| (row, (rows, tally)))
            }
        })
        .boxed()
    }
}

/// The counts of a stream so far.
struct StreamTally {
    meters: Arc<Vec<Meter>>,
    waited: Duration,
    rows: u64,
    result: usize,
}

impl Drop for StreamTally {
    fn drop(&mut self) {
        self.meters[CallKind::Read as usize].record(self.result, self.waited, self.rows);
    }
}

fn always<T>(_: &T) -> bool {
    true
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl AppStorage for Metered {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        self.report_call(
            CallKind::of_get(consistency),
            1,
            self.inner.get(key, consistency, deadline),
            always,
        )
        .await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.report_call(
            CallKind::GetBatch,
            keys.len(),
            self.inner.get_batch(keys, deadline),
            always,
        )
        .await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        self.report_stream(self.inner.read(pkey, range, consistency, page_timeout))
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        self.report_stream(self.inner.ttl_read(pkey, range, page_timeout))
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        self.report_call(
            CallKind::PutBatch,
            rows.len(),
            self.inner.put_batch(rows, deadline),
            always,
        )
        .await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.report_call(
            CallKind::PutOrdered,
            rows.len(),
            self.inner.put_ordered(rows, deadline),
            always,
        )
        .await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let rows = ops.len();
        self.report_call(
            CallKind::WriteIf,
            rows,
            self.inner.write_if(pkey, ops, deadline),
            Outcome::is_applied,
        )
        .await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        let rows = batch.conditionals.len() + batch.ordered.len() + batch.puts.len();
        self.report_call(
            CallKind::WriteAtomic,
            rows,
            self.inner.write_atomic(batch, deadline),
            Outcome::is_applied,
        )
        .await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.report_call(CallKind::ServerTime, 0, self.inner.server_time(deadline), always).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
