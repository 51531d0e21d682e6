//! A transaction that several requests share, and the part of each request in it.
//!
//! Invariant: each request sees the writes of the requests before it, and is in the transaction
//! whole or not at all. A request writes nothing before all its conditions and orders are checked.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use istorage::{AtomicBatch, Conditional, Error, KeyspaceName, OrderedPut, Outcome, Put};
use redb::{ReadableTable, Table, TableError, WriteTransaction};

use crate::{
    layout::{self, FileRow, FileRowKind, Keyspace, META, META_TIME},
    log::Effects,
    progress::TxnProgress,
    request::{RequestError, RequestResult},
    search,
    time::Moment,
};

/// The keyspaces that a transaction has touched.
pub(crate) struct GroupTransaction<'t> {
    txn: &'t WriteTransaction,
    progress: &'t TxnProgress,
    effects: &'t Effects,
    keyspaces: Vec<OpenKeyspace<'t>>,
}

impl<'t> GroupTransaction<'t> {
    pub(crate) fn new(
        txn: &'t WriteTransaction,
        progress: &'t TxnProgress,
        effects: &'t Effects,
    ) -> GroupTransaction<'t> {
        GroupTransaction { txn, progress, effects, keyspaces: Vec::new() }
    }

    /// Opens a keyspace, which must exist: redb would make a missing table.
    pub(crate) fn open(
        &mut self,
        keyspace: &Arc<Keyspace>,
    ) -> RequestResult<&mut OpenKeyspace<'t>> {
        let known = self.keyspaces.iter().position(|open| open.keyspace.name == keyspace.name);
        let at = match known {
            Some(at) => at,
            None => {
                self.keyspaces.push(OpenKeyspace {
                    txn: self.txn,
                    progress: self.progress,
                    effects: self.effects,
                    keyspace: Arc::clone(keyspace),
                    rows: self.txn.open_table(keyspace.rows())?,
                    expiry: None,
                    has_written: false,
                });
                self.keyspaces.len() - 1
            }
        };
        Ok(&mut self.keyspaces[at])
    }

    /// Whether a request wrote anything.
    pub(crate) fn has_written(&self) -> bool {
        self.keyspaces.iter().any(|open| open.has_written)
    }

    /// For each keyspace whose expiring rows the transaction touched: when the first of them
    /// expires.
    pub(crate) fn next_expiries(&self) -> RequestResult<Vec<(KeyspaceName, Option<Moment>)>> {
        let mut next = Vec::new();
        for open in &self.keyspaces {
            let Some(expiry) = &open.expiry else { continue };
            let first = expiry.first()?;
            let first =
                first.map(|(key, _)| layout::parse_expiry_key(key.value()).map(|(at, _)| at));
            next.push((open.keyspace.name.clone(), first.transpose()?));
        }
        Ok(next)
    }

    /// Writes the time that judged expiry into the file, in the same transaction as the judged
    /// writes.
    pub(crate) fn write_time(&self, now: Moment) -> RequestResult<()> {
        self.effects.time(&layout::encode_time(now));
        Ok(write_time(self.txn, now)?)
    }
}

/// Writes the time into the file.
pub(crate) fn write_time(txn: &WriteTransaction, now: Moment) -> Result<(), TableError> {
    txn.open_table(META)?.insert(META_TIME, &layout::encode_time(now)[..])?;
    Ok(())
}

type RowTable<'t> = Table<'t, &'static [u8], &'static [u8]>;
type ExpiryTable<'t> = Table<'t, &'static [u8], ()>;

/// A keyspace in a transaction.
pub(crate) struct OpenKeyspace<'t> {
    txn: &'t WriteTransaction,
    progress: &'t TxnProgress,
    effects: &'t Effects,
    keyspace: Arc<Keyspace>,
    rows: RowTable<'t>,
    /// The index of rows that expire, opened only when it is needed. So rows without a TTL do not
    /// pay for the index.
    expiry: Option<ExpiryTable<'t>>,
    has_written: bool,
}

