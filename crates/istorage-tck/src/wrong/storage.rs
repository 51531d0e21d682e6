//! A storage that is correct except for one defect.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use istorage::{
    AppStorage, AtomicBatch, BatchLimits, Capabilities, Conditional, Consistency, Error,
    ExpiringRowStream, Key, Order, OrderedPut, Outcome, Put, Range, Result, Row, RowLimits,
    RowStream, ServerTime, SharedStorage,
};

use super::Defect;

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

    fn check_open(&self) -> Result<()> {
        if self.has(Defect::CloseClosesAll) && self.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        Ok(())
    }

    fn deadline(&self, deadline: Instant) -> Instant {
        if self.has(Defect::DeadlineIgnored) { Instant::FAR_FUTURE } else { deadline }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl AppStorage for WrongStorage {
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

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        self.check_open()?;
        self.wrong_get(key, consistency, self.deadline(deadline)).await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.wrong_get_batch(keys, self.deadline(deadline)).await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        self.wrong_read(pkey, range, consistency, page_timeout)
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        self.wrong_ttl_read(pkey, range, page_timeout)
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        self.wrong_put_batch(rows, self.deadline(deadline)).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.wrong_put_ordered(rows, self.deadline(deadline)).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.wrong_write_if(pkey, ops, self.deadline(deadline)).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.wrong_write_atomic(batch, self.deadline(deadline)).await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        let right = self.right.server_time(self.deadline(deadline)).await?;
        if self.has(Defect::ServerTimeStandsStill) {
            // 2026-01-01, the time at which a clock that is moved by hand begins.
            let at = WallTime::from_millis(1_767_225_600_000);
            return Ok(Some(ServerTime { at, uncertainty: Duration::from_millis(1) }));
        }
        Ok(right)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if !self.has(Defect::CloseIgnored) {
            self.right.close().await;
        }
    }
}
