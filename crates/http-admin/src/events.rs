//! The status of the cluster as server-sent events, for the live page.

use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use futures::{
    StreamExt,
    future::{MaybeDone, maybe_done},
    poll, stream,
};
use http_server::{
    authentication::TokenEnd,
    limits::{Limit, LimitRules, Permit},
    problem::Answer,
    response::{Endless, stream_response},
};
use hyper::{
    body::Frame,
    header::{HeaderName, HeaderValue},
};
use tokio_util::sync::CancellationToken;

/// The number of streams at the same time. The endpoint has more connections, so that probes and
/// actions find one.
const STREAMS: usize = 8;

/// The least time between two events.
const PAUSE: Duration = Duration::from_millis(250);

/// The most time between two events. An unchanged status is sent again, because the times in it go
/// on. A longer silence tells a client that its connection is lost.
const QUIET: Duration = Duration::from_secs(5);

/// Asks nginx to pass on each event at once.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The streams of an endpoint.
pub(crate) struct EventStreams {
    streams: Arc<Limit>,
    clock: Clock,
    stop: CancellationToken,
}

impl EventStreams {
    /// Streams that end at once when `stop` is cancelled.
    pub(crate) fn new(clock: Clock, stop: CancellationToken) -> EventStreams {
        let streams = LimitRules::at_once(STREAMS, "too_many_streams", |_, most, _| {
            format!(
                "this node sends at most {most} streams of events: close a page, or read /cluster \
                 instead"
            )
        });
        EventStreams { streams: Limit::new(streams, &clock), clock, stop }
    }

    /// Opens a stream of events. `status` returns a key, and the status as one line. The first
    /// event comes at once, the next ones when `changed` returns and the key differs, or after
    /// `QUIET`. The stream ends when the token of the client does.
    pub(crate) fn open<K, F>(
        &self,
        status: impl Fn() -> (K, Vec<u8>) + Send + 'static,
        changed: impl Fn() -> F + Send + 'static,
        token_end: TokenEnd,
    ) -> Answer
    where
        K: PartialEq + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let permit = self.streams.try_take(None, 1)?;
        let (clock, stop) = (self.clock.clone(), self.stop.clone());
        let events = Events { status, changed, clock, last: None, _permit: permit };
        let pieces = stream::unfold((events, stop), move |(mut events, stop)| async move {
            let clock = events.clock.clone();
            let next = clock.timeout_at(token_end.at(), events.next());
            let event = stop.run_until_cancelled(next).await?.ok()?;
            if token_end.has_come(&clock) {
                return None;
            }
            Some((io::Result::Ok(Frame::data(event)), (events, stop)))
        });
        let mut response = stream_response("text/event-stream", pieces.boxed());
        response.extensions_mut().insert(Endless);
        let headers = response.headers_mut();
        headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
        Ok(response)
    }
}

/// The events of one stream.
struct Events<S, C, K, F: Future> {
    status: S,
    changed: C,
    clock: Clock,
    last: Option<LastEvent<K, F>>,
    _permit: Permit,
}

/// The last event of a stream.
struct LastEvent<K, F: Future> {
    key: K,
    sent: Instant,
    /// The end of the wait for the next change.
    change: Pin<Box<MaybeDone<F>>>,
}

impl<S, C, K, F> Events<S, C, K, F>
where
    S: Fn() -> (K, Vec<u8>),
    C: Fn() -> F,
    K: PartialEq,
    F: Future<Output = ()>,
{
    /// Waits for the next event.
    async fn next(&mut self) -> Bytes {
        loop {
            let is_due = match &mut self.last {
                Some(LastEvent { sent, change, .. }) => {
                    let wait = self.clock.timeout_at(*sent + QUIET, change);
                    let is_due = wait.await.is_err();
                    self.clock.sleep_until(*sent + PAUSE).await;
                    is_due
                }
                None => true,
            };
            let mut change = Box::pin(maybe_done((self.changed)()));
            // The wait for a change begins here. If it began after the status was read, a change
            // during the read would be lost.
            let _ = poll!(&mut change);
            let (key, line) = (self.status)();
            match &mut self.last {
                Some(last) if !is_due && last.key == key => last.change = change,
                last => {
                    *last = Some(LastEvent { key, sent: self.clock.now(), change });
                    return [b"data: ", &*line, b"\n\n"].concat().into();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
