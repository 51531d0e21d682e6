//! The body of a request: its bytes, its share of the memory, and its JSON.

use std::mem;

use bytes::Bytes;
use clock::Instant;
use hyper::StatusCode;
use serde::Deserialize;

use super::handler::{ApiHandler, RequestHead};
use crate::{
    HttpLimits,
    memory::{MemoryPool, MemoryShare},
    problem::ProblemDetails,
    request_body::RequestBody,
    rows::JsonObject,
};

/// The largest body that is kept while its request holds no memory.
const SMALL_BYTES: usize = 1 << 10;

/// The body of a request. It is received once, before the request is tried for the first time.
pub(super) struct Payload<'r> {
    stream: &'r mut RequestBody,
    received: Option<ReceivedBody>,
}

/// The body of a command.
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
    /// The share of the memory. The answer takes the share over.
    share: Option<MemoryShare>,
    /// The deadline of the command.
    pub(super) deadline: Instant,
    /// Whether `bytes` is the body as it was received.
    is_whole: bool,
}

impl<'r> Payload<'r> {
    pub(super) fn new(stream: &'r mut RequestBody) -> Payload<'r> {
        Payload { stream, received: None }
    }

    /// The bytes that were received; empty if none were.
    pub(super) fn bytes(&self) -> Bytes {
        self.received.as_ref().map(|body| body.bytes.clone()).unwrap_or_default()
    }

    /// The number of bytes that were received.
    pub(super) fn len(&self) -> usize {
        self.received.as_ref().map_or(0, |body| body.bytes.len())
    }

    /// Whether the request may be tried again.
    pub(super) fn is_whole(&self) -> bool {
        self.received.as_ref().is_none_or(|body| body.is_whole)
    }

    /// The share of the memory, for the answer.
    pub(super) fn take_share(&mut self) -> Option<MemoryShare> {
        self.received.as_mut().and_then(ReceivedBody::take_share)
    }

    /// Takes a share for the next try, as [`ReceivedBody::share_again`].
    pub(super) fn share_again(
        &mut self,
        bodies: &MemoryPool,
        principal: Option<&str>,
    ) -> Result<(), ProblemDetails> {
        self.received.as_mut().map_or(Ok(()), |body| body.share_again(bodies, principal))
    }

    /// Gives the memory of the body back, because a request that waits for memory holds none. The
    /// next try sends `small`, which means the same.
    pub(super) fn replace(&mut self, small: Bytes) {
        if let Some(body) = &mut self.received {
            (body.bytes, body.share) = (small, None);
        }
    }
}

impl ReceivedBody {
    fn new(bytes: Bytes, share: MemoryShare, deadline: Instant) -> ReceivedBody {
        ReceivedBody { bytes, share: Some(share), deadline, is_whole: true }
    }

    /// The share of the memory, for the answer.
    pub(super) fn take_share(&mut self) -> Option<MemoryShare> {
        self.share.take()
    }

    /// Takes a share of the memory again if the body has none: the answer of an earlier try has
    /// taken the share over.
    ///
    /// Invariant: a body that is there has a share. In a simpler version the body is tried again
    /// without a share. The owner of a partition does not know the outcome of its commands, and
    /// each of its answers ends with the share of a body. So the bodies that are tried again have
    /// no bound, and the pool counts none of them.
    ///
    /// # Errors
    /// `memory_full` or `rate_limited` if there is not enough free memory at once.
    pub(super) fn share_again(
        &mut self,
        bodies: &MemoryPool,
        principal: Option<&str>,
    ) -> Result<(), ProblemDetails> {
        if self.share.is_none() {
            let share = bodies.try_reserve(principal, self.bytes.len().max(1));
            self.share = Some(share.map_err(|why| bodies.problem(why))?);
        }
        Ok(())
    }

