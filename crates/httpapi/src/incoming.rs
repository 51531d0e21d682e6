//! The body of a request, and what is done with the part of it that its answer did not need.

use std::time::Duration;

use bytes::Bytes;
use clock::Clock;
use http_body_util::BodyExt;
use hyper::{
    body::{Body as _, Frame, Incoming, SizeHint},
    header::{EXPECT, HeaderMap},
};

/// How many bytes of a body are read and thrown away, so that the connection can be used again.
const DRAINED_BYTES: usize = 256 << 10;

/// How long the node waits for these bytes before it answers.
const DRAINED_WITHIN: Duration = Duration::from_secs(1);

/// The body of a request.
#[derive(Debug)]
pub(crate) struct RequestBody {
    body: Incoming,
    /// The client sends the body only when it has got `100 Continue`, which it gets when the body is read.
    awaits_continue: bool,
    is_broken: bool,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, headers: &HeaderMap) -> RequestBody {
        let mut expected = headers.get_all(EXPECT).iter();
        let awaits_continue =
            expected.any(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        RequestBody { body, awaits_continue, is_broken: false }
    }

    /// How large it is, as far as its client said that.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// The next part of it.
    pub(crate) async fn frame(&mut self) -> Option<hyper::Result<Frame<Bytes>>> {
        self.awaits_continue = false;
        let frame = self.body.frame().await;
        self.is_broken |= matches!(frame, Some(Err(_)));
        frame
    }

    /// Reads the rest of it, if that is little and comes soon. False if a rest is left: the connection ends after the answer.
    pub(crate) async fn drain(&mut self, clock: &Clock) -> bool {
        if self.body.is_end_stream() {
            return true;
        }
        if self.awaits_continue || self.is_broken || self.size_hint().lower() > DRAINED_BYTES as u64
        {
            return false;
        }
        let deadline = clock.now() + DRAINED_WITHIN;
        let mut left = DRAINED_BYTES;
        loop {
            match clock.timeout_at(deadline, self.frame()).await {
                Ok(None) => return true,
                Ok(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    let Some(rest) = left.checked_sub(bytes) else { return false };
                    left = rest;
                }
                Ok(Some(Err(_))) | Err(_) => return false,
            }
        }
    }
}
