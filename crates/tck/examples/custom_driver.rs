//! A custom storage driver, a sorted map behind a mutex, proved by all trials of the contract.
//!
//! Run it with `cargo run -p tck --example custom_driver`.
//!
//! [`Guarded`] checks arguments, deadlines and calls after close, for the calls of a storage.
//! [`check_conditions`] judges conditional writes. The driver has the rest: rows, their order and
//! their expiry. An expired row stays in memory until it is written again. A driver for production
//! removes such rows.
//!
//! The driver itself has no guard. A driver for a database keeps the deadlines of `create`, `open`
//! and `drop_keyspace` itself. Here these calls never wait, so their deadlines are not used.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use istorage::{
    AppStorage, AtomicBatch, BatchLimits, Capabilities, Conditional, Consistency, Error,
    ExpiringRow, ExpiringRowStream, FoundRow, Guarded, Key, KeyspaceName, Order, OrderedPut,
    Outcome, PartitionStream, Put, Range, Result, Row, RowLimits, RowStream, ServerTime,
    SharedStorage, StorageDriver, async_trait,
    bytes::Bytes,
    check_conditions,
    clock::{Clock, Instant},
    futures::{StreamExt, TryStreamExt, stream},
};
use tck::{
    storage::{Scale, ScratchKeyspace, Subject, trials},
    trial::{Conclusion, run_all},
};

/// The rows of a keyspace, sorted by partition key and clustering columns. `None` if the keyspace
/// was dropped or the driver is closed.
type Rows = Option<BTreeMap<Key, MapRow>>;

#[derive(Debug)]
struct MapRow {
    value: Bytes,
    /// The order of an ordered row; `None` for any other row, which lies above all orders.
    order: Option<Order>,
    expires: Option<Instant>,
}

#[derive(Clone, Debug)]
struct MapStorage {
    rows: Arc<Mutex<Rows>>,
    clock: Clock,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MapStorage {
    /// Runs one atomic step on the rows, at one moment.
    fn step<T>(&self, step: impl FnOnce(&mut BTreeMap<Key, MapRow>, Instant) -> T) -> Result<T> {
        let mut rows = lock(&self.rows);
        Ok(step(rows.as_mut().ok_or_else(Error::closed)?, self.clock.now()))
    }
}

impl MapRow {
    fn is_live(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

fn value(rows: &BTreeMap<Key, MapRow>, key: &Key, now: Instant) -> Option<Bytes> {
    rows.get(key).filter(|row| row.is_live(now)).map(|row| row.value.clone())
}

/// Returns the first live row of a range.
fn first(
    rows: &BTreeMap<Key, MapRow>,
    pkey: &Bytes,
    range: &Range,
    now: Instant,
) -> Option<ExpiringRow> {
    let is_inside =
        |key: &Key| key.pkey == pkey && range.end.as_ref().is_none_or(|end| key.ccols < end);
    rows.range(Key::new(pkey.clone(), range.start.clone())..)
        .take_while(|(key, _)| is_inside(key))
        .find(|(_, row)| row.is_live(now))
        .map(|(key, row)| {
            let ttl = row.expires.map(|expires| expires - now);
            ExpiringRow { ccols: key.ccols.clone(), value: row.value.clone(), ttl }
        })
}

/// Does all writes of a batch, or none of them. Each kind of write call ends here.
fn write(rows: &mut BTreeMap<Key, MapRow>, batch: AtomicBatch, now: Instant) -> Outcome {
    let (conditionals, ordered) = (batch.conditionals, batch.ordered);
    let current = |index: usize, op: &Conditional| {
        let (pkey, _) = &conditionals[index];
        Ok(value(rows, &Key::new(pkey.clone(), op.ccols().clone()), now))
    };
    let ops = conditionals.iter().map(|(_, op)| op);
    let Ok(outcome) = check_conditions::<Infallible>(ops, current);
    if !outcome.is_applied() {
        return outcome;
    }
    let expires = |ttl: Option<Duration>| ttl.map(|ttl| now + ttl);
    for (pkey, op) in conditionals {
        let key = Key::new(pkey, op.ccols().clone());
        match op.written() {
            Some(value) => {
                let (value, expires) = (value.clone(), expires(op.ttl()));
                rows.insert(key, MapRow { value, order: None, expires });
            }
            None => drop(rows.remove(&key)),
        }
    }
    for OrderedPut { key, value, order, ttl } in ordered {
        let replaces = |row: &MapRow| row.order.is_some_and(|there| there <= order);
        if rows.get(&key).is_none_or(replaces) {
            rows.insert(key, MapRow { value, order: Some(order), expires: expires(ttl) });
        }
    }
    for Put { key, value } in batch.puts {
        rows.insert(key, MapRow { value, order: None, expires: None });
    }
    Outcome::Applied
}

const BATCH: BatchLimits = BatchLimits { rows: 10_000, bytes: 64 << 20 };

#[async_trait]
impl AppStorage for MapStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            row: RowLimits { pkey: 1_024, ccols: 1_024, value: 1 << 20 },
            conditional: BATCH,
            atomic: Some(BATCH),
            ordered: Some(BATCH),
            expiry_resolution: Duration::from_nanos(1),
            expiry_is_watched: false,
            late_write: Duration::ZERO,
        }
    }

    async fn get(&self, key: &Key, _: Consistency, _: Instant) -> Result<Option<Bytes>> {
        self.step(|rows, now| value(rows, key, now))
    }

