//! A small model of a database with three replicas, as Cassandra has them: a write needs two
//! replicas, a read asks two of them, and the row with the highest time counts.
//!
//! Messages to single replicas are lost, or arrive at any later time. A message has rows of one
//! storage partition, and a replica takes all of them or none. An ordered write has a time below
//! all clocks. Conditional writes are ordered by consensus: one that reached too few replicas is
//! sent again by the next one of its storage partition, or by the next linearizable read.
//!
//! A plain read repairs the replicas that it asked before it answers. Neither a linearizable read
//! nor the read of a condition does so, as in version 2 of Cassandra's Paxos: they finish what
//! consensus left open, and return other rows as the replicas have them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, stream};
use istorage::{
    AppStorage, AtomicBatch, Capabilities, Conditional, Consistency, Error, ExpiringRow,
    ExpiringRowStream, FoundRow, Guarded, Key, KeyspaceName, OrderedPut, Outcome, PartitionStream,
    Put, Range, Result, Row, RowStream, ServerTime, SharedStorage, StorageDriver, check_conditions,
    mem,
};

use crate::call_turns::Dice;

const REPLICAS: usize = 3;
pub(crate) const QUORUM: usize = 2;

/// The time of an ordered write with an order of zero. All orders are below the times of clocks.
const BANDS: i64 = -(1 << 62);

/// A row as a replica has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    time: i64,
    /// `None` if the row was deleted.
    pub(crate) value: Option<Bytes>,
    expires: Option<Instant>,
}

/// Rows of one storage partition that a replica takes together.
type Message = Vec<(Key, Cell)>;

#[derive(Debug, Default)]
struct Cells {
    replicas: [BTreeMap<Key, Cell>; REPLICAS],
    /// Messages that arrive later.
    late: Vec<(usize, Message)>,
    /// Conditional writes that reached too few replicas.
    unfinished: Vec<(Bytes, Message)>,
    /// The time of the last plain or conditional write.
    last: i64,
}

/// A keyspace.
#[derive(Clone, Debug)]
struct Replicas {
    cells: Arc<Mutex<Cells>>,
    clock: Clock,
    dice: Dice,
    caller: Caller,
}

/// The caller of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Of this many messages to a replica, one is lost or late. `None` if all messages arrive.
    lost_one_in: Option<u64>,
    /// Whether a plain read repairs the replicas that it asked.
    repairs: bool,
    /// The number of ordered rows of one storage partition that arrive together.
    together: usize,
}

/// The replicas that a read asks, and whether it repairs them.
#[derive(Clone, Copy)]
struct Quorum {
    left_out: usize,
    repairs: bool,
}

impl Quorum {
    fn replicas(self) -> impl Iterator<Item = usize> + Clone {
        (0..REPLICAS).filter(move |replica| *replica != self.left_out)
    }
}

impl Replicas {
    /// The cells, after some of the late messages have arrived.
    fn cells(&self) -> MutexGuard<'_, Cells> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let late = cells.late.len() as u64;
        if late > 0 && self.dice.one_in(4) {
            let which = usize::try_from(self.dice.below(late)).unwrap();
            let (replica, message) = cells.late.swap_remove(which);
            cells.store_all(replica, &message);
        }
        cells
    }

    /// The replicas that a read asks.
    fn quorum(&self, consistency: Consistency) -> Quorum {
        let left_out = usize::try_from(self.dice.below(REPLICAS as u64)).unwrap();
        let repairs = self.caller.repairs && consistency == Consistency::Plain;
        Quorum { left_out, repairs }
    }

    /// Sends rows of one storage partition to all replicas. Returns whether a quorum has them.
    fn send(&self, cells: &mut Cells, message: &Message) -> bool {
        let mut reached = 0;
        for replica in 0..REPLICAS {
            match self.caller.lost_one_in.is_some_and(|times| self.dice.one_in(times)) {
                false => {
                    cells.store_all(replica, message);
                    reached += 1;
                }
                true if self.dice.one_in(2) => cells.late.push((replica, message.clone())),
                true => {}
            }
        }
        reached >= QUORUM
    }

    /// Reads a row from a quorum.
    fn read_cell(&self, cells: &mut Cells, key: &Key, asked: Quorum) -> Option<Cell> {
        let stored = asked.replicas().filter_map(|replica| cells.replicas[replica].get(key));
        let found = stored.max().cloned()?;
        if asked.repairs {
            asked.replicas().for_each(|replica| cells.store(replica, key, &found));
        }
        Some(found)
    }

    fn row(
        &self,
        cells: &mut Cells,
        key: &Key,
        asked: Quorum,
    ) -> Option<(FoundRow, Option<Instant>)> {
        let Cell { time, value, expires } = self.read_cell(cells, key, asked)?;
        let value = value.filter(|_| expires.is_none_or(|expires| self.clock.now() < expires))?;
        Some((FoundRow { value, hides_ordered: time >= 0 }, expires))
    }

    /// Sends conditional writes of a storage partition again that reached too few replicas.
    fn finish(&self, cells: &mut Cells, pkey: &Bytes) {
        let unfinished: Vec<_> = cells.unfinished.extract_if(.., |(of, _)| of == pkey).collect();
        for (_, message) in unfinished {
            let reached = self.quorum(Consistency::Linearizable);
            reached.replicas().for_each(|replica| cells.store_all(replica, &message));
        }
    }

    fn rows(&self, pkey: &Bytes, range: &Range, consistency: Consistency) -> Vec<ExpiringRow> {
        let mut cells = self.cells();
        if consistency == Consistency::Linearizable {
            self.finish(&mut cells, pkey);
        }
        let asked = self.quorum(consistency);
        let is_in = |key: &&Key| {
            key.pkey == *pkey
                && key.ccols >= range.start
                && range.end.as_ref().is_none_or(|end| key.ccols < *end)
        };
        let first = Key { pkey: pkey.clone(), ccols: range.start.clone() };
        let keys: BTreeSet<Key> = cells
            .replicas
            .iter()
            .flat_map(|replica| {
                let of_pkey = replica.range(&first..).map(|(key, _)| key);
                of_pkey.take_while(|key| key.pkey == *pkey).filter(is_in).cloned()
            })
            .collect();
        let now = self.clock.now();
        let row = |key: Key| {
            let (FoundRow { value, .. }, expires) = self.row(&mut cells, &key, asked)?;
            Some(ExpiringRow { ccols: key.ccols, value, ttl: expires.map(|at| at - now) })
        };
        keys.into_iter().filter_map(row).collect()
    }

    fn range(&self, pkey: Bytes, range: Range, of: Consistency) -> ExpiringRowStream {
        let replicas = self.clone();
        let rows = async move { stream::iter(replicas.rows(&pkey, &range, of)).map(Ok) };
        rows.flatten_stream().boxed()
    }

    fn answer(&self, is_written: bool) -> Result<()> {
        match is_written {
            true => Ok(()),
            false => Err(Error::outcome_unknown("too few replicas answered")),
        }
    }
}

