//! A storage that is correct except for one defect, and the defects of reads.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use base::locks::lock;
use bytes::Bytes;
use clock::{Clock, Instant, WallTime};
use futures::{
    StreamExt, TryFutureExt, TryStreamExt,
    future::{pending, ready},
    stream,
};
use istorage::{
    AppStorageExt, BatchLimits, Call, CallAnswer, CallKind, Capabilities, Consistency, Error,
    ExpiringRow, ExpiringRowStream, FoundRow, Key, Order, PartitionStream, Range, RangeRead,
    Result, Row, RowLimits, RowStream, ServerTime, SharedStorage, StorageWrapper,
};

use super::Defect;

/// The number of rows of a page, for [`Defect::OnePageOnly`].
const PAGE: usize = 256;

/// 2026-01-01, when a clock that is moved by hand begins.
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
        lock(&self.memory)
    }

    pub(super) fn next_count(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// The key for [`Defect::KeysJoined`]: the partition key has the first five bytes, and the
    /// clustering columns have all the rest.
    pub(super) fn joined(&self, pkey: &[u8], ccols: &[u8]) -> Option<Key> {
        if !self.has(Defect::KeysJoined) {
            return None;
        }
        let (head, rest) = pkey.split_at(pkey.len().min(5));
        Some(Key::new(head.to_vec(), [rest, ccols].concat()))
    }

    /// For [`Defect::LimitsIgnored`]: the key, cut to the limits.
    pub(super) fn cut(&self, mut key: Key) -> Key {
        if self.has(Defect::LimitsIgnored) {
            let limits = self.right.capabilities().row;
            key.pkey.truncate(limits.pkey);
            key.ccols.truncate(limits.ccols);
            if key.pkey.is_empty() {
                key.pkey = Bytes::from_static(b"empty");
            }
        }
        key
    }

    /// The same for a value.
    pub(super) fn cut_value(&self, mut value: Bytes) -> Bytes {
        if self.has(Defect::LimitsIgnored) {
            value.truncate(self.right.capabilities().row.value);
        }
        value
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

/// The defects of reads.
impl WrongStorage {
    async fn wrong_get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        let key = &self.cut(key.clone());
        let there = match self.joined(&key.pkey, &key.ccols) {
            Some(joined) => self.right.get(&joined, consistency, deadline).await?,
            None => self.right.get(key, consistency, deadline).await?,
        };
        match self.defect {
            Defect::Panics => panic!("a defect on purpose"),
            Defect::Hangs => pending().await,
            Defect::EmptyIsAbsent => Ok(there.filter(|value| !value.is_empty())),
            Defect::AbsentIsEmpty => Ok(Some(there.unwrap_or_default())),
            Defect::GetSeesExpired if there.is_none() => {
                Ok(self.memory().values.get(key).cloned().flatten())
            }
            Defect::ExpiryByNode if there.is_some() => {
                let gone = self.is_gone_here(key, deadline).await?;
                Ok(there.filter(|_| !gone))
            }
            _ if self.is_stale(consistency) => Ok(self.former_value(key, there)),
            _ => Ok(there),
        }
    }

    fn is_stale(&self, consistency: Consistency) -> bool {
        match consistency {
            Consistency::Plain => self.has(Defect::StaleReads),
            Consistency::Linearizable => self.has(Defect::StaleLinearizableReads),
        }
    }

    /// The value that the row had at the last look. The present value is kept for the next look.
    fn former_value(&self, key: &Key, there: Option<Bytes>) -> Option<Bytes> {
        self.memory().values.insert(key.clone(), there.clone()).unwrap_or(there)
    }

    /// Whether the row will have expired at the time that this node's calendar shows.
    async fn is_gone_here(&self, key: &Key, deadline: Instant) -> Result<bool> {
        let ahead = Duration::from_millis(self.wall_ahead_ms.unsigned_abs());
        let left = self.right.query_ttl(key, deadline - self.clock.now()).await?;
        Ok(left.flatten().is_some_and(|left| left <= ahead))
    }

    async fn wrong_get_values(
        &self,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<Vec<Option<Bytes>>> {
        let mut keys = keys.to_vec();
        if self.has(Defect::SortedValues) {
            keys.sort_unstable();
        }
        if self.has(Defect::NextRowOfRange) && keys.is_sorted() {
            return self.next_rows(&keys, deadline).await;
        }
        let rows = self.wrong_get_batch(&keys, deadline).await?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.value)).collect())
    }

    async fn next_rows(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        let mut values = Vec::new();
        if let Some(first) = keys.first() {
            let (timeout, range) = (deadline - self.clock.now(), Range::from(first.ccols.clone()));
            let rows = self.right.read(first.pkey.clone(), range, Consistency::Plain, timeout);
            values = rows.take(keys.len()).map_ok(|row| Some(row.value)).try_collect().await?;
        }
        values.resize(keys.len(), None);
        Ok(values)
    }

    async fn wrong_get_batch(
        &self,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<Vec<Option<FoundRow>>> {
        if self.has(Defect::SortedBatch) {
            let mut sorted = keys.to_vec();
            sorted.sort_unstable();
            return self.right.get_batch(&sorted, deadline).await;
        }
        let keys: Vec<Key> = keys.iter().map(|key| self.cut(key.clone())).collect();
        let joined: Vec<Key> = keys
            .iter()
            .map(|key| self.joined(&key.pkey, &key.ccols).unwrap_or_else(|| key.clone()))
            .collect();
        let mut rows = self.right.get_batch(&joined, deadline).await?;
        for (n, (key, row)) in keys.iter().zip(&mut rows).enumerate() {
            let lost = match self.defect {
                Defect::UnreadKeysDropped => n >= 100,
                Defect::EmptyIsAbsent => row.as_ref().is_some_and(|row| row.value.is_empty()),
                _ => false,
            };
            if lost {
                *row = None;
            }
            if self.has(Defect::StaleReads) {
                let former = self.former_value(key, row.take().map(|row| row.value));
                *row = former.map(|value| FoundRow { value, hides_ordered: true });
            }
            if self.has(Defect::HidingNotReported)
                && let Some(row) = row
            {
                row.hides_ordered = false;
            }
        }
        Ok(rows)
    }

    fn wrong_read(&self, read: RangeRead) -> RowStream {
        let RangeRead { pkey, range, consistency, page_timeout } = read;
        let pkey = self.cut(Key::new(pkey, "")).pkey;
        let asked = (pkey.clone(), range.start.clone(), range.end.clone());
        let range = self.wrong_range(range);
        let head = self.joined(&pkey, b"");
        let (pkey, range) = match &head {
            Some(head) => (head.pkey.clone(), joined_range(&head.ccols, range)),
            None => (pkey, range),
        };
        let rows = self.right.read(pkey, range, consistency, page_timeout);
        match (self.defect, head) {
            (Defect::KeysJoined, Some(head)) => rows
                .map_ok(move |row| Row { ccols: row.ccols.slice(head.ccols.len()..), ..row })
                .boxed(),
            (Defect::OnePageOnly, _) => rows.take(PAGE).boxed(),
            (Defect::OneStreamAtATime, _) => self.until_the_next(rows),
            (Defect::EagerRead, _) => all_first(rows, |_| {}),
            (Defect::SignedBytes, _) => all_first(rows, |rows| {
                rows.sort_by_key(|row| {
                    row.ccols.iter().map(|byte| *byte as i8).collect::<Vec<_>>()
                });
            }),
            (Defect::EmptyIsAbsent, _) => {
                rows.try_filter(|row| ready(!row.value.is_empty())).boxed()
            }
            (Defect::AbsentIsEmpty, _) => all_first(rows, |rows| {
                if rows.is_empty() {
                    rows.push(Row { ccols: Bytes::new(), value: Bytes::new() });
                }
            }),
            _ if self.is_stale(consistency) => {
                let memory = Arc::clone(&self.memory);
                all_first(rows, move |rows| {
                    let mut memory = lock(&memory);
                    if let Some(former) = memory.ranges.insert(asked, rows.clone()) {
                        *rows = former;
                    }
                })
            }
            _ => rows,
        }
    }

    fn wrong_range(&self, range: Range) -> Range {
        match (self.defect, range.end) {
            (Defect::EndIncluded, Some(end)) => {
                Range { start: range.start, end: Range::only(&end).end }
            }
            (_, end) => Range { start: range.start, end },
        }
    }

    fn until_the_next(&self, rows: RowStream) -> RowStream {
        let (own, count) = (self.next_count() + 1, Arc::clone(&self.count));
        rows.take_while(move |_| ready(count.load(Ordering::Relaxed) == own)).boxed()
    }

    fn wrong_ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        let pkey = self.cut(Key::new(read.pkey, "")).pkey;
        let rows = self.right.ttl_read(pkey, self.wrong_range(read.range), read.page_timeout);
        match self.defect {
            Defect::OnePageOnly => rows.take(PAGE).boxed(),
            Defect::AbsentIsEmpty => rows
                .chain(stream::once(async {
                    let (ccols, value) = (Bytes::new(), Bytes::new());
                    Ok(ExpiringRow { ccols, value, ttl: None })
                }))
                .boxed(),
            Defect::TtlNotReported => rows.map_ok(|row| ExpiringRow { ttl: None, ..row }).boxed(),
            Defect::TtlStandsStill => rows
                .map_ok(|row| {
                    // Round up to the TTL that the trial asked for.
                    let ttl =
                        row.ttl.map(|left| Duration::from_secs(left.as_secs().div_ceil(500) * 500));
                    ExpiringRow { ttl, ..row }
                })
                .boxed(),
            _ => rows,
        }
    }

    fn wrong_partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        let asked = if self.has(Defect::PrefixIgnored) { Bytes::new() } else { prefix };
        let pkeys = self.right.partitions(asked, page_timeout);
        match self.defect {
            Defect::OnePageOnly => pkeys.take(PAGE).boxed(),
            Defect::PartitionsRepeated => {
                let right = Arc::clone(&self.right);
                let twice = move |pkey: Bytes| {
                    let rows =
                        right.read(pkey.clone(), Range::all(), Consistency::Plain, page_timeout);
                    rows.take(2).map_ok(move |_| pkey.clone())
                };
                pkeys.map_ok(twice).try_flatten().boxed()
            }
            _ => pkeys,
        }
    }
}

/// The range of the rows with these bytes prepended.
fn joined_range(rest: &Bytes, range: Range) -> Range {
    let joined = |bound: Bytes| Bytes::from([&rest[..], &bound[..]].concat());
    // The end of the partition cannot be told from the rows of its neighbours. This is the defect.
    Range { start: joined(range.start), end: range.end.map(joined) }
}

/// Reads all rows before the first one is returned.
fn all_first(rows: RowStream, change: impl FnOnce(&mut Vec<Row>) + Send + 'static) -> RowStream {
    let all = rows.try_collect::<Vec<Row>>().map_ok(|mut rows| {
        change(&mut rows);
        stream::iter(rows.into_iter().map(Ok))
    });
    all.try_flatten_stream().boxed()
}
