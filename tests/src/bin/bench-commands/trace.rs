//! The writes of commands: recorded while commands run, and done again without commands.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::future::join_all;
use istorage::{AtomicBatch, Conditional, OrderedPut, Outcome, Result, SharedStorage};
use vvm_tests::{
    bench::BenchError,
    storage_wrapper::{StorageWrapper, WrappedStorage},
};

/// A write.
#[derive(Clone, Debug)]
enum Call {
    If(Bytes, Vec<Conditional>),
    Atomic(AtomicBatch),
    Ordered(Vec<OrderedPut>),
}

/// Records all writes.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: SharedStorage,
    calls: Mutex<Vec<Call>>,
}

impl Recorder {
    pub(crate) fn of(inner: SharedStorage) -> Arc<WrappedStorage<Recorder>> {
        WrappedStorage::new(Recorder { inner, calls: Mutex::default() })
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    pub(crate) fn take(&self, partitions: u64) -> Trace {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        Trace::of(calls, partitions)
    }
}

/// The writes of a group: the writes to the PLog one after another, then the rest side by side.
#[derive(Clone, Debug, Default)]
struct Group {
    plog: Vec<Call>,
    rest: Vec<Call>,
    events: usize,
}

/// All groups, by partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(BTreeMap<u64, Vec<Group>>);

const PLOG: &[u8] = &20_u16.to_be_bytes();

/// The partition of a row, and whether the row is in the PLog.
fn place(pkey: &[u8], partitions: u64) -> (u64, bool) {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    if pkey.starts_with(PLOG) {
        (number(&pkey[2..4]), true)
    } else {
        (number(&pkey[2..10]) % partitions, false)
    }
}

impl Call {
    fn keys(&self) -> Vec<&Bytes> {
        match self {
            Call::If(pkey, ops) => ops.iter().map(|_| pkey).collect(),
            Call::Atomic(batch) => {
                let ordered = batch.ordered.iter().map(|put| &put.key.pkey);
                batch.conditionals.iter().map(|(pkey, _)| pkey).chain(ordered).collect()
            }
            Call::Ordered(rows) => rows.iter().map(|put| &put.key.pkey).collect(),
        }
    }

    /// Whether the call carries conditions, which cost one round.
    fn is_conditional(&self) -> bool {
        match self {
            Call::If(..) => true,
            Call::Atomic(batch) => !batch.conditionals.is_empty(),
            Call::Ordered(_) => false,
        }
    }

    async fn run(self, storage: &SharedStorage, deadline: Instant) -> Result<()> {
        let outcome = match self {
            Call::If(pkey, ops) => storage.write_if(pkey, ops, deadline).await?,
            Call::Atomic(batch) => storage.write_atomic(batch, deadline).await?,
            Call::Ordered(rows) => return storage.put_ordered(rows, deadline).await,
        };
        match outcome {
            Outcome::Applied => Ok(()),
            Outcome::NotApplied(conflicts) => {
                Err(istorage::Error::corrupt(format!("the keyspace is not new: {conflicts:?}")))
            }
        }
    }
}

impl Trace {
    fn of(calls: Vec<Call>, partitions: u64) -> Trace {
        let mut trace = Trace::default();
        for call in calls {
            let keys = call.keys();
            let Some(first) = keys.first() else { continue };
            let (partition, _) = place(first, partitions);
            let events = keys.iter().filter(|key| place(key, partitions).1).count();
            let groups = trace.0.entry(partition).or_default();
            if groups.last().is_none_or(|group| events > 0 && !group.rest.is_empty())
                || matches!(call, Call::Atomic(_))
            {
                groups.push(Group::default());
            }
            if let Some(group) = groups.last_mut() {
                group.events += events;
                if events > 0 { &mut group.plog } else { &mut group.rest }.push(call);
            }
        }
        trace
    }

    /// The number of events of each group, ascending.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.0.values().flatten().map(|group| group.events).collect();
        sizes.sort_unstable();
        sizes
    }

    pub(crate) fn events(&self) -> usize {
        self.sizes().iter().sum()
    }

    /// The number of conditional rounds of a command, on average.
    pub(crate) fn rounds(&self) -> f64 {
        let calls =
            self.0.values().flatten().flat_map(|group| group.plog.iter().chain(&group.rest));
        let rounds = calls.filter(|call| call.is_conditional()).count();
        rounds as f64 / self.events() as f64
    }

    /// Does all writes again in a new keyspace, partitions side by side or one after another, and
    /// returns the time that this took.
    pub(crate) async fn replay(
        &self,
        storage: &SharedStorage,
        clock: &Clock,
        side_by_side: bool,
    ) -> std::result::Result<Duration, BenchError> {
        let partitions = Trace::clone(self).0.into_values();
        let start = clock.now();
        let mut running = tokio::task::JoinSet::new();
        for groups in partitions {
            let (storage, clock) = (SharedStorage::clone(storage), clock.clone());
            let partition = async move {
                for group in groups {
                    let deadline = clock.now() + Duration::from_secs(10);
                    for call in group.plog {
                        call.run(&storage, deadline).await?;
                    }
                    let rest = group.rest.into_iter().map(|call| call.run(&storage, deadline));
                    join_all(rest).await.into_iter().collect::<Result<()>>()?;
                }
                Ok::<_, istorage::Error>(())
            };
            if side_by_side {
                running.spawn(partition);
            } else {
                partition.await?;
            }
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(clock.now() - start)
    }
}

#[async_trait]
impl StorageWrapper for Recorder {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.note(Call::Ordered(rows.clone()));
        self.inner.put_ordered(rows, deadline).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.note(Call::If(pkey.clone(), ops.clone()));
        self.inner.write_if(pkey, ops, deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.note(Call::Atomic(batch.clone()));
        self.inner.write_atomic(batch, deadline).await
    }
}
