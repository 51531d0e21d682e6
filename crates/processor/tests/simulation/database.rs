//! A database in memory as its nodes see it: calls come late, fail, or land when no node expects
//! them any more.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clock::{Clock, Instant};
use eventlog::Epoch;
use istorage::{
    CallKind, Conditional, Consistency, Guarded, Key, KeyspaceName, Result, SharedStorage,
    StorageDriver, mem::MemDriver,
};
use shop::WriteSteps;
use tck::storage::{Fault, FaultRates, Faulty};

use crate::{
    call_turns::CallTurns,
    defects::{Defect, DefectiveStorage, OwnEventsOnly},
    gated_storage::{GatedStorage, Side},
    open_writes::OpenWrites,
    plan::Plan,
    replicas::ReplicaDriver,
};

/// A time longer than any history.
const NEVER: Duration = Duration::from_secs(1 << 30);

/// The number of times that an operator tries to write a row again.
const REPAIR_TRIES: usize = 10;

/// The database, and the calls on their way to it.
#[derive(Debug)]
pub(crate) struct Database {
    /// The database without faults.
    pub(crate) inner: Arc<dyn StorageDriver>,
    /// The database without faults, for checks: their reads change nothing.
    pub(crate) observed: Arc<dyn StorageDriver>,
    /// The database as it is behind the faults.
    behind_faults: Arc<dyn StorageDriver>,
    pub(crate) turns: Arc<CallTurns>,
    clock: Clock,
    seed: u64,
    rates: FaultRates,
    /// The steps of writing a group; `None` if all rows can be written atomically.
    narrow: Option<WriteSteps>,
    /// Of this many conditional writes, one is accepted and committed later, if at all.
    one_open_in: Option<u64>,
    defect: Option<Defect>,
    /// Whether the next conditional or atomic write lands only when all late writes land.
    next_is_late: Arc<AtomicBool>,
    keyspaces: Mutex<BTreeMap<KeyspaceName, Keyspace>>,
}

/// The calls on their way to a keyspace.
#[derive(Clone, Debug)]
struct Keyspace {
    faulty: Arc<Faulty>,
    /// The storage behind `faulty`. It holds back a write if the history asks for it.
    holding: Arc<Faulty>,
    open_writes: Arc<OpenWrites>,
}

impl Database {
    pub(crate) fn new(
        clock: Clock,
        seed: u64,
        plan: &Plan,
        defect: Option<Defect>,
    ) -> Arc<Database> {
        let Plan { rates, narrow, one_open_in, replicas_lose_one_in, .. } = *plan;
        let drivers: [Arc<dyn StorageDriver>; 3] = match replicas_lose_one_in {
            Some(times) => {
                let repairs = defect != Some(Defect::NoReadRepair);
                let together = narrow.map_or(1, WriteSteps::ordered_together);
                let replicas = ReplicaDriver::new(clock.clone(), seed, repairs, together);
                let (observed, lossy) = (replicas.observed(), replicas.lossy(times));
                [Arc::new(replicas), Arc::new(observed), Arc::new(lossy)]
            }
            None => {
                let mem = MemDriver::new(clock.clone());
                [Arc::new(mem.clone()), Arc::new(mem.clone()), Arc::new(mem)]
            }
        };
        let [inner, observed, behind_faults] = drivers;
        let turns = CallTurns::new(clock.clone(), seed);
        let (keyspaces, next_is_late) = Default::default();
        Arc::new(Database {
            inner,
            observed,
            behind_faults,
            turns,
            clock,
            seed,
            rates,
            narrow,
            one_open_in,
            defect,
            next_is_late,
            keyspaces,
        })
    }

