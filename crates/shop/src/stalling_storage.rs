//! A node that stands still in the middle of its work: for a while, or forever, as if it had died.

use std::{sync::Arc, time::Duration};

use clock::Instant;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use istorage::{
    Call, CallAnswer, ExpiringRowStream, PartitionStream, RangeRead, Result, RowStream,
    SharedStorage, StorageWrapper, bytes::Bytes,
};
use tokio::sync::watch;

/// How much the deadline of each call is extended. A node that stood still sends a call after its
/// deadline. The call must still reach the storage, so that only the storage can refuse it.
const LATE: Duration = Duration::from_secs(120);

/// The call where a node stands still. The first call after [`StallingStorage::arm`] is call 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallPoint {
    /// No call. Calls are only counted.
    Nowhere,
    /// The node stands still before this call, which is not sent.
    Before(usize),
    /// The node stands still after this call: the call is done, and its answer is not seen.
    After(usize),
    /// Like `After`, but only the calls that write are counted.
    AfterWrite(usize),
}

#[derive(Clone, Copy, Debug)]
struct State {
    at: StallPoint,
    calls: usize,
    writes: usize,
    is_still: bool,
    /// The number of calls that the storage is working on.
    under_way: usize,
}

/// The storage of a node that stands still at one of its calls. From that call on, no call is sent
/// and none is answered, until the node goes on. Clones belong to the same node.
#[derive(Clone, Debug)]
pub struct StallingStorage {
    inner: SharedStorage,
    state: Arc<watch::Sender<State>>,
}

/// A call that the storage is working on, or a call that was dropped during that work.
struct UnderWay<'s>(&'s watch::Sender<State>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.under_way -= 1);
    }
}

impl StallingStorage {
    /// A node that does not stand still yet.
    #[must_use]
    pub fn new(inner: SharedStorage) -> StallingStorage {
        let state =
            State { at: StallPoint::Nowhere, calls: 0, writes: 0, is_still: false, under_way: 0 };
        StallingStorage { inner, state: Arc::new(watch::Sender::new(state)) }
    }

    /// Counts calls from now on, and lets the node stand still at the given call.
    pub fn arm(&self, at: StallPoint) {
        self.state.send_modify(|state| (state.at, state.calls, state.writes) = (at, 0, 0));
    }

    /// The number of calls since then.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.state.borrow().calls
    }

    /// Whether the node stands still.
    #[must_use]
    pub fn is_still(&self) -> bool {
        self.state.borrow().is_still
    }

    /// Waits until the node stands still, and the storage has done all calls that were sent before.
    ///
    /// # Panics
    /// Never: this value holds the sender of the channel.
    pub async fn until_still(&self) {
        let mut seen = self.state.subscribe();
        let still = seen.wait_for(|state| state.is_still && state.under_way == 0).await;
        drop(still.expect("the sender is here"));
    }

    /// Lets the node go on. The node does not stand still again.
    pub fn go_on(&self) {
        self.state.send_modify(|state| (state.at, state.is_still) = (StallPoint::Nowhere, false));
    }

    /// Lets the node go on, counts calls from now on, and lets the node stand still at the given
    /// call.
    pub fn go_on_to(&self, at: StallPoint) {
        self.state.send_modify(|state| {
            (state.at, state.calls, state.writes, state.is_still) = (at, 0, 0, false);
        });
    }

    /// Waits while the node stands still.
    async fn wait_while_still(&self) {
        let mut seen = self.state.subscribe();
        drop(seen.wait_for(|state| !state.is_still).await);
    }

    fn stand_still(&self) {
        self.state.send_modify(|state| state.is_still = true);
    }

    /// Does a call, and stands still before or after it, as the test wants.
    async fn stalled<T>(&self, is_write: bool, call: impl Future<Output = T>) -> T {
        self.wait_while_still().await;
        let mut this = None;
        self.state.send_modify(|state| {
            state.calls += 1;
            state.writes += usize::from(is_write);
            this = Some((state.at, state.calls, if is_write { state.writes } else { 0 }));
        });
        let (at, this, write) = this.unwrap_or((StallPoint::Nowhere, 0, 0));
        if at == StallPoint::Before(this) {
            self.stand_still();
        }
        self.wait_while_still().await;
        self.state.send_modify(|state| state.under_way += 1);
        let under_way = UnderWay(&self.state);
        let answer = call.await;
        if at == StallPoint::After(this) || at == StallPoint::AfterWrite(write) {
            self.stand_still();
        }
        drop(under_way);
        self.wait_while_still().await;
        answer
    }

    /// Runs a stream as one call. The stream is read to its end at once, so that rows which the
    /// node sees late are old rows.
    fn streaming<R: Send + 'static>(
        &self,
        rows: BoxStream<'static, Result<R>>,
    ) -> BoxStream<'static, Result<R>> {
        let this = self.clone();
        let read = async move {
            let rows: Vec<Result<R>> = this.stalled(false, rows.collect()).await;
            stream::iter(rows)
        };
        stream::once(read).flatten().boxed()
    }
}

impl StorageWrapper for StallingStorage {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        let is_write = matches!(call, Call::Write(_));
        self.stalled(is_write, call.send(&self.inner, deadline + LATE)).await
    }

    fn read(&self, read: RangeRead) -> RowStream {
        self.streaming(read.send(&self.inner))
    }

    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        self.streaming(read.send_with_ttl(&self.inner))
    }

    fn partitions(&self, prefix: Bytes, page_timeout: Duration) -> PartitionStream {
        self.streaming(self.inner.partitions(prefix, page_timeout))
    }
}
