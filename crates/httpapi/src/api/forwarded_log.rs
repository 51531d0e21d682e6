//! Logs that the owner of a partition sends through this node.
//!
//! A followed log may stay for days. So it has a connection to the owner that no other request
//! waits for, and none of the places of logs that are read once.

use std::io;

use bytes::Bytes;
use clock::Instant;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use hyper::{Response, body::Frame, http::response::Parts};
use vvm::sysvvm::ownership::Owner;

use super::{
    handler::{ApiHandler, RequestHead},
    routing::RoutedRequest,
};
use crate::{
    authentication::TokenEnd,
    cluster::{Peer, PeerBody, PeerSlot},
    follow::{FollowEnds, FollowerPlace, Waited, is_followed},
    places::Place,
    problem::ProblemDetails,
    read::cut_at,
    response::{Body, Endless, stream_body},
};

/// The place of a log among those that the owner sends through this node.
pub(super) enum LogPlace {
    Once(Place),
    Followed(FollowerPlace),
}

impl ApiHandler {
    /// Takes the places of a request for a log. Other requests need none.
    pub(super) async fn log_place(
        &self,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        peer: &Peer,
        owner: Owner,
    ) -> Result<(Option<LogPlace>, Option<PeerSlot>), ProblemDetails> {
        if !request.endpoint.is_log() {
            return Ok((None, None));
        }
        let principal = self.access.principal(&head.caller);
        if is_followed(head.query())? {
            let place = self.followers.take(principal)?;
            let slot = peer
                .follower_slot(principal)
                .map_err(|problem| problem.with("leader", owner.advertised.to_string()))?;
            return Ok((Some(LogPlace::Followed(place)), Some(slot)));
        }
        let place = peer.logs.take(principal, head.until).await?;
        Ok((Some(LogPlace::Once(place)), None))
    }

    /// The answer with a log, which is passed on while it arrives. The log ends when the token of
    /// the client does, also if the owner asks for none.
    pub(super) fn passed_on(
        &self,
        (head, body): (Parts, PeerBody),
        log: LogPlace,
        token_end: TokenEnd,
    ) -> Response<Body> {
        match log {
            LogPlace::Once(place) => {
                let clock = self.node.clock().clone();
                let pieces = cut_at(token_end, clock, body.into_pieces(place));
                Response::from_parts(head, stream_body(pieces))
            }
            LogPlace::Followed(place) => {
                let stop = self.following.stop.clone();
                let ends = FollowEnds::new(self.node.clock(), stop, token_end);
                let pieces = until_end(body.into_pieces(place), ends);
                let mut answer = Response::from_parts(head, stream_body(pieces));
                answer.extensions_mut().insert(Endless);
                answer
            }
        }
    }
}

type Pieces = BoxStream<'static, io::Result<Frame<Bytes>>>;

/// The pieces of a followed log that another node sends, until one of its ends. The answer then
/// ends after a whole event. If the client has a part of an event, the answer is cut. The owner
/// sends signs of life.
fn until_end(pieces: Pieces, ends: FollowEnds) -> Pieces {
    let state = Some((pieces, ends, true));
    let pieces = stream::unfold(state, |state| async move {
        let (mut pieces, ends, is_whole) = state?;
        match ends.wait(pieces.next(), Instant::FAR_FUTURE).await {
            Waited::Ready(Some(Ok(piece))) => {
                let is_whole = piece.data_ref().is_none_or(|bytes| bytes.ends_with(b"\n"));
                Some((Ok(piece), Some((pieces, ends, is_whole))))
            }
            Waited::Ready(last) => last.map(|error| (error, None)),
            Waited::Quiet | Waited::Ended if is_whole => None,
            Waited::Quiet | Waited::Ended => {
                Some((Err(io::Error::other("the node stops, or the token has ended")), None))
            }
        }
    });
    pieces.boxed()
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;
    use futures::{FutureExt, TryStreamExt};
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn the_stop_of_a_node_ends_a_followed_log_after_a_whole_event() {
        for (pieces, is_whole) in
            [(vec![], true), (vec!["one\n"], true), (vec!["one\n", "t"], false)]
        {
            let stop = CancellationToken::new();
            let frames = pieces.clone().into_iter().map(|piece| Ok(Frame::data(piece.into())));
            let endless = stream::iter(frames).chain(stream::pending()).boxed();
            let clock = ManualClock::new(1).clock();
            let ends = FollowEnds::new(&clock, stop.clone(), TokenEnd::NEVER);
            let mut passed_on = until_end(endless, ends);
            for piece in &pieces {
                let passed = passed_on.try_next().now_or_never().unwrap().unwrap().unwrap();
                assert_eq!(passed.into_data().unwrap(), *piece);
            }
            assert!(passed_on.try_next().now_or_never().is_none(), "the node does not stop yet");
            stop.cancel();
            let end = passed_on.try_next().now_or_never().unwrap();
            assert_eq!(end.is_ok_and(|piece| piece.is_none()), is_whole, "{pieces:?}");
        }
    }
}