    async fn get_batch(&self, keys: &[Key], _: Instant) -> Result<Vec<Option<FoundRow>>> {
        let found = |rows: &BTreeMap<Key, MapRow>, key, now| {
            let row = rows.get(key).filter(|row| row.is_live(now))?;
            Some(FoundRow { value: row.value.clone(), hides_ordered: row.order.is_none() })
        };
        self.step(|rows, now| keys.iter().map(|key| found(rows, key, now)).collect())
    }

    fn read(&self, pkey: Bytes, range: Range, _: Consistency, page: Duration) -> RowStream {
        let rows = self.ttl_read(pkey, range, page);
        rows.map_ok(|ExpiringRow { ccols, value, .. }| Row { ccols, value }).boxed()
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, _: Duration) -> ExpiringRowStream {
        let storage = self.clone();
        // Each page is one row.
        stream::try_unfold(range, move |range| {
            let page = storage.step(|rows, now| first(rows, &pkey, &range, now));
            let next = page.map(|row| row.map(|row| (row.clone(), range.behind(&row.ccols))));
            async move { next }
        })
        .boxed()
    }

    fn partitions(&self, prefix: Bytes, _: Duration) -> PartitionStream {
        let storage = self.clone();
        // Each page is one key.
        stream::try_unfold(prefix.clone(), move |from| {
            let page = storage.step(|rows, _| {
                let next = rows.range(Key::new(from, "")..).next();
                let next = next.filter(|(key, _)| key.pkey.starts_with(&prefix));
                next.map(|(key, _)| key.pkey.clone())
            });
            // No key lies between a key and the same key with a zero appended.
            let behind = |pkey: &Bytes| Bytes::from([&pkey[..], &[0]].concat());
            let next = page.map(|pkey| pkey.map(|pkey| (pkey.clone(), behind(&pkey))));
            async move { next }
        })
        .boxed()
    }

    async fn put_batch(&self, puts: Vec<Put>, deadline: Instant) -> Result<()> {
        self.write_atomic(AtomicBatch { puts, ..AtomicBatch::default() }, deadline).await.map(drop)
    }

    async fn put_ordered(&self, ordered: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        let batch = AtomicBatch { ordered, ..AtomicBatch::default() };
        self.write_atomic(batch, deadline).await.map(drop)
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let conditionals = ops.into_iter().map(|op| (pkey.clone(), op)).collect();
        self.write_atomic(AtomicBatch { conditionals, ..AtomicBatch::default() }, deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, _: Instant) -> Result<Outcome> {
        self.step(|rows, now| write(rows, batch, now))
    }

    async fn server_time(&self, _: Instant) -> Result<Option<ServerTime>> {
        self.step(|_, _| None)
    }

    async fn close(&self) {}
}

/// A database of such keyspaces. Clones share it, as the nodes of a cluster share a server.
#[derive(Clone, Debug)]
struct MapDriver {
    keyspaces: Arc<Mutex<Option<BTreeMap<KeyspaceName, MapStorage>>>>,
    clock: Clock,
}

impl MapDriver {
    fn new(clock: Clock) -> MapDriver {
        MapDriver { keyspaces: Arc::new(Mutex::new(Some(BTreeMap::new()))), clock }
    }

    fn step<T>(
        &self,
        step: impl FnOnce(&mut BTreeMap<KeyspaceName, MapStorage>) -> T,
    ) -> Result<T> {
        lock(&self.keyspaces).as_mut().map(step).ok_or_else(Error::closed)
    }
}

#[async_trait]
impl StorageDriver for MapDriver {
    fn name(&self) -> &'static str {
        "map"
    }

    async fn create(&self, name: &KeyspaceName, _: Instant) -> Result<()> {
        let rows = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let storage = MapStorage { rows, clock: self.clock.clone() };
        self.step(|keyspaces| {
            keyspaces.entry(name.clone()).or_insert(storage);
        })
    }

    async fn open(&self, name: &KeyspaceName, _: Instant) -> Result<Option<SharedStorage>> {
        let storage = self.step(|keyspaces| keyspaces.get(name).cloned())?;
        let guard = |storage| Guarded::new(Arc::new(storage), self.clock.clone());
        Ok(storage.map(|storage| Arc::new(guard(storage)) as SharedStorage))
    }

    async fn drop_keyspace(&self, name: &KeyspaceName, _: Instant) -> Result<()> {
        let dropped = self.step(|keyspaces| keyspaces.remove(name))?;
        dropped.iter().for_each(|storage| *lock(&storage.rows) = None);
        Ok(())
    }

    async fn close(&self) {
        let keyspaces = lock(&self.keyspaces).take().unwrap_or_default();
        keyspaces.values().for_each(|storage| *lock(&storage.rows) = None);
    }
}

/// How the trials reach the database.
struct MapSubject(MapDriver);

#[async_trait]
impl Subject for MapSubject {
    fn clock(&self) -> Clock {
        Clock::system()
    }

    fn scale(&self) -> Scale {
        Scale::Embedded
    }

    async fn node(&self, _wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(self.0.clone()))
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(MapDriver::new(self.clock())))
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let subject = MapSubject(MapDriver::new(Clock::system()));
    let scratch = ScratchKeyspace::create(Arc::new(subject)).await?;
    let report = run_all(&scratch, trials(), |_progress| {}).await;
    scratch.remove().await?;
    for trial in &report.trials {
        match &trial.conclusion {
            Conclusion::Passed => {}
            Conclusion::Ignored(why) => println!("{} was ignored: {why}", trial.name),
            Conclusion::Failed(why) => println!("{} failed: {why}", trial.name),
        }
    }
    let (passed, ignored, failed) = (report.passed(), report.ignored(), report.failed());
    println!("{passed} trials passed, {ignored} were ignored, {failed} failed");
    if failed == 0 { Ok(()) } else { Err("the driver breaks the contract".into()) }
}
