//! The rows of a keyspace and the operations on them, without I/O and without a clock.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    ops::Bound,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use clock::Instant;
use hashbrown::HashMap;

use crate::{
    AtomicBatch, Conditional, Error, Key, Order, OrderedPut, Outcome, Range, Result,
    check_conditions,
};

/// The number of expired rows that a write removes. So expired rows never pile up, and no write
/// pays for many.
const PURGED_PER_WRITE: usize = 16;

/// The rows of one keyspace.
#[derive(Debug, Default)]
pub(super) struct KeyspaceRows {
    partitions: HashMap<Bytes, BTreeMap<SortKey, StoredRow>>,
    /// Every row that will expire, the soonest first.
    expiring: BTreeSet<(Instant, Key)>,
    is_closed: bool,
}

pub(super) type SharedRows = Arc<Mutex<KeyspaceRows>>;

/// Clustering columns with their first bytes beside them. Most comparisons need the first bytes
/// only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    /// The first bytes, big endian, with zeros after shorter columns. Two such numbers sort as the
    /// columns do, or are equal.
    first: u64,
    ccols: Bytes,
}

impl SortKey {
    fn new(ccols: Bytes) -> SortKey {
        let mut first = [0; 8];
        let length = ccols.len().min(first.len());
        first[..length].copy_from_slice(&ccols[..length]);
        SortKey { first: u64::from_be_bytes(first), ccols }
    }
}

#[derive(Clone, Debug)]
pub(super) struct StoredRow {
    pub(super) value: Bytes,
    kind: StoredKind,
}

/// The kind of the last write of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredKind {
    Plain,
    Ordered { order: Order, expires: Option<Instant> },
    Conditional { expires: Option<Instant> },
}

impl StoredRow {
    pub(super) fn expires(&self) -> Option<Instant> {
        match self.kind {
            StoredKind::Conditional { expires } | StoredKind::Ordered { expires, .. } => expires,
            StoredKind::Plain => None,
        }
    }

    /// Whether the row hides every ordered write.
    pub(super) fn hides_ordered(&self) -> bool {
        !matches!(self.kind, StoredKind::Ordered { .. })
    }

    fn is_live(&self, now: Instant) -> bool {
        self.expires().is_none_or(|expires| now < expires)
    }
}

