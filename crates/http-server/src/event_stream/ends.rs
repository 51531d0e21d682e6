//! The ends of a followed log, and its signs of life.

use std::{io, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio_util::sync::CancellationToken;

use super::format::EventFormat;
use crate::authentication::TokenEnd;

/// The longest silence. A longer one tells a client that its connection is lost.
const QUIET: Duration = Duration::from_secs(15);

/// The ends of an answer with a followed log, whatever it waits for.
#[derive(Debug)]
pub struct FollowEnds {
    clock: Clock,
    /// Cancelled when the node stops or the partition leaves it.
    ended: CancellationToken,
    token_end: TokenEnd,
}

/// The outcome of a wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited<T> {
    /// It came in time.
    Ready(T),
    /// The time of the wait is over.
    Quiet,
    /// The answer must end.
    Ended,
}

type Pieces = BoxStream<'static, io::Result<Vec<Bytes>>>;

impl FollowEnds {
    /// An answer ends when `ended` is cancelled, or with the token of its client.
    pub fn new(clock: &Clock, ended: CancellationToken, token_end: TokenEnd) -> FollowEnds {
        FollowEnds { clock: clock.clone(), ended, token_end }
    }

    /// Waits for something, at most until `quiet_until`. What is ready only after the end of the
    /// token is dropped, so a follower also ends if its log always has events ready.
    ///
    /// # Cancel safety
    /// That of `wait`, which is dropped if it is not ready.
    pub async fn wait<T>(&self, wait: impl Future<Output = T>, quiet_until: Instant) -> Waited<T> {
        let wait = self.clock.timeout_at(quiet_until.min(self.token_end.at()), wait);
        match self.ended.run_until_cancelled(wait).await {
            _ if self.token_end.has_come(&self.clock) => Waited::Ended,
            Some(Ok(ready)) => Waited::Ready(ready),
            Some(Err(_)) => Waited::Quiet,
            None => Waited::Ended,
        }
    }

    /// Sends a sign of life whenever the next piece takes long, and ends the pieces at the first of
    /// these ends. Each piece is whole, so the answer ends after a whole event.
    pub fn with_signs_of_life(self, pieces: Pieces, format: EventFormat) -> Pieces {
        let pieces = stream::unfold(Some((pieces, self)), move |state| async move {
            let (mut pieces, ends) = state?;
            let quiet_until = ends.clock.now() + QUIET;
            // The stream keeps its place in all queues, because only the wait for it is dropped.
            match ends.wait(pieces.next(), quiet_until).await {
                Waited::Ready(Some(Ok(piece))) => Some((Ok(piece), Some((pieces, ends)))),
                Waited::Ready(Some(Err(error))) => Some((Err(error), None)),
                Waited::Quiet => Some((Ok(vec![format.sign_of_life()]), Some((pieces, ends)))),
                Waited::Ready(None) | Waited::Ended => None,
            }
        });
        pieces.boxed()
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;
    use futures::FutureExt;

    use super::*;

    /// A follower that waited for its turn to read was silent, so its client gave up, and it stayed
    /// after the end of its token.
    #[test]
    fn a_wait_of_any_kind_has_signs_of_life_and_ends() {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        let ended = CancellationToken::new();
        let token = TokenEnd::of(clock.wall().as_millis() / 1_000 + 20, &clock);
        let [mut short, mut long] = [token, TokenEnd::NEVER].map(|token_end| {
            let ends = FollowEnds::new(&clock, ended.clone(), token_end);
            ends.with_signs_of_life(stream::pending().boxed(), EventFormat::Lines).fuse()
        });
        let mut pieces = || {
            [&mut short, &mut long].map(|pieces| {
                let piece = pieces.next().now_or_never()?;
                Some(piece.map(|piece| piece.unwrap()))
            })
        };
        let sign = Some(Some(vec![Bytes::from("\n")]));
        assert_eq!(pieces(), [None, None]);
        manual.advance(Duration::from_secs(14));
        assert_eq!(pieces(), [None, None], "it is too early");
        manual.advance(Duration::from_secs(1));
        assert_eq!(pieces(), [sign.clone(), sign]);
        assert_eq!(pieces(), [None, None], "one sign is enough");
        manual.advance(Duration::from_secs(5));
        assert_eq!(pieces(), [Some(None), None], "the token of one has ended");
        ended.cancel();
        assert_eq!(pieces()[1], Some(None), "the partition has ended");
    }

    /// A follower that read a long log got events after the end of its token, until it had read the
    /// whole log.
    #[test]
    fn a_log_whose_events_are_always_ready_ends_with_the_token() {
        for is_calendar_set in [false, true] {
            let manual = ManualClock::new(1);
            let clock = manual.clock();
            let token_end = TokenEnd::of(clock.wall().as_millis() / 1_000 + 5, &clock);
            let ends = FollowEnds::new(&clock, CancellationToken::new(), token_end);
            let ready = stream::repeat_with(|| Ok(vec![Bytes::from("event\n")])).boxed();
            let mut pieces = ends.with_signs_of_life(ready, EventFormat::Lines);
            assert!(pieces.next().now_or_never().unwrap().is_some());
            match is_calendar_set {
                true => manual.step_wall(5_000),
                false => manual.advance(Duration::from_secs(5)),
            }
            assert!(pieces.next().now_or_never().unwrap().is_none(), "the token has ended");
        }
    }
}
