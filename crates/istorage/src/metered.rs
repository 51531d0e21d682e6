//! Metrics of any storage.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{StreamExt, stream, stream::BoxStream};
use metrics::{Counter, Histogram};

use crate::{
    Call, CallAnswer, CallKind, ErrorKind, ExpiringRowStream, Outcome, PartitionStream, RangeRead,
    Result, RowStream, SharedStorage, StorageWrapper,
};

/// A storage that reports every call of another storage through the `metrics` facade:
///
/// - histogram `istorage_call_seconds{driver, op, result}`: the duration of calls. `result` is
///   `ok`, `not_applied`, `unavailable`, `outcome_unknown`, `invalid`, `corrupt` or `closed`. A
///   call that is dropped is not reported. A `read` is reported when its stream ends, with the time
///   that was spent waiting for rows.
/// - counter `istorage_rows_total{driver, op}`: the rows that a caller asked for one by one, read
///   in a stream, or wanted to write. Rows count for every result of the call.
///
/// Install the recorder before making this wrapper.
#[derive(Debug)]
pub struct Metered {
    inner: SharedStorage,
    clock: Clock,
    meters: Arc<Vec<Meter>>,
}

#[derive(Debug)]
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

impl Metered {
    /// Reports the calls of `inner` under the name of its driver.
    pub fn new(inner: SharedStorage, driver: &'static str, clock: Clock) -> Metered {
        let meters = CallKind::ALL.into_iter().map(|kind| Meter::new(driver, kind)).collect();
        Metered { inner, clock, meters: Arc::new(meters) }
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

impl StorageWrapper for Metered {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let (kind, rows) = (call.kind(), call.rows());
        let start = self.clock.now();
        let answer = call.send(&self.inner, deadline).await;
        let result = match &answer {
            Ok(CallAnswer::Outcome(Outcome::NotApplied(_))) => NOT_APPLIED,
            Ok(_) => OK,
            Err(error) => index_of(error.kind()),
        };
        self.meters[kind as usize].record(result, self.clock.now() - start, rows as u64);
        answer
    }

    fn read(&self, read: RangeRead) -> RowStream {
        self.report_stream(read.send(&self.inner))
    }

    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        self.report_stream(read.send_with_ttl(&self.inner))
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        self.report_stream(self.inner.partitions(prefix, page_timeout))
    }
}
