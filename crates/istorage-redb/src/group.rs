//! A transaction that several requests share, and what each of them does in it.
//!
//! Invariant: each request sees what those before it wrote, and is in the transaction whole or not at all. Nothing of it
//! is written before everything that it demands was checked.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use istorage::{AtomicBatch, Conditional, Error, KeyspaceName, OrderedPut, Outcome, Put, Result};
use redb::{ReadableTable, StorageError, Table, TableError, WriteTransaction};
use tokio::sync::oneshot;

use crate::{
    errors::Failure,
    layout::{self, Keyspace, Kind, META, META_TIME, Stored},
    time::Moment,
};

/// A write, and who waits for it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) batch: AtomicBatch,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Outcome>>,
}

impl Request {
    /// About how many bytes it adds to a transaction.
    pub(crate) fn bytes(&self) -> usize {
        let batch = &self.batch;
        let conditionals = batch.conditionals.iter().map(|(pkey, op)| {
            pkey.len() + op.ccols().len() + op.written().map_or(0, |value| value.len())
        });
        let ordered = batch.ordered.iter().map(|put| (&put.key, &put.value));
        let puts = batch.puts.iter().map(|put| (&put.key, &put.value));
        let others =
            ordered.chain(puts).map(|(key, value)| key.pkey.len() + key.ccols.len() + value.len());
        conditionals.chain(others).sum()
    }

    /// The rows that it writes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Vec<u8>> {
        let batch = &self.batch;
        let conditionals = batch.conditionals.iter().map(|(pkey, op)| (pkey, op.ccols()));
        let ordered = batch.ordered.iter().map(|put| &put.key);
        let puts = ordered.chain(batch.puts.iter().map(|put| &put.key));
        let rows = conditionals.chain(puts.map(|key| (&key.pkey, &key.ccols)));
        rows.map(|(pkey, ccols)| layout::row_key(pkey, ccols))
    }

    pub(crate) fn answer(self, answer: Result<Outcome>) {
        // Whoever has stopped waiting needs no answer.
        let _ = self.reply.send(answer);
    }
}

/// Why a request was not written.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It is wrong; nothing of it was written.
    Refused(Error),
    /// It is wrong, and a part of it is in the transaction, which must be given up.
    Spoiled(Error),
    /// The file failed; the transaction must be given up.
    Failed(Failure),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Refused(error)
    }
}

impl From<StorageError> for Fault {
    fn from(error: StorageError) -> Fault {
        Fault::Failed(error.into())
    }
}

impl From<TableError> for Fault {
    fn from(error: TableError) -> Fault {
        Fault::Failed(error.into())
    }
}

/// What a step in a transaction comes to.
pub(crate) type Step<T> = std::result::Result<T, Fault>;

/// Where a transaction is, for when redb panics.
#[derive(Debug, Default)]
pub(crate) struct Spot {
    pub(crate) step: Cell<At>,
    /// The row that the request at work looks at or writes.
    key: RefCell<Vec<u8>>,
}

/// What a transaction is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum At {
    /// It begins, or ends without a commit.
    #[default]
    Begin,
    /// It runs this request.
    Request(usize),
    /// It removes what has expired.
    Expiry,
    /// It commits.
    Commit,
}

impl Spot {
    /// A request begins, and is at no row yet.
    pub(crate) fn begin(&self, request: usize) {
        self.step.set(At::Request(request));
        self.enter(&[]);
    }

    fn enter(&self, key: &[u8]) {
        let mut entered = self.key.borrow_mut();
        entered.clear();
        entered.extend_from_slice(key);
    }

    /// The row at which the request is; empty if it is at none yet.
    pub(crate) fn key(&self) -> Vec<u8> {
        self.key.borrow().clone()
    }
}

/// The keyspaces that a transaction has touched.
pub(crate) struct Group<'t> {
    txn: &'t WriteTransaction,
    spot: &'t Spot,
    keyspaces: Vec<Open<'t>>,
}

