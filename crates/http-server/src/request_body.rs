//! The body of a request, and the handling of the part that its answer did not need.

use std::time::Duration;

use bytes::Bytes;
use clock::Clock;
use http_body_util::BodyExt;
use hyper::{
    body::{Body as _, Frame, Incoming, SizeHint},
    header::{EXPECT, HeaderMap},
};

/// The number of bytes of a body that are read and thrown away, so that the connection can be used
/// again.
const DRAINED_BYTES: usize = 256 << 10;

/// The time that the node waits for these bytes before it answers.
const DRAINED_WITHIN: Duration = Duration::from_secs(1);

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    /// Whether the client sends the body only after `100 Continue`. The client gets that status
    /// when the body is first read.
    awaits_continue: bool,
    is_broken: bool,
}

impl RequestBody {
    /// The body of a request with these headers.
    pub fn new(body: Incoming, headers: &HeaderMap) -> RequestBody {
        let mut expected = headers.get_all(EXPECT).iter();
        let awaits_continue =
            expected.any(|expected| expected.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        RequestBody { body, awaits_continue, is_broken: false }
    }

    /// The size of the body, as far as the client announced it.
    pub fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// Whether nothing of the body is left.
    pub(crate) fn is_ended(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Reads the next part of the body.
    pub async fn frame(&mut self) -> Option<hyper::Result<Frame<Bytes>>> {
        self.awaits_continue = false;
        let frame = self.body.frame().await;
        self.is_broken |= matches!(frame, Some(Err(_)));
        frame
    }

    /// Reads the rest of the body, if the rest is small and arrives soon. Returns false if a part
    /// is left: then the connection ends after the answer.
    pub async fn drain(&mut self, clock: &Clock) -> bool {
        if self.is_ended() {
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