/// A row to replace or to remove after everything is checked.
struct Change<'b> {
    key: Vec<u8>,
    /// When the row in the file expires, even if it has expired already.
    old_expiry: Option<Moment>,
    kind: FileRowKind,
    /// `None` removes the row.
    value: Option<&'b Bytes>,
}

impl<'t> OpenKeyspace<'t> {
    /// Checks all conditions and orders of the batch, then writes the batch.
    ///
    /// If a condition fails, nothing is written. The kind of a row under a plain put is the
    /// exception: [`Self::put`] finds a wrong kind after it has written, and the whole transaction
    /// is given up.
    pub(crate) fn apply(&mut self, batch: &AtomicBatch, now: Moment) -> RequestResult<Outcome> {
        let mut changes = Vec::with_capacity(batch.conditionals.len() + batch.ordered.len());
        let outcome = self.check_conditions(&batch.conditionals, now, &mut changes)?;
        self.check_orders(&batch.ordered, now, &mut changes)?;
        if !outcome.is_applied() {
            return Ok(outcome);
        }
        self.has_written |= !(changes.is_empty() && batch.puts.is_empty());
        let mut bytes = Vec::new();
        for change in changes {
            self.change(change, &mut bytes)?;
        }
        for put in &batch.puts {
            self.put(put, now, &mut bytes)?;
        }
        Ok(outcome)
    }