impl<'t> Group<'t> {
    pub(crate) fn new(txn: &'t WriteTransaction, spot: &'t Spot) -> Group<'t> {
        Group { txn, spot, keyspaces: Vec::new() }
    }

    /// A keyspace, which must exist: redb would make it otherwise.
    pub(crate) fn open(&mut self, keyspace: &Arc<Keyspace>) -> Step<&mut Open<'t>> {
        let known = self.keyspaces.iter().position(|open| open.keyspace.name == keyspace.name);
        let at = match known {
            Some(at) => at,
            None => {
                self.keyspaces.push(Open {
                    txn: self.txn,
                    spot: self.spot,
                    keyspace: Arc::clone(keyspace),
                    rows: self.txn.open_table(keyspace.rows())?,
                    expiry: None,
                    wrote: false,
                });
                self.keyspaces.len() - 1
            }
        };
        Ok(&mut self.keyspaces[at])
    }

    /// Something was written.
    pub(crate) fn wrote(&self) -> bool {
        self.keyspaces.iter().any(|open| open.wrote)
    }

    /// For each keyspace whose expiring rows were touched, when the first of them expires.
    pub(crate) fn next_expiries(&self) -> Step<Vec<(KeyspaceName, Option<Moment>)>> {
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

    /// Lets the file remember the time that judged expiry, together with what was judged.
    pub(crate) fn remember(&self, now: Moment) -> Step<()> {
        Ok(remember(self.txn, now)?)
    }
}

/// Lets the file remember the time.
pub(crate) fn remember(txn: &WriteTransaction, now: Moment) -> std::result::Result<(), TableError> {
    txn.open_table(META)?.insert(META_TIME, &layout::time(now)[..])?;
    Ok(())
}

type Rows<'t> = Table<'t, &'static [u8], &'static [u8]>;
type Expiry<'t> = Table<'t, &'static [u8], ()>;

/// A keyspace in a transaction.
pub(crate) struct Open<'t> {
    txn: &'t WriteTransaction,
    spot: &'t Spot,
    keyspace: Arc<Keyspace>,
    rows: Rows<'t>,
    /// Opened when it is needed: rows without a TTL do not pay for it.
    expiry: Option<Expiry<'t>>,
    wrote: bool,
}

/// A row to replace or to remove, once everything is checked.
struct Change<'b> {
    key: Vec<u8>,
    /// When the row that is or was there expires.
    had: Option<Moment>,
    kind: Kind,
    /// `None` removes the row.
    value: Option<&'b Bytes>,
}

impl<'t> Open<'t> {
    /// Checks everything that the batch demands, then writes it.
    pub(crate) fn apply(&mut self, batch: &AtomicBatch, now: Moment) -> Step<Outcome> {
        let mut changes = Vec::with_capacity(batch.conditionals.len() + batch.ordered.len());
        let outcome = self.check_conditions(&batch.conditionals, now, &mut changes)?;
        self.check_orders(&batch.ordered, now, &mut changes)?;
        if !outcome.is_applied() {
            return Ok(outcome);
        }
        self.wrote |= !(changes.is_empty() && batch.puts.is_empty());
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
    ) -> Step<Outcome> {
        istorage::decide(ops.iter().map(|(_, op)| op), |at, op| {
            let key = layout::row_key(&ops[at].0, op.ccols());
            let (mut had, mut there) = (None, None);
            self.spot.enter(&key);
            if let Some(row) = self.rows.get(&key[..])? {
                let stored = self.keyspace.row(&key, row.value())?;
                if stored.is_there(now) && !matches!(stored.kind, Kind::Conditional { .. }) {
                    return Err(mixture(stored.kind, "conditionally").into());
                }
                (had, there) = (stored.kind.expires(), stored.value_at(now));
            }
            let kind = Kind::Conditional { expires: op.ttl().map(|ttl| now.after(ttl)) };
            changes.push(Change { key, had, kind, value: op.written() });
            Ok(there)
        })
    }

