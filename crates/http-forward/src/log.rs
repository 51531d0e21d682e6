//! Logs that the owner of a partition sends through this node.
//!
//! A followed log may stay for days. So it has a connection to the owner that no other request
//! waits for, and none of the permits of logs that are read once.

use std::io;

use bytes::Bytes;
use clock::Instant;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use http_server::{
    authentication::TokenEnd,
    event_stream::{EventFormat, FollowEnds, Waited, cut_at},
    limits::Permit,
    problem::ProblemDetails,
    response::{Body, Endless, stream_body},
};
use hyper::{Response, body::Frame, http::response::Parts};
use vvm::sysvvm::ownership::Owner;

use crate::{forwarder::Forwarder, peer::Peer, peer_body::PeerBody};

/// What a log holds of the limits that are only for logs.
pub(crate) enum LogPermits {
    Once(Permit),
    Followed {
        of_node: Permit,
        /// The right to a connection to the owner, until the log is asked for.
        of_peer: Option<Permit>,
    },
}

impl LogPermits {
    /// Takes the permits of a log that is followed. It does not wait for them.
    pub(crate) fn followed(
        forwarder: &Forwarder,
        peer: &Peer,
        owner: Owner,
        principal: Option<&str>,
    ) -> Result<LogPermits, ProblemDetails> {
        let of_node = forwarder.followers.try_take(principal, 1)?;
        let of_peer = peer.limits.followers.try_take(principal, 1).map_err(|full| {
            ProblemDetails::from(full).with("owner", owner.advertised.to_string())
        })?;
        Ok(LogPermits::Followed { of_node, of_peer: Some(of_peer) })
    }

    /// Takes the right to a connection of a log that is followed.
    pub(crate) fn take_connection(&mut self) -> Option<Permit> {
        match self {
            LogPermits::Once(_) => None,
            LogPermits::Followed { of_peer, .. } => of_peer.take(),
        }
    }

    /// The answer with a log, which is passed on while it arrives. The log ends when the token of
    /// the client ends, even if the owner requires no tokens.
    pub(crate) fn answer(
        self,
        forwarder: &Forwarder,
        head: Parts,
        body: PeerBody,
        token_end: TokenEnd,
    ) -> Response<Body> {
        let clock = forwarder.node.clock();
        match self {
            LogPermits::Once(permit) => {
                let pieces = cut_at(token_end, clock.clone(), body.into_pieces(permit));
                Response::from_parts(head, stream_body(pieces))
            }
            LogPermits::Followed { of_node, .. } => {
                let ends = FollowEnds::new(clock, forwarder.stop.clone(), token_end);
                let format = EventFormat::of_answer(&head.headers);
                let pieces = until_end(body.into_pieces(of_node), ends, format);
                let mut answer = Response::from_parts(head, stream_body(pieces));
                answer.extensions_mut().insert(Endless);
                answer
            }
        }
    }
}

type Pieces = BoxStream<'static, io::Result<Frame<Bytes>>>;

/// The pieces of a followed log that another node sends, until the node stops or the token ends.
/// The answer then ends after a whole event. If the client has only a part of an event, the answer
/// is cut. The owner sends the signs of life.
fn until_end(pieces: Pieces, ends: FollowEnds, format: EventFormat) -> Pieces {
    let state = Some((pieces, ends, SentEvents::none(format)));
    let pieces = stream::unfold(state, |state| async move {
        let (mut pieces, ends, mut sent) = state?;
        match ends.wait(pieces.next(), Instant::FAR_FUTURE).await {
            Waited::Ready(Some(Ok(piece))) => {
                sent.add(piece.data_ref().map_or(&[], |bytes| &bytes[..]));
                Some((Ok(piece), Some((pieces, ends, sent))))
            }
            Waited::Ready(last) => last.map(|error| (error, None)),
            Waited::Quiet | Waited::Ended if sent.are_whole() => None,
            Waited::Quiet | Waited::Ended => {
                Some((Err(io::Error::other("the node stops, or the token has ended")), None))
            }
        }
    });
    pieces.boxed()
}

/// The events that a client has got. A server-sent event has several lines, and only an empty line
/// ends the event.
struct SentEvents {
    format: EventFormat,
    /// The number of newlines at the end of all bytes.
    newlines: usize,
}

impl SentEvents {
    fn none(format: EventFormat) -> SentEvents {
        SentEvents { format, newlines: format.event_end().len() }
    }

    fn add(&mut self, bytes: &[u8]) {
        let newlines = bytes.iter().rev().take_while(|byte| **byte == b'\n').count();
        // The newlines of an end may come in two pieces.
        let before = if newlines == bytes.len() { self.newlines } else { 0 };
        self.newlines = before.saturating_add(newlines);
    }

    fn are_whole(&self) -> bool {
        self.newlines >= self.format.event_end().len()
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;
    use futures::{FutureExt, TryStreamExt};
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A server-sent event counted as whole although the client had only its first line.
    #[test]
    fn the_stop_of_a_node_ends_a_followed_log_after_a_whole_event() {
        use EventFormat::{Lines, ServerSentEvents};
        for (format, pieces, is_whole) in [
            (Lines, vec![], true),
            (Lines, vec!["one\n"], true),
            (Lines, vec!["one\n", "t"], false),
            (ServerSentEvents, vec![], true),
            (ServerSentEvents, vec!["id: 7\n"], false),
            (ServerSentEvents, vec!["id: 7\ndata: {}\n"], false),
            (ServerSentEvents, vec!["id: 7\ndata: {}\n\n"], true),
            (ServerSentEvents, vec!["id: 7\ndata: {}\n", "\n"], true),
            (ServerSentEvents, vec!["id: 7\ndata: {}\n\n", "id: 8\n"], false),
            (ServerSentEvents, vec!["id: 7\ndata: {}\n\n", ":\n\n"], true),
        ] {
            let stop = CancellationToken::new();
            let frames = pieces.clone().into_iter().map(|piece| Ok(Frame::data(piece.into())));
            let endless = stream::iter(frames).chain(stream::pending()).boxed();
            let clock = ManualClock::new(1).clock();
            let ends = FollowEnds::new(&clock, stop.clone(), TokenEnd::NEVER);
            let mut passed_on = until_end(endless, ends, format);
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
