//! Cutting an answer when the token of its client ends or the node stops.

use std::io;

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use hyper::body::Frame;
use tokio_util::sync::CancellationToken;

use crate::authentication::TokenEnd;

type Pieces = BoxStream<'static, io::Result<Frame<Bytes>>>;

/// The pieces of a log until the token of the client ends. The client sees a cut, because it must
/// not take the log for complete.
///
/// Invariant: no piece is sent after the end of the token. A simpler version checks the token only
/// when the request begins: a client that takes a long log slowly still gets new events for minutes
/// after its key was taken back.
pub fn cut_at(end: TokenEnd, clock: Clock, pieces: Pieces) -> Pieces {
    if end.at() == Instant::FAR_FUTURE {
        return pieces;
    }
    let pieces = stream::try_unfold(pieces, move |mut pieces| {
        let clock = clock.clone();
        async move {
            let piece = clock.timeout_at(end.at(), pieces.try_next()).await;
            match piece {
                Ok(piece) if !end.has_come(&clock) => Ok(piece?.map(|piece| (piece, pieces))),
                _ => Err(io::Error::other("the token of the client has ended")),
            }
        }
    });
    pieces.boxed()
}

/// The pieces of an answer until the node stops. The client sees a cut, as with [`cut_at`].
pub fn cut_at_stop(stop: CancellationToken, pieces: Pieces) -> Pieces {
    let pieces = stream::try_unfold((pieces, stop), |(mut pieces, stop)| async move {
        let piece = stop.run_until_cancelled(pieces.try_next()).await;
        let piece = piece.ok_or_else(|| io::Error::other("the node stops"))??;
        Ok(piece.map(|piece| (piece, (pieces, stop))))
    });
    pieces.boxed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::ManualClock;
    use futures::FutureExt;

    use super::*;

    /// A client that took a long log slowly got events for minutes after its token had ended.
    #[test]
    fn a_log_is_cut_when_the_token_ends() {
        let pass = [
            |manual: &ManualClock| manual.advance(Duration::from_secs(5)),
            // The calendar is set to the time of the other machines.
            |manual: &ManualClock| manual.step_wall(5_000),
        ];
        for pass in pass {
            let manual = ManualClock::new(1);
            let end = TokenEnd::of(manual.clock().wall().as_millis() / 1_000 + 5, &manual.clock());
            let piece = || Ok(Frame::data(Bytes::from("event\n")));
            let ready = stream::repeat_with(piece).boxed();
            let mut log = cut_at(end, manual.clock(), ready);
            let next = |log: &mut Pieces| log.try_next().now_or_never();
            assert!(next(&mut log).unwrap().unwrap().is_some());
            pass(&manual);
            assert!(next(&mut log).unwrap().is_err(), "the token has ended");
        }
    }

    #[test]
    fn a_log_that_waits_is_cut_when_the_token_ends() {
        let manual = ManualClock::new(1);
        let end = TokenEnd::of(manual.clock().wall().as_millis() / 1_000 + 5, &manual.clock());
        let mut log = cut_at(end, manual.clock(), stream::pending().boxed());
        assert!(log.try_next().now_or_never().is_none(), "the log waits for an event");
        manual.advance(Duration::from_secs(5));
        assert!(log.try_next().now_or_never().unwrap().is_err(), "the token has ended");
    }
}
