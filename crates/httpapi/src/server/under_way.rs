//! The requests of a connection that are under way.
//!
//! Invariant: a request is under way until the kernel has taken the last byte of its answer. Each
//! piece of an answer holds the request until the connection has written and dropped the piece.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use hyper::body::{Frame, SizeHint};

use crate::reply::Body;

/// The requests of a connection that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    requests: usize,
    /// When the last answer began that has not been written whole.
    answers_since: Option<Instant>,
}

impl UnderWay {
    pub(super) fn begin(&self) -> Begun {
        self.state().requests += 1;
        Begun(self.clone())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().requests == 0
    }

    /// Returns when an answer was not written whole within `time`, or up to a quarter of `time`
    /// later: a timer for each request would cost more.
    pub(super) async fn overdue(&self, time: Duration, clock: &Clock) {
        loop {
            clock.sleep(time / 4).await;
            let since = self.state().answers_since;
            if since.is_some_and(|since| clock.now() >= since + time) {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Begun(UnderWay);

impl Begun {
    /// The time of the answer begins.
    pub(super) fn answers(&self, now: Instant) {
        self.0.state().answers_since = Some(now);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        if state.requests == 0 {
            state.answers_since = None;
        }
    }
}

/// The body of an answer.
pub(super) struct Tracked {
    body: Body,
    begun: Arc<Begun>,
}

impl Tracked {
    pub(super) fn new(body: Body, begun: Begun) -> Tracked {
        Tracked { body, begun: Arc::new(begun) }
    }
}

/// A piece of a body, and the request that it answers.
struct Piece {
    bytes: Bytes,
    _begun: Arc<Begun>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl hyper::body::Body for Tracked {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let held = |bytes| {
            let _begun = Arc::clone(&self.begun);
            Bytes::from_owner(Piece { bytes, _begun })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
