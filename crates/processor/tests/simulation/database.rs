//! A database in memory as its nodes see it: calls come late, fail, or land when no node expects
//! them any more.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use clock::{Clock, Instant};
use istorage::{
    FaultRates, Faulty, Guarded, KeyspaceName, Result, SharedStorage, StorageDriver, mem::MemDriver,
};
use shop::WriteSteps;

use crate::{
    call_turns::CallTurns,
    defects::{Defect, DefectiveStorage},
    gated_storage::{GatedStorage, Side},
};

/// The database, and the calls that are on their way to it.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) mem: MemDriver,
    pub(crate) turns: Arc<CallTurns>,
    clock: Clock,
    seed: u64,
    rates: FaultRates,
    /// The steps in which groups are written; `None` if all rows can be written atomically.
    narrow: Option<WriteSteps>,
    defect: Option<Defect>,
    keyspaces: Mutex<BTreeMap<KeyspaceName, Arc<Faulty>>>,
}

impl Database {
    pub(crate) fn new(
        clock: Clock,
        seed: u64,
        rates: FaultRates,
        narrow: Option<WriteSteps>,
        defect: Option<Defect>,
    ) -> Arc<Database> {
        let mem = MemDriver::new(clock.clone());
        let turns = CallTurns::new(clock.clone(), seed);
        let keyspaces = Mutex::default();
        Arc::new(Database { mem, turns, clock, seed, rates, narrow, defect, keyspaces })
    }

    /// The faults between the nodes and a keyspace. Calls that were sent outlive the node that sent
    /// them.
    async fn on_its_way(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<Arc<Faulty>>> {
        let lock = || self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(faulty) = lock().get(keyspace) {
            return Ok(Some(Arc::clone(faulty)));
        }
        let Some(mut inner) = self.mem.open(keyspace, deadline).await? else { return Ok(None) };
        if let Some(defect) = self.defect {
            inner = DefectiveStorage::of(inner, defect);
        }
        let turns = Arc::clone(&self.turns);
        let inner = Arc::new(GatedStorage { inner, turns, side: Side::Database });
        let mut keyspaces = lock();
        let seed = self.seed.wrapping_add(keyspaces.len() as u64);
        let faulty = Arc::new(Faulty::seeded(inner, self.clock.clone(), seed, self.rates));
        keyspaces.insert(keyspace.clone(), Arc::clone(&faulty));
        Ok(Some(faulty))
    }

    /// Lets all calls that are on their way arrive.
    pub(crate) async fn land_late_writes(&self) -> usize {
        let lock = || self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut landed = 0;
        for faulty in lock().values() {
            landed += faulty.land_late_writes().await.len();
        }
        landed
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
        self.database.mem.create(keyspace, deadline).await
    }

    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>> {
        let database = &self.database;
        let (Some(around), Some(inner)) = (
            database.mem.open(keyspace, deadline).await?,
            database.on_its_way(keyspace, deadline).await?,
        ) else {
            return Ok(None);
        };
        let is_at_work = Arc::clone(&self.is_at_work);
        let side = Side::Node { node: self.node, is_at_work, around };
        let gate = Arc::new(GatedStorage { inner, turns: Arc::clone(&database.turns), side });
        // No call of a node outlives its deadline, also if no answer comes.
        let guarded = Arc::new(Guarded::new(gate, database.clock.clone()));
        Ok(Some(match database.narrow {
            Some(steps) => steps.of(guarded),
            None => guarded,
        }))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()> {
        self.database.mem.drop_keyspace(keyspace, deadline).await
    }

    async fn close(&self) {
        self.database.mem.close().await;
    }
}
