//! A storage that makes each call wait for its turn: when a node sends the call, and when the call
//! arrives at the database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::Instant;
use futures::{FutureExt, StreamExt, stream::BoxStream};
use istorage::{
    Call, CallAnswer, Capabilities, ExpiringRowStream, RangeRead, Result, RowStream, SharedStorage,
    StorageWrapper, Write,
};

use crate::{
    call_turns::{CallTurns, Label, SentCall},
    defects,
};

#[derive(Debug)]
pub(crate) struct GatedStorage {
    pub(crate) inner: SharedStorage,
    pub(crate) turns: Arc<CallTurns>,
    pub(crate) side: Side,
    /// How long after it was sent a write may land, as the storage states it.
    pub(crate) late_write: Duration,
}

#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// The side of a node. Calls that the node makes before it works are not part of the history.
    Node { node: u64, is_at_work: Arc<AtomicBool>, around: SharedStorage },
    /// The side of the database.
    Database,
}

impl GatedStorage {
    /// The storage that gets the calls now.
    fn next(&self) -> &SharedStorage {
        match &self.side {
            Side::Node { is_at_work, around, .. } if !is_at_work.load(Ordering::SeqCst) => around,
            _ => &self.inner,
        }
    }

    fn label(&self, what: impl FnOnce() -> String) -> Option<Label> {
        match &self.side {
            Side::Node { node, is_at_work, .. } => {
                is_at_work.load(Ordering::SeqCst).then(|| (*node, what()))
            }
            Side::Database => None,
        }
    }

    /// A stream that begins to read when its turn has come.
    fn stream<R: Send + 'static>(
        &self,
        what: impl FnOnce() -> String,
        read: impl FnOnce(&SharedStorage) -> BoxStream<'static, Result<R>> + Send + 'static,
    ) -> BoxStream<'static, Result<R>> {
        let (inner, turns) = (Arc::clone(self.next()), Arc::clone(&self.turns));
        match (&self.side, self.label(what)) {
            (_, Some(label)) => async move {
                let call = turns.to_be_sent(label).await;
                call.sync_scope(|| read(&inner))
            }
            .flatten_stream()
            .boxed(),
            (Side::Node { .. }, None) => read(&inner),
            (Side::Database, None) => {
                let call = SentCall::current();
                async move {
                    turns.on_its_way(call, "call").await;
                    read(&inner)
                }
                .flatten_stream()
                .boxed()
            }
        }
    }
}

/// A label without the order in which a map returned the rows.
fn sorted<T: Ord + std::fmt::Debug>(what: &str, keys: impl Iterator<Item = T>) -> String {
    let mut keys: Vec<T> = keys.collect();
    keys.sort();
    format!("{what} {keys:?}")
}

/// The label of a call.
fn label_of(call: &Call<'_>) -> String {
    match call {
        Call::Get(key, _) => format!("get {key:?}"),
        Call::GetBatch(keys) => sorted("get_batch", keys.iter()),
        Call::GetValues(keys) => sorted("get_values", keys.iter()),
        Call::Write(Write::PutBatch(rows)) => sorted("put_batch", rows.iter().map(|put| &put.key)),
        Call::Write(Write::PutOrdered(rows)) => {
            sorted("put_ordered", rows.iter().map(|put| (&put.key, put.order)))
        }
        Call::Write(Write::If(pkey, ops)) => {
            sorted("write_if", ops.iter().map(|op| (pkey, op.ccols(), op.written())))
        }
        Call::Write(Write::Atomic(batch)) => {
            let conditionals = batch.conditionals.iter().map(|(pkey, op)| (pkey, op.ccols()));
            let ordered = batch.ordered.iter().map(|put| (&put.key.pkey, &put.key.ccols));
            sorted("write_atomic", conditionals.chain(ordered))
        }
        Call::ServerTime => "server_time".to_owned(),
    }
}

impl StorageWrapper for GatedStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { late_write: self.late_write, ..self.inner.capabilities() }
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let label = self.label(|| label_of(&call));
        let of_record_or_log =
            |pkey: &[u8]| pkey.starts_with(&defects::RECORDS) || pkey.starts_with(&defects::LOGS);
        if label.is_some()
            && matches!(&call, Call::Write(Write::If(pkey, _)) if of_record_or_log(pkey))
        {
            self.turns.count_conditional();
        }
        let call = call.send(self.next(), deadline);
        match (&self.side, label) {
            (_, Some(label)) => {
                let sent = self.turns.to_be_sent(label).await;
                let answer = sent.scope(call).await;
                self.turns.on_its_way(Some(sent), "answer").await;
                answer
            }
            (Side::Node { .. }, None) => call.await,
            (Side::Database, None) => {
                self.turns.on_its_way(SentCall::current(), "call").await;
                call.await
            }
        }
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let label = format!("read {:?} {:?}", read.pkey, read.range);
        self.stream(|| label, move |storage| read.send(storage))
    }

    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        let label = format!("ttl_read {:?} {:?}", read.pkey, read.range);
        self.stream(|| label, move |storage| read.send_with_ttl(storage))
    }
}
