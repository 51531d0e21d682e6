//! The latency of the operations of a storage, measured with one call at a time.

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::TryStreamExt;
use istorage::{
    AppStorageExt, AtomicBatch, Conditional, Consistency, Key, Order, OrderedPut, Put, Range,
    Result, SharedStorage,
};
use serde::Serialize;

/// The latency of one operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OperationLatency {
    pub(crate) operation: &'static str,
    pub(crate) calls: usize,
    #[serde(rename = "p50_seconds", serialize_with = "as_seconds")]
    pub(crate) p50: Duration,
    #[serde(rename = "p99_seconds", serialize_with = "as_seconds")]
    pub(crate) p99: Duration,
}

pub(crate) fn as_seconds<S: serde::Serializer>(
    duration: &Duration,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// The name of the operation that renews leases.
pub(crate) const CONDITIONAL: &str = "compare_and_swap";

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const VALUE: &[u8] = &[7; 256];

/// The clock, and the number of calls of each operation.
struct LatencyBench {
    clock: Clock,
    calls: u16,
}

/// Measures each operation with `calls` calls, one at a time, in storage partitions that only this
/// measurement uses. Each write comes before the reads of its rows.
///
/// # Errors
/// The first error of a call.
pub(crate) async fn measure(
    storage: SharedStorage,
    clock: Clock,
    calls: u16,
) -> Result<Vec<OperationLatency>> {
    let (storage, bench) = (&*storage, LatencyBench { clock, calls });
    let insert = |row| Conditional::Insert { ccols: ccols(row), value: value(), ttl: None };
    let put = async |n, until| storage.put(key("put", n, 0), value(), until).await;
    let get =
        async |n, until| storage.get(&key("put", n, 0), Consistency::Plain, until).await.map(drop);
    let put_batch = async |n, until| {
        let put = |row| Put { key: key("batch", n, row), value: value() };
        storage.put_batch((0..10).map(put).collect(), until).await
    };
    let read = async |n, _| {
        let pkey = key("batch", n, 0).pkey;
        let rows = storage.read(pkey, Range::all(), Consistency::Plain, CALL_TIMEOUT);
        rows.try_collect::<Vec<_>>().await.map(drop)
    };
    let put_ordered = async |n, until| {
        let (key, order) = (key("ordered", n, 0), Order::new(1)?);
        let put = OrderedPut { key, value: value(), order, ttl: None };
        storage.put_ordered(vec![put], until).await
    };
    let insert_one = async |n, until| {
        storage.insert_if_not_exists(key("cond", n, 0), value(), None, until).await.map(drop)
    };
    let get_linearizable =
        async |n, until| storage.get_linearizable(&key("cond", n, 0), until).await.map(drop);
    let swap = async |n, until| {
        let new = Bytes::from_static(b"swapped");
        storage.compare_and_swap(key("cond", n, 0), value(), new, None, until).await.map(drop)
    };
    let write_if = async |n, until| {
        let inserts = (0..32).map(insert).collect();
        storage.write_if(key("if", n, 0).pkey, inserts, until).await.map(drop)
    };
    let write_atomic = async |n, until| {
        let puts = vec![Put { key: key("put", n, 1), value: value() }];
        let conditionals = (0..3).map(|row| (key("atomic", n, row).pkey, insert(row))).collect();
        let batch = AtomicBatch { conditionals, ordered: Vec::new(), puts };
        storage.write_atomic(batch, until).await.map(drop)
    };
    let mut latencies = vec![
        bench.measure("put", put).await?,
        bench.measure("get", get).await?,
        bench.measure("put_batch (10 rows)", put_batch).await?,
        bench.measure("read (10 rows)", read).await?,
        bench.measure("put_ordered", put_ordered).await?,
        bench.measure("insert_if_not_exists", insert_one).await?,
        bench.measure("get_linearizable", get_linearizable).await?,
        bench.measure(CONDITIONAL, swap).await?,
        bench.measure("write_if (32 inserts)", write_if).await?,
    ];
    if storage.capabilities().atomic.is_some() {
        latencies.push(bench.measure("write_atomic (4 rows)", write_atomic).await?);
    }
    Ok(latencies)
}

impl LatencyBench {
    async fn measure(
        &self,
        operation: &'static str,
        call: impl AsyncFn(u16, Instant) -> Result<()>,
    ) -> Result<OperationLatency> {
        let mut times = Vec::with_capacity(usize::from(self.calls));
        for n in 0..self.calls {
            let start = self.clock.now();
            call(n, start + CALL_TIMEOUT).await?;
            times.push(self.clock.now() - start);
        }
        times.sort_unstable();
        let at =
            |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        Ok(OperationLatency { operation, calls: times.len(), p50: at(50), p99: at(99) })
    }
}

fn key(kind: &str, n: u16, row: u16) -> Key {
    Key { pkey: format!("latency {kind} {n}").into(), ccols: ccols(row) }
}

fn ccols(row: u16) -> Bytes {
    Bytes::copy_from_slice(&row.to_be_bytes())
}

fn value() -> Bytes {
    Bytes::from_static(VALUE)
}