impl Cells {
    fn store_all(&mut self, replica: usize, message: &Message) {
        message.iter().for_each(|(key, cell)| self.store(replica, key, cell));
    }

    fn store(&mut self, replica: usize, key: &Key, cell: &Cell) {
        let there = self.replicas[replica].entry(key.clone()).or_insert_with(|| cell.clone());
        if *there < *cell {
            *there = cell.clone();
        }
    }

    /// The time of a plain or conditional write.
    fn next_time(&mut self) -> i64 {
        self.last += 1;
        self.last
    }
}

#[async_trait]
impl AppStorage for Replicas {
    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic: None, ..mem::CAPABILITIES }
    }

    async fn get(&self, key: &Key, of: Consistency, _: Instant) -> Result<Option<Bytes>> {
        let mut cells = self.cells();
        if of == Consistency::Linearizable {
            self.finish(&mut cells, &key.pkey);
        }
        let asked = self.quorum(of);
        Ok(self.row(&mut cells, key, asked).map(|(row, _)| row.value))
    }

    async fn get_batch(&self, keys: &[Key], _: Instant) -> Result<Vec<Option<FoundRow>>> {
        let mut cells = self.cells();
        let row = |key| {
            let asked = self.quorum(Consistency::Plain);
            self.row(&mut cells, key, asked).map(|(row, _)| row)
        };
        Ok(keys.iter().map(row).collect())
    }

    fn read(&self, pkey: Bytes, range: Range, of: Consistency, _: Duration) -> RowStream {
        let rows = self.range(pkey, range, of);
        rows.map(|row| row.map(|ExpiringRow { ccols, value, .. }| Row { ccols, value })).boxed()
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, _: Duration) -> ExpiringRowStream {
        self.range(pkey, range, Consistency::Plain)
    }

    fn partitions(&self, prefix: Bytes, _: Duration) -> PartitionStream {
        let cells = self.cells();
        let keys = cells.replicas.iter().flat_map(|replica| replica.keys());
        let found: BTreeSet<Bytes> =
            keys.filter(|key| key.pkey.starts_with(&prefix)).map(|key| key.pkey.clone()).collect();
        stream::iter(found.into_iter().map(Ok)).boxed()
    }

    async fn put_batch(&self, rows: Vec<Put>, _: Instant) -> Result<()> {
        let mut cells = self.cells();
        let mut is_written = true;
        for Put { key, value } in rows {
            let cell = Cell { time: cells.next_time(), value: Some(value), expires: None };
            is_written &= self.send(&mut cells, &vec![(key, cell)]);
        }
        self.answer(is_written)
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, _: Instant) -> Result<()> {
        let mut cells = self.cells();
        let mut messages: Vec<Message> = Vec::new();
        for OrderedPut { key, value, order, ttl } in rows {
            let expires = ttl.map(|ttl| self.clock.now() + ttl);
            let cell = Cell { time: BANDS + order.rank(), value: Some(value), expires };
            match messages.last_mut() {
                Some(message)
                    if message[0].0.pkey == key.pkey && message.len() < self.caller.together =>
                {
                    message.push((key, cell));
                }
                _ => messages.push(vec![(key, cell)]),
            }
        }
        let is_written =
            messages.iter().fold(true, |all, message| self.send(&mut cells, message) & all);
        self.answer(is_written)
    }

    async fn write_if(&self, pkey: Bytes, ops: Vec<Conditional>, _: Instant) -> Result<Outcome> {
        let mut cells = self.cells();
        self.finish(&mut cells, &pkey);
        let key = |op: &Conditional| Key { pkey: pkey.clone(), ccols: op.ccols().clone() };
        let asked = self.quorum(Consistency::Linearizable);
        let outcome = check_conditions(&ops, |_, op| {
            Ok::<_, Error>(self.row(&mut cells, &key(op), asked).map(|(row, _)| row.value))
        })?;
        if !outcome.is_applied() {
            return Ok(outcome);
        }
        let time = cells.next_time();
        let row = |op: &Conditional| {
            let expires = op.ttl().map(|ttl| self.clock.now() + ttl);
            (key(op), Cell { time, value: op.written().cloned(), expires })
        };
        let message: Message = ops.iter().map(row).collect();
        let is_written = self.send(&mut cells, &message);
        if !is_written {
            cells.unfinished.push((pkey, message));
        }
        self.answer(is_written).map(|()| outcome)
    }

    async fn write_atomic(&self, _: AtomicBatch, _: Instant) -> Result<Outcome> {
        Err(Error::invalid("nothing is written atomically here"))
    }

    async fn server_time(&self, _: Instant) -> Result<Option<ServerTime>> {
        Ok(None)
    }

    async fn close(&self) {}
}

