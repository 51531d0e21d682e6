//! The rules for the arguments of calls, in one place for all drivers.

use std::time::Duration;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet, hash_map::Entry};

use crate::{
    AtomicBatch, BatchLimits, Call, Capabilities, Conditional, Conflict, Error, Key, OrderedPut,
    Outcome, Put, Result, Write,
};

/// The longest TTL that a caller may ask for. Cassandra's own limit is twenty years.
pub const TTL_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The size of a write of any kind, for comparing with the limits.
struct Size {
    rows: usize,
    bytes: usize,
}

impl Size {
    const ZERO: Size = Size { rows: 0, bytes: 0 };

    fn add(&mut self, pkey: &[u8], ccols: &[u8], values: usize) {
        self.rows += 1;
        self.bytes += pkey.len() + ccols.len() + values;
    }

    fn check_limits(&self, limits: BatchLimits, write: &str) -> Result<()> {
        if self.rows > limits.rows || self.bytes > limits.bytes {
            return Err(Error::invalid(format!(
                "{write} has {} rows and {} bytes, but this storage takes at most {} rows and {} bytes at once",
                self.rows, self.bytes, limits.rows, limits.bytes
            )));
        }
        Ok(())
    }
}

/// Checks the arguments of a call. The returned call writes each row once.
pub(crate) fn call<'a>(capabilities: &Capabilities, call: Call<'a>) -> Result<Call<'a>> {
    match call {
        Call::Get(at, _) => key(capabilities, at).map(|()| call),
        Call::GetBatch(keys) | Call::GetValues(keys) => {
            keys.iter().try_for_each(|at| key(capabilities, at)).map(|()| call)
        }
        Call::Write(rows) => write(capabilities, rows).map(Call::Write),
        Call::ServerTime => Ok(call),
    }
}

fn write(capabilities: &Capabilities, write: Write) -> Result<Write> {
    match write {
        Write::PutBatch(rows) => puts(capabilities, rows).map(Write::PutBatch),
        Write::PutOrdered(rows) => ordered(capabilities, rows).map(Write::PutOrdered),
        Write::If(pkey, ops) => write_if(capabilities, &pkey, &ops).map(|()| Write::If(pkey, ops)),
        Write::Atomic(batch) => write_atomic(capabilities, batch).map(Write::Atomic),
    }
}

pub(crate) fn pkey(capabilities: &Capabilities, pkey: &[u8]) -> Result<()> {
    if pkey.is_empty() {
        return Err(Error::invalid("the partition key is empty"));
    }
    check_len("partition key", pkey.len(), capabilities.row.pkey)
}

fn key(capabilities: &Capabilities, key: &Key) -> Result<()> {
    pkey(capabilities, &key.pkey)?;
    check_len("clustering columns", key.ccols.len(), capabilities.row.ccols)
}

fn check_len(part: &str, len: usize, limit: usize) -> Result<()> {
    if len > limit {
        return Err(Error::invalid(format!(
            "the length of the {part} is {len} bytes, but this storage takes at most {limit}"
        )));
    }
    Ok(())
}

fn row(capabilities: &Capabilities, at: &Key, value: &Bytes) -> Result<()> {
    key(capabilities, at)?;
    check_len("value", value.len(), capabilities.row.value)
}

/// Checks the rows. If a row is written several times, keeps the last write.
fn puts(capabilities: &Capabilities, rows: Vec<Put>) -> Result<Vec<Put>> {
    for put in &rows {
        row(capabilities, &put.key, &put.value)?;
    }
    Ok(distinct_rows(rows, |put| &put.key, |_, later| later))
}

/// Checks the rows. If a row is written several times, keeps the write with the highest order.
fn ordered(capabilities: &Capabilities, rows: Vec<OrderedPut>) -> Result<Vec<OrderedPut>> {
    for put in &rows {
        row(capabilities, &put.key, &put.value)?;
        check_ttl(put.ttl)?;
    }
    Ok(distinct_rows(
        rows,
        |put| &put.key,
        |one, other| if other.order > one.order { other } else { one },
    ))
}

