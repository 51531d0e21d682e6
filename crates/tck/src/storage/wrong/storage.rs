//! A storage that is correct except for one defect.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use istorage::{
    BatchLimits, Call, CallAnswer, CallKind, Capabilities, Error, ExpiringRowStream, Key, Order,
    PartitionStream, RangeRead, Result, Row, RowLimits, RowStream, ServerTime, SharedStorage,
    StorageWrapper,
};

use super::Defect;

/// 2026-01-01, the time at which a clock that is moved by hand begins.
const START: ServerTime = ServerTime {
    at: WallTime::from_millis(1_767_225_600_000),
    uncertainty: Duration::from_millis(1),
};

#[derive(Debug)]
pub(super) struct WrongStorage {
    pub(super) right: SharedStorage,
    pub(super) clock: Clock,
    pub(super) defect: Defect,
    pub(super) wall_ahead_ms: i64,
    /// Whether some storage of the same driver was closed.
    pub(super) closed: Arc<AtomicBool>,
    pub(super) memory: Arc<Mutex<DefectMemory>>,
    /// A counter for the defect.
    pub(super) count: Arc<AtomicU64>,
}

/// The things that a defect remembers and should not.
#[derive(Debug, Default)]
pub(super) struct DefectMemory {
    pub(super) values: HashMap<Key, Option<Bytes>>,
    pub(super) ranges: HashMap<(Bytes, Bytes, Option<Bytes>), Vec<Row>>,
    pub(super) keys: HashSet<Key>,
    pub(super) orders: HashMap<Key, Order>,
}

impl WrongStorage {
    pub(super) fn new(
        right: SharedStorage,
        clock: Clock,
        defect: Defect,
        wall_ahead_ms: i64,
        closed: Arc<AtomicBool>,
    ) -> WrongStorage {
        let (memory, count) = (Arc::default(), Arc::default());
        WrongStorage { right, clock, defect, wall_ahead_ms, closed, memory, count }
    }

    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, DefectMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

impl StorageWrapper for WrongStorage {
    fn inner(&self) -> &SharedStorage {
        &self.right
    }

    fn capabilities(&self) -> Capabilities {
        let right = self.right.capabilities();
        let limits = |limits: BatchLimits, rows, bytes| BatchLimits {
            rows: limits.rows + rows,
            bytes: limits.bytes + bytes,
        };
        match self.defect {
            Defect::LimitsOverstated => {
                let RowLimits { pkey, ccols, value } = right.row;
                let row = RowLimits { pkey: pkey + 1, ccols: ccols + 1, value: value + 1 };
                let conditional = limits(right.conditional, 1, 1);
                let atomic = right.atomic.map(|atomic| limits(atomic, 1, 1));
                Capabilities { row, conditional, atomic, ..right }
            }
            Defect::LimitsTooSmall => {
                Capabilities { row: RowLimits { pkey: 40, ccols: 40, value: 40 }, ..right }
            }
            Defect::AtomicNotOffered => Capabilities { atomic: None, ..right },
            Defect::CapabilitiesChange => {
                let rows = self.next_count() as usize;
                Capabilities { conditional: limits(right.conditional, rows, 0), ..right }
            }
            _ => right,
        }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let deadline =
            if self.has(Defect::DeadlineIgnored) { Instant::FAR_FUTURE } else { deadline };
        match self.defect {
            Defect::CloseClosesAll if self.closed.load(Ordering::Acquire) => {
                return Err(Error::closed());
            }
            Defect::EmptyBatchRefused
                if call.rows() == 0 && call.kind() != CallKind::ServerTime =>
            {
                return Err(Error::invalid("an empty batch"));
            }
            _ => {}
        }
        match call {
            Call::Get(key, consistency) => {
                Ok(CallAnswer::Value(self.wrong_get(key, consistency, deadline).await?))
            }
            Call::GetBatch(keys) => {
                Ok(CallAnswer::Rows(self.wrong_get_batch(keys, deadline).await?))
            }
            Call::GetValues(keys) => {
                Ok(CallAnswer::Values(self.wrong_get_values(keys, deadline).await?))
            }
            Call::Write(write) => Ok(self.wrong_write(write, deadline).await?.into()),
            Call::ServerTime => {
                let right = call.send(&self.right, deadline).await?;
                let stands_still = self.has(Defect::ServerTimeStandsStill);
                Ok(if stands_still { CallAnswer::ServerTime(Some(START)) } else { right })
            }
        }
    }

    fn read(&self, read: RangeRead) -> RowStream {
        self.wrong_read(read)
    }

    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        self.wrong_ttl_read(read)
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        self.wrong_partitions(prefix, page_timeout)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if !self.has(Defect::CloseIgnored) {
            self.right.close().await;
        }
    }
}
