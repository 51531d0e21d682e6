//! The counters of an application as facts for another storage, and the rows of counters that were
//! stored elsewhere.

use bytes::Bytes;
use clock::Instant;
use futures::{StreamExt, TryStreamExt, future::ready, stream::BoxStream};
use istorage::{Conditional, Error, Key, Outcome, Result, settle::write_if_settled};

use super::{CounterKey, CounterRow, DocNumberRows, LedgerEntry, LedgerRow, Token, keys};

impl LedgerEntry {
    /// Returns the size of the row of this entry.
    pub fn row_size(&self) -> usize {
        LedgerRow::SIZE + self.owner.len()
    }
}

impl DocNumberRows {
    /// Lists the counters of all fast series, in any order, and in bounded memory.
    ///
    /// The call is for operators: a storage may read the keys of its whole keyspace.
    pub fn counters(&self) -> BoxStream<'static, Result<CounterKey>> {
        let prefix = self.prefix.clone();
        let definitions = keys::definitions(&prefix);
        let pkeys = self.storage.partitions(prefix.clone(), self.call_timeout);
        pkeys
            .try_filter(move |pkey| ready(*pkey != definitions))
            .and_then(move |pkey| ready(keys::counter_of(&prefix, &pkey)))
            .boxed()
    }

    /// Stores a counter that was stored elsewhere. The counter must not exist here.
    ///
    /// # Errors
    /// Those of the storage, and `Corrupt` if the counter exists.
    pub async fn insert_counter(
        &self,
        of: &CounterKey,
        next: u64,
        deadline: Instant,
    ) -> Result<()> {
        let key = Key { pkey: self.pkey(of), ccols: keys::COUNTER };
        let token = Token::new(&self.clock);
        self.insert(key, CounterRow { next, token }.bytes(), deadline).await
    }

    /// Stores an entry of a ledger that was stored elsewhere. The entry must not exist here.
    ///
    /// # Errors
    /// Those of the storage, and `Corrupt` if the entry exists.
    pub async fn insert_range(
        &self,
        of: &CounterKey,
        entry: &LedgerEntry,
        deadline: Instant,
    ) -> Result<()> {
        let LedgerEntry { first, until, owner, reserved_at, state } = entry.clone();
        let token = Token::new(&self.clock);
        let row = LedgerRow { until, state, reserved_at, owner, token };
        let key = Key { pkey: self.pkey(of), ccols: keys::ledger(first) };
        self.insert(key, row.bytes(), deadline).await
    }

    pub(super) async fn insert(&self, key: Key, value: Bytes, deadline: Instant) -> Result<()> {
        let Key { pkey, ccols } = key;
        let op = Conditional::Insert { ccols, value, ttl: None };
        let (storage, limits) = (&*self.storage, self.limits(deadline));
        match write_if_settled(storage, &self.clock, pkey, vec![op], limits).await? {
            Outcome::Applied => Ok(()),
            Outcome::NotApplied(_) => {
                Err(Error::corrupt("a row of document numbers exists already"))
            }
        }
    }
}