    /// Gives the memory back, because a request that waits for memory holds none. Keeps a small
    /// body, which another try of the request needs.
    pub(super) fn release(&mut self) {
        self.share = None;
        if self.bytes.len() <= SMALL_BYTES {
            // The bytes may be a part of a large buffer.
            self.bytes = Bytes::copy_from_slice(&self.bytes);
        } else {
            (self.bytes, self.is_whole) = (Bytes::new(), false);
        }
    }
}

impl ApiHandler {
    /// Takes a share for a command without a body, which needs memory for its answer. The wait for
    /// that share counts into the time of the command.
    pub(super) async fn empty_body<'p>(
        &self,
        head: &RequestHead,
        payload: &'p mut Payload<'_>,
    ) -> Result<&'p mut ReceivedBody, ProblemDetails> {
        let body = match payload.received.take() {
            Some(body) => body,
            None => {
                let deadline = self.deadline(head);
                let share = self.bodies.reserve(self.taker(head), 1, deadline).await?;
                ReceivedBody::new(Bytes::new(), share, deadline)
            }
        };
        Ok(payload.received.insert(body))
    }

    /// Receives a whole body, unless it was received before.
    pub(super) async fn receive_body<'p>(
        &self,
        head: &RequestHead,
        payload: &'p mut Payload<'_>,
    ) -> Result<&'p mut ReceivedBody, ProblemDetails> {
        let body = match payload.received.take() {
            Some(body) => body,
            None => self.receive(head, payload.stream).await?,
        };
        Ok(payload.received.insert(body))
    }

    /// Receives a whole body, within its limits, and its share of the memory. The share grows as
    /// the bytes arrive: a client that announces a body and sends nothing takes no memory.
    ///
    /// Invariant: a body that has a share never waits for more. The first bytes wait for their
    /// share. If there is no memory for later bytes, the body is refused. Suppose that such bodies
    /// waited: bodies A and B each hold half of the memory, each waits for more, and neither ends.
    async fn receive(
        &self,
        head: &RequestHead,
        body: &mut RequestBody,
    ) -> Result<ReceivedBody, ProblemDetails> {
        let HttpLimits { body_bytes, body_time, .. } = self.settings.limits;
        let clock = self.node.clock();
        let deadline = head.until.min(clock.now() + body_time);
        let too_large = || {
            let reason = format!("the body is too large: the limit is {body_bytes} bytes");
            ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", reason)
        };
        let announced = body.size_hint().upper().unwrap_or(body_bytes as u64);
        if announced > body_bytes as u64 {
            return Err(too_large());
        }
        let mut share: Option<MemoryShare> = None;
        let mut received = PartialBody::default();
        loop {
            let frame = match clock.timeout_at(deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => {
                    let share = match share {
                        Some(share) => share,
                        None => self.bodies.reserve(self.taker(head), 1, deadline).await?,
                    };
                    let (bytes, deadline) = (received.into_bytes(), self.deadline(head));
                    return Ok(ReceivedBody::new(bytes, share, deadline));
                }
                Ok(Some(Err(error))) => {
                    let reason = format!("the body of {} could not be read: {error}", head.path());
                    return Err(ProblemDetails::bad_request(reason));
                }
                // The time of the request is over, which the sender has set.
                Err(_) if deadline == head.until => {
                    let reason = "the body did not arrive before the deadline of the request";
                    return Err(ProblemDetails::unavailable("timed_out", reason));
                }
                Err(_) => {
                    let reason = format!("the body did not arrive within {body_time:?}");
                    return Err(ProblemDetails::new(
                        StatusCode::REQUEST_TIMEOUT,
                        "body_too_slow",
                        reason,
                    ));
                }
            };
            // Trailers have no meaning here.
            let Ok(data) = frame.into_data() else { continue };
            let bytes = received.len() + data.len();
            if bytes > body_bytes {
                return Err(too_large());
            }
            match &mut share {
                Some(share) => share.resize_or_refuse(bytes)?,
                None => {
                    let first = self.bodies.reserve(self.taker(head), bytes, deadline).await?;
                    share = Some(first);
                }
            }
            received.add(data);
        }
    }
}

/// A body while it arrives. Most bodies arrive in one piece, and are not copied.
#[derive(Default)]
enum PartialBody {
    #[default]
    Nothing,
    One(Bytes),
    Many(Vec<u8>),
}

impl PartialBody {
    fn len(&self) -> usize {
        match self {
            PartialBody::Nothing => 0,
            PartialBody::One(bytes) => bytes.len(),
            PartialBody::Many(bytes) => bytes.len(),
        }
    }

    fn add(&mut self, data: Bytes) {
        *self = match mem::take(self) {
            PartialBody::Nothing => PartialBody::One(data),
            PartialBody::One(first) => PartialBody::Many([first, data].concat()),
            PartialBody::Many(mut bytes) => {
                bytes.extend_from_slice(&data);
                PartialBody::Many(bytes)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            PartialBody::Nothing => Bytes::new(),
            PartialBody::One(bytes) => bytes,
            PartialBody::Many(bytes) => bytes.into(),
        }
    }
}

/// Parses the JSON of a body. An empty body counts as an empty object.
pub(super) fn parsed<'b, T: Deserialize<'b>>(body: &'b Bytes) -> Result<T, ProblemDetails> {
    let text = if body.is_empty() { b"{}" } else { &body[..] };
    match serde_json::from_slice(text) {
        Ok(JsonObject(body)) => Ok(body),
        Err(error) => Err(ProblemDetails::bad_request(format!("the body is invalid: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clock::Clock;

    use super::*;

    const MIB: usize = 1 << 20;

    /// A body was sent again to another node, and nothing counted it: the answer of the first try
    /// had taken its share over.
    #[tokio::test]
    async fn a_body_that_is_tried_again_has_a_share() {
        let clock = Clock::system();
        let pool = MemoryPool::new("bodies", 4 * MIB, clock.clone());
        let deadline = clock.now() + Duration::from_secs(1);
        let share = pool.reserve(None, 3 * MIB, deadline).await.unwrap();
        let bytes = Bytes::from(vec![b'x'; 3 * MIB]);
        let mut body = ReceivedBody::new(bytes, share, deadline);
        let has_room = |mib: usize| pool.try_reserve(None, mib * MIB).is_ok();
        assert!(body.share_again(&pool, None).is_ok(), "it has its share");
        assert!(has_room(1) && !has_room(2), "it takes no second one");
        // The answer has a share that ends with it.
        let answer = body.take_share().unwrap().into_bytes(vec![b'x'; 3 * MIB]);
        assert!(body.share_again(&pool, None).is_err(), "the answer is still there");
        drop(answer);
        assert!(body.share_again(&pool, None).is_ok());
        assert!(has_room(1) && !has_room(2), "the share is that of the whole body");
        drop(body);
        assert!(has_room(4));
        // A small body is kept while its request waits for other memory.
        let share = pool.reserve(None, 2, deadline).await.unwrap();
        let mut small = ReceivedBody::new(Bytes::from_static(b"{}"), share, deadline);
        small.release();
        assert!(has_room(4));
        assert!(small.share_again(&pool, None).is_ok() && !has_room(4));
    }
}
