//! Conditional writes that consensus has accepted and not committed yet.
//!
//! A database such as Cassandra judges the conditions of a write, and commits the write in a later
//! step. Meanwhile plain reads do not see the write, and ordered writes land. The next conditional
//! write or linearizable read of the storage partition commits the write, or rules it out.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use clock::Instant;
use futures::FutureExt;
use istorage::{
    Call, CallAnswer, Conditional, Consistency, Error, Key, Outcome, RangeRead, Result, RowStream,
    SharedStorage, StorageWrapper, Write,
};

use crate::{call_turns::Dice, defects::RECORDS};

#[derive(Debug)]
pub(crate) struct OpenWrites {
    inner: SharedStorage,
    dice: Dice,
    /// Of this many conditional writes, one stays open. `None` if all writes are committed at once.
    one_in: Option<u64>,
    /// Whether only writes of records stay open.
    of_records: bool,
    open: Mutex<Vec<(Bytes, Vec<Conditional>)>>,
}

impl OpenWrites {
    pub(crate) fn of(
        inner: SharedStorage,
        seed: u64,
        one_in: Option<u64>,
        of_records: bool,
    ) -> OpenWrites {
        OpenWrites { inner, dice: Dice::of(seed), one_in, of_records, open: Mutex::default() }
    }

    /// Commits the open writes of all storage partitions, or rules them out. Returns their number.
    pub(crate) async fn settle_all(&self) -> usize {
        let open = std::mem::take(&mut *self.lock());
        let count = open.len();
        for (pkey, ops) in open {
            self.settle(pkey, ops).await;
        }
        count
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Bytes, Vec<Conditional>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn value(&self, key: &Key) -> Result<Option<Bytes>> {
        self.inner.get(key, Consistency::Plain, Instant::FAR_FUTURE).await
    }

    /// Commits the open writes of a storage partition, or rules them out.
    pub(crate) async fn settle_partition(&self, pkey: &Bytes) {
        let open: Vec<_> = self.lock().extract_if(.., |(of, _)| of == pkey).collect();
        for (pkey, ops) in open {
            self.settle(pkey, ops).await;
        }
    }

    /// Commits a write, whatever its rows hold by now, or rules it out.
    async fn settle(&self, pkey: Bytes, ops: Vec<Conditional>) {
        if self.dice.one_in(2) {
            return;
        }
        let mut forced = Vec::new();
        for op in ops {
            let (ccols, ttl) = (op.ccols().clone(), op.ttl());
            let there =
                self.value(&Key { pkey: pkey.clone(), ccols: ccols.clone() }).await.unwrap();
            forced.extend(match (there, op.written().cloned()) {
                (Some(old), Some(new)) => Some(Conditional::Swap { ccols, old, new, ttl }),
                (None, Some(value)) => Some(Conditional::Insert { ccols, value, ttl }),
                (Some(old), None) => Some(Conditional::Delete { ccols, old }),
                (None, None) => None,
            });
        }
        // If the write reaches too few replicas, the next write of the partition completes it.
        let _outcome = self.inner.write_if(pkey, forced, Instant::FAR_FUTURE).await;
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        self.settle_partition(&pkey).await;
        let may_stay_open = !self.of_records || pkey.starts_with(&RECORDS);
        if !may_stay_open || self.one_in.is_none_or(|times| !self.dice.one_in(times)) {
            return self.inner.write_if(pkey, ops, deadline).await;
        }
        for op in &ops {
            let key = Key { pkey: pkey.clone(), ccols: op.ccols().clone() };
            if self.value(&key).await?.as_ref() != op.expected() {
                return self.inner.write_if(pkey, ops, deadline).await;
            }
        }
        self.lock().push((pkey, ops));
        Err(Error::outcome_unknown("the write was accepted and not committed"))
    }
}

impl StorageWrapper for OpenWrites {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        match call {
            Call::Get(key, Consistency::Linearizable) => {
                self.settle_partition(&key.pkey).await;
                call.send(&self.inner, deadline).await
            }
            Call::Write(Write::If(pkey, ops)) => {
                Ok(self.write_if(pkey, ops, deadline).await?.into())
            }
            call => call.send(&self.inner, deadline).await,
        }
    }

    fn read(&self, read: RangeRead) -> RowStream {
        if read.consistency == Consistency::Plain {
            return read.send(&self.inner);
        }
        // The storage below never waits, so the writes are settled before the stream begins.
        self.settle_partition(&read.pkey).now_or_never().unwrap();
        read.send(&self.inner)
    }
}