/// Keeps one write for each row: if a row has several, the one that `choose` returns. The others
/// stay in order.
fn distinct_rows<W>(rows: Vec<W>, key: impl Fn(&W) -> &Key, choose: impl Fn(W, W) -> W) -> Vec<W> {
    // Most batches are sorted. A batch that is strictly sorted names each row once.
    if rows.is_sorted_by(|one, next| key(one) < key(next)) {
        return rows;
    }
    let mut indices: HashMap<Key, usize> = HashMap::with_capacity(rows.len());
    let mut kept: Vec<Option<W>> = Vec::with_capacity(rows.len());
    for row in rows {
        match indices.entry(key(&row).clone()) {
            Entry::Vacant(entry) => {
                entry.insert(kept.len());
                kept.push(Some(row));
            }
            Entry::Occupied(entry) => {
                let slot = &mut kept[*entry.get()];
                *slot = match slot.take() {
                    Some(earlier) => Some(choose(earlier, row)),
                    None => Some(row),
                };
            }
        }
    }
    kept.into_iter().flatten().collect()
}

fn check_ttl(ttl: Option<Duration>) -> Result<()> {
    match ttl {
        Some(ttl) if ttl.is_zero() || ttl > TTL_MAX => {
            Err(Error::invalid(format!("the TTL {ttl:?} is not above zero and at most ten years")))
        }
        _ => Ok(()),
    }
}

fn conditional(capabilities: &Capabilities, op: &Conditional) -> Result<usize> {
    check_len("clustering columns", op.ccols().len(), capabilities.row.ccols)?;
    check_ttl(op.ttl())?;
    let mut values = 0;
    for value in [op.expected(), op.written()].into_iter().flatten() {
        check_len("value", value.len(), capabilities.row.value)?;
        values += value.len();
    }
    Ok(values)
}

fn write_if(capabilities: &Capabilities, partition: &Bytes, ops: &[Conditional]) -> Result<()> {
    pkey(capabilities, partition)?;
    let mut size = Size::ZERO;
    for op in ops {
        let values = conditional(capabilities, op)?;
        size.add(partition, op.ccols(), values);
    }
    let is_in_order = ops.is_sorted_by(|one, next| one.ccols() < next.ccols());
    let mut named = HashSet::new();
    if !is_in_order && !ops.iter().all(|op| named.insert(op.ccols())) {
        return Err(Error::invalid("a row is named twice in one conditional write"));
    }
    size.check_limits(capabilities.conditional, "a conditional write")
}

fn write_atomic(capabilities: &Capabilities, batch: AtomicBatch) -> Result<AtomicBatch> {
    let Some(limits) = capabilities.atomic else {
        return Err(Error::invalid("this storage cannot write atomically across partitions"));
    };
    let batch = AtomicBatch {
        conditionals: batch.conditionals,
        ordered: ordered(capabilities, batch.ordered)?,
        puts: puts(capabilities, batch.puts)?,
    };
    let mut size = Size::ZERO;
    for (partition, op) in &batch.conditionals {
        pkey(capabilities, partition)?;
        let values = conditional(capabilities, op)?;
        size.add(partition, op.ccols(), values);
    }
    let unconditional = batch.ordered.iter().map(|put| (&put.key, &put.value));
    for (key, value) in
        unconditional.clone().chain(batch.puts.iter().map(|put| (&put.key, &put.value)))
    {
        size.add(&key.pkey, &key.ccols, value.len());
    }
    size.check_limits(limits, "an atomic write")?;

    let conditional_rows = batch.conditionals.iter().map(|(pkey, op)| (pkey, op.ccols()));
    let other_rows = unconditional.map(|(key, _)| key).chain(batch.puts.iter().map(|put| &put.key));
    let mut rows = conditional_rows.chain(other_rows.map(|key| (&key.pkey, &key.ccols)));
    let is_named_once = {
        let mut named = HashSet::with_capacity(size.rows);
        rows.all(|row| named.insert(row))
    };
    if !is_named_once {
        return Err(Error::invalid("a row is named twice in one atomic write"));
    }
    Ok(batch)
}

/// Checks conditional operations against rows that were read together, and returns their outcome.
/// Drivers that check conditions themselves call this function. `current` returns the value of the
/// row of an operation, `None` if the row does not exist or has expired.
///
/// # Errors
/// The first error of `current`.
pub fn check_conditions<'a, E>(
    ops: impl IntoIterator<Item = &'a Conditional>,
    mut current: impl FnMut(usize, &'a Conditional) -> std::result::Result<Option<Bytes>, E>,
) -> std::result::Result<Outcome, E> {
    let mut conflicts = Vec::new();
    for (op, conditional) in ops.into_iter().enumerate() {
        let actual = current(op, conditional)?;
        if actual.as_ref() != conditional.expected() {
            conflicts.push(Conflict { op, actual });
        }
    }
    Ok(if conflicts.is_empty() { Outcome::Applied } else { Outcome::NotApplied(conflicts) })
}