/// A database of three replicas. Clones share the database.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaDriver {
    keyspaces: Arc<Mutex<BTreeMap<KeyspaceName, Arc<Mutex<Cells>>>>>,
    clock: Clock,
    dice: Dice,
    caller: Caller,
}

impl ReplicaDriver {
    /// Makes a database, for callers that lose no message. `together` ordered rows of one storage
    /// partition arrive together.
    pub(crate) fn new(clock: Clock, seed: u64, repairs: bool, together: usize) -> ReplicaDriver {
        let keyspaces = Arc::default();
        let caller = Caller { lost_one_in: None, repairs, together };
        ReplicaDriver { keyspaces, clock, dice: Dice::of(seed), caller }
    }

    /// The same database, for callers that lose one of `lost_one_in` messages, or send it late.
    pub(crate) fn lossy(&self, lost_one_in: u64) -> ReplicaDriver {
        let caller = Caller { lost_one_in: Some(lost_one_in), ..self.caller };
        ReplicaDriver { caller, ..self.clone() }
    }

    /// The same database, for an observer: its reads repair nothing.
    pub(crate) fn observed(&self) -> ReplicaDriver {
        let caller = Caller { repairs: false, ..self.caller };
        ReplicaDriver { caller, ..self.clone() }
    }

    /// Returns a row as each replica has it. Only one keyspace may have the row.
    pub(crate) fn cells_of(&self, key: &Key) -> [Option<Cell>; REPLICAS] {
        let mut found = [const { None }; REPLICAS];
        for cells in self.keyspaces().values() {
            let cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
            for (found, replica) in found.iter_mut().zip(&cells.replicas) {
                *found = found.take().or_else(|| replica.get(key).cloned());
            }
        }
        found
    }

    /// Sets a row back to what a replica had before.
    pub(crate) fn set_cell(&self, key: &Key, replica: usize, cell: Option<Cell>) {
        for cells in self.keyspaces().values() {
            let mut cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(there) = cells.replicas[replica].get_mut(key) else { continue };
            match &cell {
                Some(cell) => *there = cell.clone(),
                None => drop(cells.replicas[replica].remove(key)),
            }
        }
    }

    fn keyspaces(&self) -> MutexGuard<'_, BTreeMap<KeyspaceName, Arc<Mutex<Cells>>>> {
        self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StorageDriver for ReplicaDriver {
    fn name(&self) -> &'static str {
        "replicas"
    }

    async fn create(&self, keyspace: &KeyspaceName, _: Instant) -> Result<()> {
        self.keyspaces().entry(keyspace.clone()).or_default();
        Ok(())
    }

    async fn open(&self, keyspace: &KeyspaceName, _: Instant) -> Result<Option<SharedStorage>> {
        let Some(cells) = self.keyspaces().get(keyspace).cloned() else { return Ok(None) };
        let (clock, dice) = (self.clock.clone(), self.dice.clone());
        let replicas = Replicas { cells, clock: clock.clone(), dice, caller: self.caller };
        Ok(Some(Arc::new(Guarded::new(Arc::new(replicas), clock))))
    }

    async fn drop_keyspace(&self, keyspace: &KeyspaceName, _: Instant) -> Result<()> {
        self.keyspaces().remove(keyspace);
        Ok(())
    }

    async fn close(&self) {}
}
