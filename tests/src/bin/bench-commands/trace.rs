//! The writes of commands: recorded while commands run, and done again without commands.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::future::join_all;
use istorage::{Call, CallAnswer, Outcome, Result, SharedStorage, StorageWrapper, Write};
use vvm_tests::bench::BenchError;

/// Records all writes.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: SharedStorage,
    writes: Mutex<Vec<Write>>,
}

impl Recorder {
    pub(crate) fn of(inner: SharedStorage) -> Arc<Recorder> {
        Arc::new(Recorder { inner, writes: Mutex::default() })
    }

    pub(crate) fn take(&self, partitions: u64) -> Trace {
        let writes =
            std::mem::take(&mut *self.writes.lock().unwrap_or_else(PoisonError::into_inner));
        Trace::of(writes, partitions)
    }
}

/// The writes of a group: the writes to the PLog one after another, then the rest side by side.
#[derive(Clone, Debug, Default)]
struct Group {
    plog: Vec<Write>,
    rest: Vec<Write>,
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

/// The partition keys of the rows of a write, one for each row.
fn keys(write: &Write) -> Vec<&Bytes> {
    match write {
        Write::PutBatch(rows) => rows.iter().map(|put| &put.key.pkey).collect(),
        Write::PutOrdered(rows) => rows.iter().map(|put| &put.key.pkey).collect(),
        Write::If(pkey, ops) => ops.iter().map(|_| pkey).collect(),
        Write::Atomic(batch) => {
            let ordered = batch.ordered.iter().map(|put| &put.key.pkey);
            batch.conditionals.iter().map(|(pkey, _)| pkey).chain(ordered).collect()
        }
    }
}

/// Whether a write carries conditions, which cost one round.
fn is_conditional(write: &Write) -> bool {
    match write {
        Write::If(..) => true,
        Write::Atomic(batch) => !batch.conditionals.is_empty(),
        Write::PutBatch(_) | Write::PutOrdered(_) => false,
    }
}

/// Does a write again.
async fn run(write: Write, storage: &SharedStorage, deadline: Instant) -> Result<()> {
    match write.send(storage, deadline).await? {
        Outcome::Applied => Ok(()),
        Outcome::NotApplied(conflicts) => {
            Err(istorage::Error::corrupt(format!("the keyspace is not new: {conflicts:?}")))
        }
    }
}

impl Trace {
    fn of(writes: Vec<Write>, partitions: u64) -> Trace {
        let mut trace = Trace::default();
        for write in writes {
            let keys = keys(&write);
            let Some(first) = keys.first() else { continue };
            let (partition, _) = place(first, partitions);
            let events = keys.iter().filter(|key| place(key, partitions).1).count();
            let groups = trace.0.entry(partition).or_default();
            if groups.last().is_none_or(|group| events > 0 && !group.rest.is_empty())
                || matches!(write, Write::Atomic(_))
            {
                groups.push(Group::default());
            }
            if let Some(group) = groups.last_mut() {
                group.events += events;
                if events > 0 { &mut group.plog } else { &mut group.rest }.push(write);
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
        let writes =
            self.0.values().flatten().flat_map(|group| group.plog.iter().chain(&group.rest));
        let rounds = writes.filter(|write| is_conditional(write)).count();
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
                    for write in group.plog {
                        run(write, &storage, deadline).await?;
                    }
                    let rest = group.rest.into_iter().map(|write| run(write, &storage, deadline));
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

impl StorageWrapper for Recorder {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if let Call::Write(write) = &call {
            self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write.clone());
        }
        call.send(&self.inner, deadline).await
    }
}
