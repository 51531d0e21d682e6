//! A storage that makes each call wait for its turn: when a node sends the call, and when the call
//! arrives at the database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use futures::{FutureExt, StreamExt, stream::BoxStream};
use istorage::{
    AppStorage, AtomicBatch, Capabilities, Conditional, Consistency, ExpiringRowStream, Key,
    OrderedPut, Outcome, Put, Range, Result, RowStream, ServerTime, SharedStorage,
};

use crate::call_turns::{CallTurns, Label, SentCall};

#[derive(Debug)]
pub(crate) struct GatedStorage {
    pub(crate) inner: SharedStorage,
    pub(crate) turns: Arc<CallTurns>,
    pub(crate) side: Side,
}

#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// The side of a node. Calls that the node makes before it works are not part of the history.
    Node { node: u64, is_at_work: Arc<AtomicBool>, around: SharedStorage },
    /// The side of the database.
    Database,
}

impl GatedStorage {
    fn inner(&self) -> &SharedStorage {
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

    async fn pass<T: Send>(
        &self,
        what: impl FnOnce() -> String + Send,
        call: impl Future<Output = T> + Send,
    ) -> T {
        match (&self.side, self.label(what)) {
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

    /// A stream that begins to read when its turn has come.
    fn stream<R: Send + 'static>(
        &self,
        what: impl FnOnce() -> String,
        read: impl FnOnce(&SharedStorage) -> BoxStream<'static, Result<R>> + Send + 'static,
    ) -> BoxStream<'static, Result<R>> {
        let (inner, turns) = (Arc::clone(self.inner()), Arc::clone(&self.turns));
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

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl AppStorage for GatedStorage {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(
        &self,
        key: &Key,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Option<Bytes>> {
        let label = || format!("get {key:?}");
        self.pass(label, self.inner().get(key, consistency, deadline)).await
    }

    async fn get_batch(&self, keys: &[Key], deadline: Instant) -> Result<Vec<Option<Bytes>>> {
        self.pass(|| sorted("get_batch", keys.iter()), self.inner().get_batch(keys, deadline)).await
    }

    fn read(
        &self,
        pkey: Bytes,
        range: Range,
        consistency: Consistency,
        page_timeout: Duration,
    ) -> RowStream {
        let label = format!("read {pkey:?} {range:?}");
        let read = move |inner: &SharedStorage| inner.read(pkey, range, consistency, page_timeout);
        self.stream(|| label, read)
    }

    fn ttl_read(&self, pkey: Bytes, range: Range, page_timeout: Duration) -> ExpiringRowStream {
        let label = format!("ttl_read {pkey:?} {range:?}");
        self.stream(
            || label,
            move |inner: &SharedStorage| inner.ttl_read(pkey, range, page_timeout),
        )
    }

    async fn put_batch(&self, rows: Vec<Put>, deadline: Instant) -> Result<()> {
        let label = sorted("put_batch", rows.iter().map(|put| &put.key));
        self.pass(|| label, self.inner().put_batch(rows, deadline)).await
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        let label = sorted("put_ordered", rows.iter().map(|put| (&put.key, put.order)));
        self.pass(|| label, self.inner().put_ordered(rows, deadline)).await
    }

    async fn write_if(
        &self,
        pkey: Bytes,
        ops: Vec<Conditional>,
        deadline: Instant,
    ) -> Result<Outcome> {
        let label = sorted("write_if", ops.iter().map(|op| (&pkey, op.ccols(), op.written())));
        self.pass(|| label, self.inner().write_if(pkey.clone(), ops, deadline)).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        let conditionals = batch.conditionals.iter().map(|(pkey, op)| (pkey, op.ccols()));
        let ordered = batch.ordered.iter().map(|put| (&put.key.pkey, &put.key.ccols));
        let label = sorted("write_atomic", conditionals.chain(ordered));
        self.pass(|| label, self.inner().write_atomic(batch, deadline)).await
    }

    async fn server_time(&self, deadline: Instant) -> Result<Option<ServerTime>> {
        self.pass(|| "server_time".to_owned(), self.inner().server_time(deadline)).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
