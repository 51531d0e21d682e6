//! The latency of the operations of a storage, measured with one call at a time.

use std::time::Duration;

use bytes::Bytes;
use clock::Clock;
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

/// The storage to measure, and the clock.
struct LatencyBench {
    storage: SharedStorage,
    clock: Clock,
}

/// Measures every operation with `calls` calls, in storage partitions that only this measurement
/// uses.
///
/// # Errors
/// The first error of a call.
pub(crate) async fn measure(
    storage: SharedStorage,
    clock: Clock,
    calls: u16,
) -> Result<Vec<OperationLatency>> {
    let bench = LatencyBench { storage, clock };
    let mut latencies = Vec::new();
    for operation in StorageOperation::ALL {
        let offered = operation != StorageOperation::WriteAtomic
            || bench.storage.capabilities().atomic.is_some();
        if offered {
            latencies.push(bench.measure(operation, calls).await?);
        }
    }
    Ok(latencies)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StorageOperation {
    Put,
    Get,
    GetLinearizable,
    PutBatch,
    PutOrdered,
    Insert,
    Swap,
    WriteIf,
    WriteAtomic,
    Read,
}

impl StorageOperation {
    /// All operations. Each write comes before the reads of its rows.
    const ALL: [StorageOperation; 10] = [
        StorageOperation::Put,
        StorageOperation::Get,
        StorageOperation::PutBatch,
        StorageOperation::Read,
        StorageOperation::PutOrdered,
        StorageOperation::Insert,
        StorageOperation::GetLinearizable,
        StorageOperation::Swap,
        StorageOperation::WriteIf,
        StorageOperation::WriteAtomic,
    ];

    const fn name(self) -> &'static str {
        match self {
            StorageOperation::Put => "put",
            StorageOperation::Get => "get",
            StorageOperation::GetLinearizable => "get_linearizable",
            StorageOperation::PutBatch => "put_batch (10 rows)",
            StorageOperation::PutOrdered => "put_ordered",
            StorageOperation::Insert => "insert_if_not_exists",
            StorageOperation::Swap => CONDITIONAL,
            StorageOperation::WriteIf => "write_if (32 inserts)",
            StorageOperation::WriteAtomic => "write_atomic (4 rows)",
            StorageOperation::Read => "read (10 rows)",
        }
    }
}

impl LatencyBench {
    async fn measure(&self, operation: StorageOperation, calls: u16) -> Result<OperationLatency> {
        let mut times = Vec::with_capacity(usize::from(calls));
        for n in 0..calls {
            let start = self.clock.now();
            self.call(operation, n).await?;
            times.push(self.clock.now() - start);
        }
        times.sort_unstable();
        let at =
            |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        Ok(OperationLatency {
            operation: operation.name(),
            calls: times.len(),
            p50: at(50),
            p99: at(99),
        })
    }

    async fn call(&self, operation: StorageOperation, n: u16) -> Result<()> {
        let (storage, deadline) = (&self.storage, self.clock.now() + CALL_TIMEOUT);
        match operation {
            StorageOperation::Put => storage.put(key("put", n, 0), value(), deadline).await,
            StorageOperation::Get => {
                storage.get(&key("put", n, 0), Consistency::Plain, deadline).await.map(drop)
            }
            StorageOperation::GetLinearizable => {
                storage.get_linearizable(&key("cond", n, 0), deadline).await.map(drop)
            }
            StorageOperation::PutBatch => {
                let put = |row| Put { key: key("batch", n, row), value: value() };
                storage.put_batch((0..10).map(put).collect(), deadline).await
            }
            StorageOperation::Read => {
                let pkey = key("batch", n, 0).pkey;
                let rows = storage.read(pkey, Range::all(), Consistency::Plain, CALL_TIMEOUT);
                rows.try_collect::<Vec<_>>().await.map(drop)
            }
            StorageOperation::PutOrdered => {
                let put = OrderedPut {
                    key: key("ordered", n, 0),
                    value: value(),
                    order: Order::new(1)?,
                    ttl: None,
                };
                storage.put_ordered(vec![put], deadline).await
            }
            StorageOperation::Insert => storage
                .insert_if_not_exists(key("cond", n, 0), value(), None, deadline)
                .await
                .map(drop),
            StorageOperation::Swap => {
                let new = Bytes::from_static(b"swapped");
                storage
                    .compare_and_swap(key("cond", n, 0), value(), new, None, deadline)
                    .await
                    .map(drop)
            }
            StorageOperation::WriteIf => {
                let insert =
                    |row| Conditional::Insert { ccols: ccols(row), value: value(), ttl: None };
                storage
                    .write_if(key("if", n, 0).pkey, (0..32).map(insert).collect(), deadline)
                    .await
                    .map(drop)
            }
            StorageOperation::WriteAtomic => {
                let insert = |row| (key("atomic", n, row).pkey, insert_at(row));
                let put = Put { key: key("put", n, 1), value: value() };
                let conditionals = (0..3).map(insert).collect();
                let batch = AtomicBatch { conditionals, ordered: Vec::new(), puts: vec![put] };
                storage.write_atomic(batch, deadline).await.map(drop)
            }
        }
    }
}

fn insert_at(row: u16) -> Conditional {
    Conditional::Insert { ccols: ccols(row), value: value(), ttl: None }
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