    fn keyspaces(&self) -> MutexGuard<'_, BTreeMap<KeyspaceName, Keyspace>> {
        self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The faults between the nodes and a keyspace. Calls that were sent outlive the node that sent
    /// them.
    async fn on_its_way(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<Arc<Faulty>>> {
        if let Some(Keyspace { faulty, .. }) = self.keyspaces().get(keyspace) {
            return Ok(Some(Arc::clone(faulty)));
        }
        let Some(inner) = self.behind_faults.open(keyspace, deadline).await? else {
            return Ok(None);
        };
        let seed = self.seed.wrapping_add(self.keyspaces().len() as u64);
        let of_records = self.defect == Some(Defect::OlderWrittenConditionally);
        let open_writes = Arc::new(OpenWrites::of(inner, seed, self.one_open_in, of_records));
        let mut inner: SharedStorage = Arc::clone(&open_writes) as SharedStorage;
        if let Some(defect) = self.defect {
            inner = DefectiveStorage::of(inner, defect);
        }
        let turns = Arc::clone(&self.turns);
        let (side, late_write) = (Side::Database, Duration::ZERO);
        let inner = Arc::new(GatedStorage { inner, turns, side, late_write });
        let next_is_late = Arc::clone(&self.next_is_late);
        let script = move |kind| match kind {
            CallKind::WriteIf | CallKind::WriteAtomic
                if next_is_late.swap(false, Ordering::SeqCst) =>
            {
                Fault::AppliedLate(NEVER)
            }
            _ => Fault::None,
        };
        let holding = Arc::new(Faulty::scripted(inner, self.clock.clone(), script));
        let inner = Arc::clone(&holding) as SharedStorage;
        let faulty = Arc::new(Faulty::seeded(inner, self.clock.clone(), seed, self.rates));
        let opened = Keyspace { faulty: Arc::clone(&faulty), holding, open_writes };
        self.keyspaces().insert(keyspace.clone(), opened);
        Ok(Some(faulty))
    }

    /// The next conditional or atomic write gets no answer, and lands with the late writes.
    pub(crate) fn make_next_write_late(&self) {
        self.next_is_late.store(true, Ordering::SeqCst);
    }

    /// Whether no such write has come since then.
    pub(crate) fn awaits_late_write(&self) -> bool {
        self.next_is_late.load(Ordering::SeqCst)
    }

    /// Lets all calls that are on their way arrive.
    pub(crate) async fn land_late_writes(&self) -> usize {
        let keyspaces = self.keyspaces().clone();
        let mut landed = 0;
        for Keyspace { faulty, holding, open_writes } in keyspaces.values() {
            landed += faulty.land_late_writes().await.len();
            landed += holding.land_late_writes().await.len();
            landed += open_writes.settle_all().await;
        }
        landed
    }

    /// Writes the bytes of a row of the application again, under a condition, as an operator does.
    /// From then on the row hides ordered writes. Returns whether there was a row.
    ///
    /// The write is committed at once. An operator's write that is committed later may hide the row
    /// of an acknowledged command, like every row that another program writes later.
    pub(crate) async fn repair(&self, key: &Key) -> bool {
        let keyspaces = self.keyspaces().clone();
        let soon = Instant::FAR_FUTURE;
        for (name, Keyspace { open_writes, .. }) in keyspaces {
            open_writes.settle_partition(&key.pkey).await;
            let Some(storage) = self.inner.open(&name, soon).await.unwrap() else { continue };
            // The read and the condition may ask different replicas, and a put that reached one
            // replica is seen by one of them only. The plain read repairs the replicas that it
            // asks.
            for _ in 0..REPAIR_TRIES {
                let there = storage.get(key, Consistency::Plain, soon).await.unwrap();
                let Some(old) = there else { break };
                let (ccols, new) = (key.ccols.clone(), old.clone());
                let op = Conditional::Swap { ccols, old, new, ttl: None };
                if storage.write_if(key.pkey.clone(), vec![op], soon).await.unwrap().is_applied() {
                    return true;
                }
            }
        }
        false
    }
}

/// The database as one node sees it.
#[derive(Clone, Debug)]
pub(crate) struct NodeDriver {
    pub(crate) database: Arc<Database>,
    pub(crate) node: u64,
    is_at_work: Arc<AtomicBool>,
}

impl NodeDriver {
    pub(crate) fn new(database: &Arc<Database>, node: u64) -> NodeDriver {
        let is_at_work = Arc::new(AtomicBool::new(false));
        NodeDriver { database: Arc::clone(database), node, is_at_work }
    }

    /// From now on the calls of the node belong to the history, with turns and faults.
    pub(crate) fn works(&self) {
        self.is_at_work.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl StorageDriver for NodeDriver {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.database.inner.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let database = &self.database;
        let (Some(around), Some(inner)) = (
            database.inner.open(keyspace, deadline).await?,
            database.on_its_way(keyspace, deadline).await?,
        ) else {
            return Ok(None);
        };
        let is_at_work = Arc::clone(&self.is_at_work);
        let side = Side::Node { node: self.node, is_at_work, around };
        // The calls of a killed node may land after any time.
        let late_write = match database.defect {
            Some(Defect::NotFenced) => Duration::ZERO,
            _ => Duration::from_secs(1),
        };
        let turns = Arc::clone(&database.turns);
        let gate = Arc::new(GatedStorage { inner, turns, side, late_write });
        // No call of a node outlives its deadline, even if no answer comes.
        let mut guarded: SharedStorage = Arc::new(Guarded::new(gate, database.clock.clone()));
        if database.defect == Some(Defect::AdoptedNotWritten) {
            guarded = Arc::new(OwnEventsOnly { inner: guarded, epoch: Epoch(self.node) });
        }
        Ok(Some(match database.narrow {
            Some(steps) => steps.of(guarded),
            None => guarded,
        }))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.database.inner.drop_keyspace(keyspace, deadline).await
    }

    async fn close(&self) {
        self.database.inner.close().await;
    }
}