    fn check_conditions<'b>(
        &self,
        ops: &'b [(Bytes, Conditional)],
        now: Moment,
        changes: &mut Vec<Change<'b>>,
    ) -> RequestResult<Outcome> {
        istorage::check_conditions(ops.iter().map(|(_, op)| op), |at, op| {
            let key = layout::row_key(&ops[at].0, op.ccols());
            let (mut old_expiry, mut current) = (None, None);
            self.progress.enter(&key);
            if let Some(row) = search::find(&self.rows, &key)? {
                let stored = self.keyspace.parse_row(&key, row.value())?;
                (old_expiry, current) = (stored.kind.expires(), stored.value_at(now));
            }
            let kind = FileRowKind::Conditional { expires: op.ttl().map(|ttl| now.after(ttl)) };
            changes.push(Change { key, old_expiry, kind, value: op.written() });
            Ok(current)
        })
    }

    fn check_orders<'b>(
        &self,
        puts: &'b [OrderedPut],
        now: Moment,
        changes: &mut Vec<Change<'b>>,
    ) -> RequestResult<()> {
        for put in puts {
            let key = layout::row_key(&put.key.pkey, &put.key.ccols);
            let ours = put.order.rank();
            let kind =
                FileRowKind::Ordered { rank: ours, expires: put.ttl.map(|ttl| now.after(ttl)) };
            let mut old_expiry = None;
            self.progress.enter(&key);
            if let Some(row) = search::find(&self.rows, &key)? {
                let stored = self.keyspace.parse_row(&key, row.value())?;
                match stored.kind {
                    _ if !stored.is_live(now) => {}
                    // The row hides the ordered write.
                    FileRowKind::Plain | FileRowKind::Conditional { .. } => continue,
                    FileRowKind::Ordered { rank, .. } => {
                        if rank == ours && stored.value != put.value {
                            let message = "a row was written with another value and the same order";
                            return Err(Error::invalid(format!("{message}, {rank}")).into());
                        }
                        // A write that is sent again with a TTL gets the expiry of the last
                        // attempt.
                        if rank > ours || stored.kind == kind {
                            continue;
                        }
                    }
                }
                old_expiry = stored.kind.expires();
            }
            changes.push(Change { key, old_expiry, kind, value: Some(&put.value) });
        }
        Ok(())
    }

    fn change(&mut self, change: Change<'_>, bytes: &mut Vec<u8>) -> RequestResult<()> {
        let Change { key, old_expiry, kind, value } = change;
        self.progress.enter(&key);
        if let Some(at) = old_expiry {
            let entry = layout::expiry_key(at, &key);
            self.remove_entry(&entry)?;
        }
        let Some(value) = value else {
            self.rows.remove(&key[..])?;
            self.effects.row_removed(&self.keyspace, &key);
            return Ok(());
        };
        if let Some(at) = kind.expires() {
            let entry = layout::expiry_key(at, &key);
            self.expiry()?.insert(&entry[..], ())?;
            self.effects.expiry_put(&self.keyspace, &entry);
        }
        FileRow { kind, value }.write(&key, bytes);
        self.rows.insert(&key[..], &bytes[..])?;
        self.effects.row_put(&self.keyspace, &key, bytes);
        Ok(())
    }

    /// Writes a plain row, then looks at the replaced row.
    ///
    /// A look before the write would cost every put a search of the tree, for a mistake that a
    /// correct caller never makes.
    fn put(&mut self, put: &Put, now: Moment, bytes: &mut Vec<u8>) -> RequestResult<()> {
        let key = layout::row_key(&put.key.pkey, &put.key.ccols);
        let kind = FileRowKind::Plain;
        self.progress.enter(&key);
        FileRow { kind, value: &put.value }.write(&key, bytes);
        self.effects.row_put(&self.keyspace, &key, bytes);
        if let Some(row) = self.rows.insert(&key[..], &bytes[..])? {
            let replaced =
                self.keyspace.parse_row(&key, row.value()).map_err(RequestError::Spoiled)?;
            if replaced.is_live(now) && replaced.kind != kind {
                return Err(RequestError::Spoiled(kind_conflict(replaced.kind)));
            }
        }
        Ok(())
    }

    /// Removes at most `limit` entries of expired rows, with their rows. Returns the number of
    /// removed entries.
    pub(crate) fn purge(&mut self, now: Moment, limit: usize) -> RequestResult<usize> {
        let due: Vec<Vec<u8>> = {
            let end = layout::expiry_key(now.after(Duration::from_nanos(1)), &[]);
            let entries = self.expiry()?.range::<&[u8]>(..&end[..])?.take(limit);
            let keys = entries.map(|entry| entry.map(|(key, _)| key.value().to_vec()));
            keys.collect::<Result<_, _>>()?
        };
        for entry in &due {
            if let Some(key) = self.expired(entry)? {
                self.rows.remove(key)?;
                self.effects.row_removed(&self.keyspace, key);
            }
            self.remove_entry(entry)?;
        }
        self.has_written |= !due.is_empty();
        Ok(due.len())
    }

    /// The key of the row that expired at the moment of this entry, if there is such a row.
    ///
    /// A damaged row stays, so that a reader of the row gets the error. Only the entry is removed.
    fn expired<'e>(&self, entry: &'e [u8]) -> RequestResult<Option<&'e [u8]>> {
        let Ok((at, key)) = layout::parse_expiry_key(entry) else { return Ok(None) };
        let Some(row) = self.rows.get(key)? else { return Ok(None) };
        let row = self.keyspace.parse_row(key, row.value());
        Ok(row.is_ok_and(|row| row.kind.expires() == Some(at)).then_some(key))
    }

    fn remove_entry(&mut self, entry: &[u8]) -> RequestResult<()> {
        self.expiry()?.remove(entry)?;
        self.effects.expiry_removed(&self.keyspace, entry);
        Ok(())
    }

    fn expiry(&mut self) -> RequestResult<&mut ExpiryTable<'t>> {
        let expiry = match self.expiry.take() {
            Some(expiry) => expiry,
            None => self.txn.open_table(self.keyspace.expiry())?,
        };
        Ok(self.expiry.insert(expiry))
    }
}

fn kind_conflict(actual: FileRowKind) -> Error {
    Error::invalid(format!(
        "a row that is to be written plainly is already {}: a plain row is always plain",
        actual.name()
    ))
}