impl KeyspaceRows {
    /// Empties the keyspace, which was removed or belongs to a closed database.
    pub(super) fn close(&mut self) {
        *self = KeyspaceRows { is_closed: true, ..KeyspaceRows::default() };
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(Error::closed()) } else { Ok(()) }
    }

    pub(super) fn get(&self, pkey: &[u8], ccols: &Bytes, now: Instant) -> Option<&StoredRow> {
        let partition = self.partitions.get(pkey)?;
        partition.get(&SortKey::new(ccols.clone())).filter(|stored| stored.is_live(now))
    }

    /// The first `limit` keys of partitions that begin with `prefix` and sort after `behind`.
    pub(super) fn partitions(
        &self,
        prefix: &[u8],
        behind: Option<&Bytes>,
        limit: usize,
    ) -> Vec<Bytes> {
        let keys = self
            .partitions
            .keys()
            .filter(|pkey| pkey.starts_with(prefix) && behind.is_none_or(|behind| *pkey > behind));
        let mut keys: Vec<Bytes> = keys.cloned().collect();
        keys.sort_unstable();
        keys.truncate(limit);
        keys
    }

    /// Reads up to `limit` rows of a range.
    pub(super) fn page(
        &self,
        pkey: &[u8],
        range: &Range,
        now: Instant,
        limit: usize,
    ) -> Vec<(Bytes, StoredRow)> {
        let Some(partition) = self.partitions.get(pkey) else {
            return Vec::new();
        };
        if range.is_empty() {
            return Vec::new();
        }
        let start = Bound::Included(SortKey::new(range.start.clone()));
        let end =
            range.end.clone().map_or(Bound::Unbounded, |end| Bound::Excluded(SortKey::new(end)));
        partition
            .range((start, end))
            .filter(|(_, stored)| stored.is_live(now))
            .take(limit)
            .map(|(sort_key, stored)| (sort_key.ccols.clone(), stored.clone()))
            .collect()
    }

    /// Applies a write. Every kind of write call ends here.
    pub(super) fn write(&mut self, batch: AtomicBatch, now: Instant) -> Result<Outcome> {
        self.check_open()?;
        batch.ordered.iter().try_for_each(|put| self.check_ordered(put, now))?;
        batch.puts.iter().try_for_each(|put| self.check_plain(&put.key, now))?;

        let current = |index: usize, op: &Conditional| {
            let (pkey, ccols) = (&batch.conditionals[index].0, op.ccols());
            Ok::<_, Error>(self.get(pkey, ccols, now).map(|stored| stored.value.clone()))
        };
        let outcome = check_conditions(batch.conditionals.iter().map(|(_, op)| op), current)?;
        if outcome.is_applied() {
            batch
                .conditionals
                .into_iter()
                .for_each(|(pkey, op)| self.apply_conditional(pkey, op, now));
            batch.ordered.into_iter().for_each(|put| self.write_ordered(put, now));
            batch.puts.into_iter().for_each(|put| self.set(put.key, put.value, StoredKind::Plain));
            self.purge(now);
        }
        Ok(outcome)
    }

    fn apply_conditional(&mut self, pkey: Bytes, op: Conditional, now: Instant) {
        match op {
            Conditional::Insert { ccols, value, ttl }
            | Conditional::Swap { ccols, new: value, ttl, .. } => {
                let expires = ttl.map(|ttl| now + ttl);
                self.set(Key { pkey, ccols }, value, StoredKind::Conditional { expires });
            }
            Conditional::Delete { ccols, .. } => self.remove(&Key { pkey, ccols }),
        }
    }

    fn write_ordered(&mut self, put: OrderedPut, now: Instant) {
        let is_superseded = match self.get(&put.key.pkey, &put.key.ccols, now) {
            None => false,
            Some(StoredRow { kind: StoredKind::Ordered { order, .. }, .. }) => *order > put.order,
            Some(_) => true,
        };
        if !is_superseded {
            let kind =
                StoredKind::Ordered { order: put.order, expires: put.ttl.map(|ttl| now + ttl) };
            self.set(put.key, put.value, kind);
        }
    }

    fn set(&mut self, key: Key, value: Bytes, kind: StoredKind) {
        let stored = StoredRow { value, kind };
        let expires = stored.expires();
        let partition = self.partitions.entry(key.pkey.clone()).or_default();
        if let Some(moment) = expires {
            self.expiring.insert((moment, key.clone()));
        }
        let Key { pkey, ccols } = key;
        // Only the latest expiry of a row counts.
        match partition.entry(SortKey::new(ccols)) {
            Entry::Vacant(entry) => drop(entry.insert(stored)),
            Entry::Occupied(mut entry) => {
                let former = entry.insert(stored).expires();
                if let Some(moment) = former.filter(|former| Some(*former) != expires) {
                    let key = Key { pkey, ccols: entry.key().ccols.clone() };
                    self.expiring.remove(&(moment, key));
                }
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(partition) = self.partitions.get_mut(&key.pkey) else {
            return;
        };
        let sort_key = SortKey::new(key.ccols.clone());
        if let Some(moment) = partition.remove(&sort_key).and_then(|former| former.expires()) {
            self.expiring.remove(&(moment, key.clone()));
        }
        if partition.is_empty() {
            self.partitions.remove(&key.pkey);
        }
    }

    fn purge(&mut self, now: Instant) {
        for _ in 0..PURGED_PER_WRITE {
            match self.expiring.first() {
                Some((moment, key)) if *moment <= now => {
                    let key = key.clone();
                    self.remove(&key);
                }
                _ => return,
            }
        }
    }

    /// A plain put of a row of another kind is a mistake of the caller.
    fn check_plain(&self, key: &Key, now: Instant) -> Result<()> {
        match self.get(&key.pkey, &key.ccols, now) {
            Some(StoredRow { kind, .. }) if *kind != StoredKind::Plain => {
                Err(Error::invalid(format!("a plain row is always plain; {key:?} is {kind:?}")))
            }
            _ => Ok(()),
        }
    }

    fn check_ordered(&self, put: &OrderedPut, now: Instant) -> Result<()> {
        match self.get(&put.key.pkey, &put.key.ccols, now) {
            Some(StoredRow { value, kind: StoredKind::Ordered { order, .. } })
                if *order == put.order && *value != put.value =>
            {
                Err(Error::invalid(format!(
                    "{:?} was written with order {} and another value",
                    put.key,
                    put.order.rank()
                )))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;

    use super::*;
    use crate::{Conflict, Put};

    fn insert(ccols: &'static str, ttl_seconds: u64) -> AtomicBatch {
        let op = Conditional::Insert {
            ccols: ccols.into(),
            value: "v".into(),
            ttl: Some(Duration::from_secs(ttl_seconds)),
        };
        AtomicBatch { conditionals: vec![("p".into(), op)], ..AtomicBatch::default() }
    }

    fn ordered_batch(ordered: Vec<OrderedPut>) -> AtomicBatch {
        AtomicBatch { ordered, ..AtomicBatch::default() }
    }

    #[test]
    fn expired_rows_are_removed_by_later_writes() {
        let manual = ManualClock::new(0);
        let clock = manual.clock();
        let mut rows = KeyspaceRows::default();
        assert!(rows.write(insert("a", 1), clock.now()).unwrap().is_applied());
        assert!(rows.write(insert("b", 5), clock.now()).unwrap().is_applied());
        manual.advance(Duration::from_secs(2));
        assert!(rows.write(insert("c", 5), clock.now()).unwrap().is_applied());
        assert_eq!(rows.partitions["p".as_bytes()].len(), 2);
        assert_eq!(rows.expiring.len(), 2);
    }

    #[test]
    fn sort_keys_compare_as_their_bytes_do() {
        let mut all: Vec<Vec<u8>> = vec![vec![]];
        for _ in 0..10 {
            let longer = all.iter().flat_map(|key| [0, 1, 255].map(|b| [&key[..], &[b]].concat()));
            let longer: Vec<_> = longer.take(200).collect();
            all.extend(longer);
        }
        for (one, other) in
            all.iter().zip(all.iter().skip(1)).chain(all.iter().zip(all.iter().rev()))
        {
            let sort_key = |key: &Vec<u8>| SortKey::new(key.clone().into());
            assert_eq!(sort_key(one).cmp(&sort_key(other)), one.cmp(other), "{one:?} {other:?}");
        }
    }

    /// A row `p/a` with the value `v`, written plainly, with an order, or conditionally.
    fn batches() -> [AtomicBatch; 3] {
        let (key, value) = (Key::new("p", "a"), Bytes::from("v"));
        let order = Order::new(1).unwrap();
        let ordered = OrderedPut { key: key.clone(), value: value.clone(), order, ttl: None };
        let puts = vec![Put { key, value }];
        let plain = AtomicBatch { puts, ..AtomicBatch::default() };
        [plain, ordered_batch(vec![ordered]), insert("a", 1)]
    }

    #[test]
    fn a_plain_write_of_another_kind_is_refused_and_an_ordered_one_is_hidden() {
        let now = ManualClock::new(0).clock().now();
        let [plain, ordered, conditional] = [0, 1, 2];
        for (there, write, is_refused) in [
            (plain, ordered, false),
            (conditional, ordered, false),
            (ordered, plain, true),
            (conditional, plain, true),
        ] {
            let mut rows = KeyspaceRows::default();
            assert!(rows.write(batches()[there].clone(), now).unwrap().is_applied());
            let mut batch = batches()[write].clone();
            batch.ordered.iter_mut().for_each(|put| put.value = "other".into());
            let written = rows.write(batch, now);
            assert_eq!(written.is_err(), is_refused, "{write} over {there}: {written:?}");
            assert_eq!(rows.get(b"p", &"a".into(), now).unwrap().value, "v");
        }
    }

    /// Another program had a row where a conditional row was to be written. The storage answered
    /// that the write was invalid, so its caller could not tell that the row existed.
    #[test]
    fn a_conditional_write_compares_the_value_of_a_row_of_any_kind() {
        let now = ManualClock::new(0).clock().now();
        for there in batches() {
            let mut rows = KeyspaceRows::default();
            assert!(rows.write(there, now).unwrap().is_applied());
            let refused = rows.write(insert("a", 1), now).unwrap();
            let conflict = Conflict { op: 0, actual: Some("v".into()) };
            assert_eq!(refused, Outcome::NotApplied(vec![conflict]));
            let delete = Conditional::Delete { ccols: "a".into(), old: "v".into() };
            let conditionals = vec![("p".into(), delete)];
            let delete = AtomicBatch { conditionals, ..AtomicBatch::default() };
            assert!(rows.write(delete, now).unwrap().is_applied());
            assert!(rows.get(b"p", &"a".into(), now).is_none());
        }
    }

    #[test]
    fn an_equal_order_with_other_bytes_refuses_the_whole_batch() {
        let now = ManualClock::new(0).clock().now();
        let mut rows = KeyspaceRows::default();
        let put = |ccols: &'static str, value: &'static str| OrderedPut {
            key: Key::new("p", ccols),
            value: value.into(),
            order: Order::new(7).unwrap(),
            ttl: None,
        };
        assert!(rows.write(ordered_batch(vec![put("b", "1")]), now).unwrap().is_applied());
        let batch = ordered_batch(vec![put("a", "1"), put("b", "2")]);
        assert!(rows.write(batch, now).is_err());
        assert!(rows.get(b"p", &"a".into(), now).is_none());
    }
}
