//! The requests of a connection that are under way.
//!
//! Invariant: a request is under way until the kernel has taken the last byte of its answer. Each
//! piece of an answer holds the request until the connection has written and dropped the piece.
//!
//! The time of a client runs only while pieces wait for the client. The time that the node needs to
//! read the next piece does not count.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use clock::{Clock, Instant};
use hyper::body::{Frame, SizeHint};

use crate::response::Body;

/// The requests of a connection that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveRequests(Arc<Mutex<ActiveState>>);

#[derive(Debug, Default)]
struct ActiveState {
    requests: usize,
    /// The number of pieces of answers that wait for the client.
    pieces: usize,
    /// The time since which pieces wait.
    since: Option<Instant>,
    /// The time for which pieces of the last answer waited before.
    before: Duration,
}

impl ActiveState {
    /// The time that the client has taken to receive the last answer.
    fn taken(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

impl ActiveRequests {
    pub(super) fn begin(&self) -> ActiveRequest {
        self.state().requests += 1;
        ActiveRequest(self.clone())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().requests == 0
    }

    /// Returns when a client has taken `time` to receive an answer, or up to a quarter of `time`
    /// later. A timer for each request would cost more.
    pub(super) async fn overdue(&self, time: Duration, clock: &Clock) {
        loop {
            clock.sleep(time / 4).await;
            if self.state().taken(clock.now()) >= time {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ActiveState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is under way until this value is dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(ActiveRequests);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.state().requests -= 1;
    }
}

/// The body of an answer.
pub(super) struct TrackedBody {
    body: Body,
    begun: Arc<ActiveRequest>,
    clock: Clock,
}

impl TrackedBody {
    /// Creates the body of a new answer. The time of the client begins anew.
    pub(super) fn new(body: Body, begun: ActiveRequest, clock: Clock) -> TrackedBody {
        {
            let mut state = begun.0.state();
            state.before = Duration::ZERO;
            state.since = state.since.map(|_| clock.now());
        }
        TrackedBody { body, begun: Arc::new(begun), clock }
    }
}

/// A piece of a body that waits for the client. The piece holds the request that it answers.
struct BodyPiece {
    bytes: Bytes,
    begun: Arc<ActiveRequest>,
    clock: Clock,
}

impl BodyPiece {
    fn new(bytes: Bytes, begun: Arc<ActiveRequest>, clock: Clock) -> BodyPiece {
        let now = clock.now();
        {
            let mut state = begun.0.state();
            state.pieces += 1;
            state.since.get_or_insert(now);
        }
        BodyPiece { bytes, begun, clock }
    }
}

impl Drop for BodyPiece {
    fn drop(&mut self) {
        let now = self.clock.now();
        let mut state = self.begun.0.state();
        state.pieces -= 1;
        if state.pieces == 0 {
            state.before = state.taken(now);
            state.since = None;
        }
    }
}

impl AsRef<[u8]> for BodyPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl hyper::body::Body for TrackedBody {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let held = |bytes| {
            let (begun, clock) = (Arc::clone(&self.begun), self.clock.clone());
            Bytes::from_owner(BodyPiece::new(bytes, begun, clock))
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

#[cfg(test)]
mod tests {
    use clock::ManualClock;
    use futures::{FutureExt, StreamExt, future::poll_fn, stream};
    use hyper::body::Body as _;

    use super::*;
    use crate::response::stream_response;

    /// A log that the node read slowly was cut, as if its client had been too slow to receive it.
    #[test]
    fn a_client_is_timed_only_while_an_answer_waits_for_it() {
        let manual = ManualClock::new(0);
        let (clock, under_way) = (manual.clock(), ActiveRequests::default());
        let taken = || under_way.state().taken(manual.clock().now());
        let second = Duration::from_secs(1);
        for _ in 0..2 {
            let pieces = ["one", "two"].map(|piece| Ok(Frame::data(Bytes::from(piece))));
            let body = stream_response("text/plain", stream::iter(pieces).boxed()).into_body();
            let mut body = TrackedBody::new(body, under_way.begin(), clock.clone());
            let mut next = || {
                let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
                frame.now_or_never().unwrap()
            };
            assert_eq!(taken(), Duration::ZERO, "of another answer");
            manual.advance(60 * second);
            let one = next();
            manual.advance(second);
            assert_eq!(taken(), second);
            drop(one);
            manual.advance(60 * second);
            assert_eq!(taken(), second, "the node reads");
            let two = next();
            manual.advance(2 * second);
            assert_eq!(taken(), 3 * second);
            assert!(next().is_none());
            drop(body);
            assert!(!under_way.is_idle(), "the client does not have it yet");
            drop(two);
            assert!(under_way.is_idle());
        }
    }
}
