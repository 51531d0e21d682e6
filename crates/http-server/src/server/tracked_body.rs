//! The body of an answer. Each piece of the body holds the request until the connection has written
//! and dropped the piece.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use clock::Clock;
use hyper::body::{Frame, SizeHint};

use super::active_requests::{ActiveRequest, WaitingPiece};
use crate::response::Body;

/// The body of an answer.
pub(super) struct TrackedBody {
    body: Body,
    /// The error that ends the body, while pieces before it wait for the client.
    error: Option<<Body as hyper::body::Body>::Error>,
    begun: Arc<ActiveRequest>,
    clock: Clock,
}

impl TrackedBody {
    /// Creates the body of a new answer. The time of the client begins anew.
    pub(super) fn new(
        body: Body,
        is_endless: bool,
        begun: ActiveRequest,
        clock: Clock,
    ) -> TrackedBody {
        begun.begin_answer(is_endless, &clock);
        TrackedBody { body, error: None, begun: Arc::new(begun), clock }
    }

    fn held(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        frame.map_data(|bytes| {
            let (begun, clock) = (Arc::clone(&self.begun), self.clock.clone());
            Bytes::from_owner(BodyPiece { bytes, _waits: WaitingPiece::new(begun, clock) })
        })
    }
}

/// A piece of a body that waits for the client. The piece holds the request that it answers.
struct BodyPiece {
    bytes: Bytes,
    _waits: WaitingPiece,
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
        if self.error.is_none() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Err(error)) => self.error = Some(error),
                frame => return Poll::Ready(frame.map(|frame| frame.map(|it| self.held(it)))),
            }
            // At an error hyper drops what it has not written yet. So give it a pause first, to
            // write that.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.begun.poll_taken(context));
        Poll::Ready(self.error.take().map(Err))
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
    use std::{io, time::Duration};

    use clock::ManualClock;
    use futures::{FutureExt, StreamExt, future::poll_fn, stream};
    use hyper::body::Body as _;

    use super::{super::active_requests::ActiveRequests, *};
    use crate::response::stream_response;

    /// A log that the node read slowly was cut, as if the client had been too slow.
    #[test]
    fn a_client_is_timed_only_while_an_answer_waits_for_it() {
        let manual = ManualClock::new(0);
        let (clock, under_way) = (manual.clock(), ActiveRequests::default());
        let taken = || under_way.taken(manual.clock().now());
        let second = Duration::from_secs(1);
        for _ in 0..2 {
            let pieces = ["one", "two"].map(|piece| Ok(Frame::data(Bytes::from(piece))));
            let body = stream_response("text/plain", stream::iter(pieces).boxed()).into_body();
            let mut body = TrackedBody::new(body, false, under_way.begin(), clock.clone());
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

    /// An answer without an end was cut when all its pieces together had waited for as long as one
    /// piece may.
    #[test]
    fn each_piece_of_an_answer_without_an_end_has_a_time_of_its_own() {
        let manual = ManualClock::new(0);
        let under_way = ActiveRequests::default();
        let taken = || under_way.taken(manual.clock().now());
        let second = Duration::from_secs(1);
        let pieces = ["one", "two", "three"].map(|piece| Ok(Frame::data(Bytes::from(piece))));
        let body = stream_response("text/plain", stream::iter(pieces).boxed()).into_body();
        let mut body = TrackedBody::new(body, true, under_way.begin(), manual.clock());
        let mut next = || {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            frame.now_or_never().unwrap()
        };
        let one = next();
        manual.advance(second);
        assert_eq!(taken(), second);
        drop(one);
        assert_eq!(taken(), Duration::ZERO);
        let (two, three) = (next(), next());
        manual.advance(2 * second);
        assert_eq!(taken(), 2 * second);
        drop(two);
        assert_eq!(taken(), Duration::ZERO, "the client takes pieces, although others wait");
        manual.advance(second);
        assert_eq!(taken(), second);
        drop(three);
    }

    /// The events before a damaged one did not reach a client that was a little slow: hyper dropped
    /// them when the body failed.
    #[test]
    fn an_error_waits_until_the_client_has_the_pieces_in_front_of_it() {
        let (clock, under_way) = (ManualClock::new(0).clock(), ActiveRequests::default());
        let pieces = [Ok("one"), Ok("two"), Err("damaged")].map(|piece| match piece {
            Ok(text) => Ok(Frame::data(Bytes::from(text))),
            Err(reason) => Err(io::Error::other(reason)),
        });
        let body = stream_response("text/plain", stream::iter(pieces).boxed()).into_body();
        let mut body = TrackedBody::new(body, false, under_way.begin(), clock);
        let mut next = || {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            frame.now_or_never()
        };
        let (one, two) = (next().unwrap(), next().unwrap());
        assert!(next().is_none());
        drop(one);
        assert!(next().is_none(), "a piece still waits");
        drop(two);
        assert!(next().unwrap().is_some_and(|end| end.is_err()));
    }
}