    fn check_orders<'b>(
        &self,
        puts: &'b [OrderedPut],
        now: Moment,
        changes: &mut Vec<Change<'b>>,
    ) -> Step<()> {
        for put in puts {
            let key = layout::row_key(&put.key.pkey, &put.key.ccols);
            let ours = put.order.get();
            let kind = Kind::Ordered { order: ours, expires: put.ttl.map(|ttl| now.after(ttl)) };
            let mut had = None;
            self.spot.enter(&key);
            if let Some(row) = self.rows.get(&key[..])? {
                let stored = self.keyspace.row(&key, row.value())?;
                if stored.is_there(now) {
                    let Kind::Ordered { order, .. } = stored.kind else {
                        return Err(mixture(stored.kind, "with an order").into());
                    };
                    if order == ours && stored.value != put.value {
                        let message = "a row has another value with the same order";
                        return Err(Error::invalid(format!("{message}, {order}")).into());
                    }
                    // A write that is sent again lives as long as the last of its kind.
                    if order > ours || stored.kind == kind {
                        continue;
                    }
                }
                had = stored.kind.expires();
            }
            changes.push(Change { key, had, kind, value: Some(&put.value) });
        }
        Ok(())
    }

    fn change(&mut self, change: Change<'_>, bytes: &mut Vec<u8>) -> Step<()> {
        let Change { key, had, kind, value } = change;
        self.spot.enter(&key);
        if let Some(at) = had {
            let entry = layout::expiry_key(at, &key);
            self.expiry()?.remove(&entry[..])?;
        }
        let Some(value) = value else {
            self.rows.remove(&key[..])?;
            return Ok(());
        };
        if let Some(at) = kind.expires() {
            let entry = layout::expiry_key(at, &key);
            self.expiry()?.insert(&entry[..], ())?;
        }
        Stored { kind, value }.write(&key, bytes);
        self.rows.insert(&key[..], &bytes[..])?;
        Ok(())
    }

    /// What was there is looked at only after it is replaced: a look before would cost every put a search of the tree,
    /// for a mistake that a correct caller never makes.
    fn put(&mut self, put: &Put, now: Moment, bytes: &mut Vec<u8>) -> Step<()> {
        let key = layout::row_key(&put.key.pkey, &put.key.ccols);
        let kind = Kind::Plain;
        self.spot.enter(&key);
        Stored { kind, value: &put.value }.write(&key, bytes);
        if let Some(row) = self.rows.insert(&key[..], &bytes[..])? {
            let there = self.keyspace.row(&key, row.value()).map_err(Fault::Spoiled)?;
            if there.is_there(now) && there.kind != kind {
                return Err(Fault::Spoiled(mixture(there.kind, "plainly")));
            }
        }
        Ok(())
    }

    /// Removes at most `limit` rows that have expired; returns how many it removed.
    pub(crate) fn purge(&mut self, now: Moment, limit: usize) -> Step<usize> {
        let due: Vec<Vec<u8>> = {
            let end = layout::expiry_key(now.after(Duration::from_nanos(1)), &[]);
            let entries = self.expiry()?.range::<&[u8]>(..&end[..])?.take(limit);
            let keys = entries.map(|entry| entry.map(|(key, _)| key.value().to_vec()));
            keys.collect::<std::result::Result<_, _>>()?
        };
        for entry in &due {
            if let Some(key) = self.expired(entry)? {
                self.rows.remove(key)?;
            }
            self.expiry()?.remove(&entry[..])?;
        }
        self.wrote |= !due.is_empty();
        Ok(due.len())
    }

    /// The key of the row that expired at the moment of this entry, if there is one.
    ///
    /// A damaged row stays, so that a reader of the row is told; only its entry goes.
    fn expired<'e>(&self, entry: &'e [u8]) -> Step<Option<&'e [u8]>> {
        let Ok((at, key)) = layout::parse_expiry_key(entry) else { return Ok(None) };
        let Some(row) = self.rows.get(key)? else { return Ok(None) };
        let row = self.keyspace.row(key, row.value());
        Ok(row.is_ok_and(|row| row.kind.expires() == Some(at)).then_some(key))
    }

    fn expiry(&mut self) -> Step<&mut Expiry<'t>> {
        let expiry = match self.expiry.take() {
            Some(expiry) => expiry,
            None => self.txn.open_table(self.keyspace.expiry())?,
        };
        Ok(self.expiry.insert(expiry))
    }
}

fn mixture(there: Kind, how: &str) -> Error {
    Error::invalid(format!(
        "a row that was written {how} is {} already: a row is of one kind for ever",
        there.name()
    ))
}
