//! Storages that lose rows when their node dies.

use std::sync::Arc;

use clock::Instant;
use eventlog::{AppRow, Offset};
use istorage::{
    AtomicBatch, Call, CallAnswer, Conditional, Key, Outcome, Result, SharedStorage,
    StorageWrapper, Write, bytes::Bytes,
};
use tokio::sync::Mutex;

/// The first bytes of the keys of records, of logs of workspaces, and of numbers.
const RECORDS: [u8; 2] = [0, 19];
const WLOGS: [u8; 2] = [0, 21];
const NUMBERS: [u8; 2] = [0, 23];

/// A mistake of a storage, or of the work with it, that shows only when a node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashDefect {
    /// A write is answered, and done only with the next call.
    LastWriteLate,
    /// Records and the logs of workspaces are written only after the offset that follows their
    /// event is stored. So a recovery begins after an event whose rows are missing.
    RowsAfterOffset,
    /// The last event of the log is lost.
    LastEventLost,
}

/// The storage as a node with a defect uses it. Rows that are not written yet are lost with this
/// value, as they are lost with the memory of a node.
#[derive(Debug)]
pub(crate) struct LossyStorage {
    inner: SharedStorage,
    defect: CrashDefect,
    unwritten: Mutex<Unwritten>,
}

#[derive(Debug, Default)]
struct Unwritten {
    writes: Vec<Write>,
    /// Whether the next call writes them.
    is_due: bool,
}

impl LossyStorage {
    pub(crate) fn of(inner: SharedStorage, defect: CrashDefect) -> Arc<LossyStorage> {
        Arc::new(LossyStorage { inner, defect, unwritten: Mutex::default() })
    }

    /// The node has died. Nothing uses the storage any more.
    pub(crate) async fn crash(&self, partition: u16) {
        if self.defect != CrashDefect::LastEventLost {
            return;
        }
        // The scene has three events, which recoveries do not read again.
        for offset in (4..20).rev() {
            let Key { pkey, ccols } = AppRow::Plog(partition, Offset(offset)).key();
            let key = Key { pkey: pkey.clone(), ccols: ccols.clone() };
            let found = self.inner.get_values(&[key], Instant::FAR_FUTURE).await.unwrap();
            if let Some(old) = found.into_iter().flatten().next() {
                let ops = vec![Conditional::Delete { ccols, old }];
                let deleted = self.inner.write_if(pkey, ops, Instant::FAR_FUTURE).await.unwrap();
                assert_eq!(deleted, Outcome::Applied);
                return;
            }
        }
    }

    /// Whether a row is written later than the call says.
    fn is_late(&self, pkey: &Bytes) -> bool {
        match self.defect {
            CrashDefect::LastWriteLate => true,
            CrashDefect::RowsAfterOffset => pkey.starts_with(&RECORDS) || pkey.starts_with(&WLOGS),
            CrashDefect::LastEventLost => false,
        }
    }

    /// Takes the late rows out of a write.
    fn split(&self, write: Write) -> (Write, Write) {
        match write {
            Write::PutOrdered(mut rows) => {
                let late = rows.extract_if(.., |put| self.is_late(&put.key.pkey)).collect();
                (Write::PutOrdered(rows), Write::PutOrdered(late))
            }
            Write::If(pkey, ops) if self.is_late(&pkey) => {
                (Write::If(pkey.clone(), Vec::new()), Write::If(pkey, ops))
            }
            Write::Atomic(mut batch) => {
                let late = AtomicBatch {
                    conditionals: batch
                        .conditionals
                        .extract_if(.., |(pkey, _)| self.is_late(pkey))
                        .collect(),
                    ordered: batch
                        .ordered
                        .extract_if(.., |put| self.is_late(&put.key.pkey))
                        .collect(),
                    puts: batch.puts.extract_if(.., |put| self.is_late(&put.key.pkey)).collect(),
                };
                (Write::Atomic(batch), Write::Atomic(late))
            }
            other => (other, Write::PutBatch(Vec::new())),
        }
    }

    /// Whether the storage would apply a write. Only inserts of new rows are written late.
    async fn would_apply(&self, write: &Write, deadline: Instant) -> Result<bool> {
        let ops: Vec<(&Bytes, &Conditional)> = match write {
            Write::If(pkey, ops) => ops.iter().map(|op| (pkey, op)).collect(),
            Write::Atomic(batch) => {
                batch.conditionals.iter().map(|(pkey, op)| (pkey, op)).collect()
            }
            _ => Vec::new(),
        };
        let keys =
            ops.iter().map(|(pkey, op)| Key { pkey: (*pkey).clone(), ccols: op.ccols().clone() });
        let found = self.inner.get_values(&keys.collect::<Vec<_>>(), deadline).await?;
        let are_inserts = ops.iter().all(|(_, op)| matches!(op, Conditional::Insert { .. }));
        Ok(are_inserts && found.iter().all(Option::is_none))
    }
}

impl StorageWrapper for LossyStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let mut unwritten = self.unwritten.lock().await;
        if unwritten.is_due {
            for write in unwritten.writes.drain(..) {
                drop(write.send(&self.inner, deadline).await?);
            }
            unwritten.is_due = false;
        }
        let Call::Write(write) = call else { return call.send(&self.inner, deadline).await };
        let (now, late) = self.split(write.clone());
        if late.rows() == 0 || !self.would_apply(&write, deadline).await? {
            // The rows are written after the offset, with the next call.
            unwritten.is_due = has_offset(&write);
            return Ok(write.send(&self.inner, deadline).await?.into());
        }
        unwritten.writes.push(late);
        unwritten.is_due = self.defect == CrashDefect::LastWriteLate;
        match now.rows() {
            0 => Ok(Outcome::Applied.into()),
            _ => Ok(now.send(&self.inner, deadline).await?.into()),
        }
    }
}

/// Whether a write stores the offset of a partition. The numbers of the events were stored before.
fn has_offset(write: &Write) -> bool {
    // The offset belongs to no workspace.
    let is_offset = |pkey: &Bytes| pkey.starts_with(&NUMBERS) && pkey.ends_with(&[0; 8]);
    match write {
        Write::PutOrdered(rows) => rows.iter().any(|put| is_offset(&put.key.pkey)),
        Write::PutBatch(rows) => rows.iter().any(|put| is_offset(&put.key.pkey)),
        Write::If(pkey, _) => is_offset(pkey),
        Write::Atomic(batch) => {
            batch.conditionals.iter().any(|(pkey, _)| is_offset(pkey))
                || batch.ordered.iter().any(|put| is_offset(&put.key.pkey))
        }
    }
}
