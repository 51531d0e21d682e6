//! The body of a request: its bytes, and its share of the memory.

use std::{mem, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use hyper::StatusCode;

use crate::{
    limits::{MemoryPool, MemoryShare},
    problem::ProblemDetails,
    request_body::RequestBody,
    request_head::RequestHead,
    server::HttpLimits,
};

/// The body of a request. It is received once, before the request is tried for the first time.
#[derive(Debug)]
pub struct Payload<'r> {
    stream: &'r mut RequestBody,
    received: Option<ReceivedBody>,
}

#[derive(Debug)]
struct ReceivedBody {
    bytes: Bytes,
    /// The share of the memory. The answer takes the share over.
    share: Option<MemoryShare>,
}

impl<'r> Payload<'r> {
    /// A body of which nothing was received yet.
    pub fn new(stream: &'r mut RequestBody) -> Payload<'r> {
        Payload { stream, received: None }
    }

    /// The bytes that were received; empty if none were.
    pub fn bytes(&self) -> Bytes {
        self.received.as_ref().map(|body| body.bytes.clone()).unwrap_or_default()
    }

    /// The number of bytes that were received.
    pub fn size(&self) -> usize {
        self.received.as_ref().map_or(0, |body| body.bytes.len())
    }

    /// The share of the memory, for the answer.
    pub fn take_share(&mut self) -> Option<MemoryShare> {
        self.received.as_mut().and_then(|body| body.share.take())
    }
}

impl ReceivedBody {
    /// Takes a share of the memory again if the body has none: the answer of an earlier try has
    /// taken the share over.
    ///
    /// Invariant: a body that is there has a share. In a simpler version the body is tried again
    /// without a share. The owner of a partition does not know the outcome of its commands, and
    /// each of its answers ends with the share of a body. So the bodies that are tried again have
    /// no bound, and the pool counts none of them.
    fn share_again(
        &mut self,
        memory: &MemoryPool,
        principal: Option<&str>,
    ) -> Result<(), ProblemDetails> {
        if self.share.is_none() {
            let share = memory.try_reserve(principal, self.bytes.len().max(1));
            self.share = Some(share.map_err(|why| memory.problem(why))?);
        }
        Ok(())
    }
}

/// Receives bodies, within their limits and the memory for all of them.
#[derive(Clone, Debug)]
pub struct BodyReader {
    memory: MemoryPool,
    most_bytes: usize,
    /// The time that a body may take to arrive.
    time: Duration,
    clock: Clock,
}

impl BodyReader {
    /// Bodies take their memory from `memory`, and keep the limits of their port.
    pub fn new(memory: MemoryPool, limits: &HttpLimits, clock: Clock) -> BodyReader {
        let HttpLimits { body_bytes: most_bytes, body_time: time, .. } = *limits;
        BodyReader { memory, most_bytes, time, clock }
    }

    /// Takes a share for a request without a body, which needs memory for its answer, unless the
    /// request has one.
    pub async fn receive_nothing(
        &self,
        head: &RequestHead,
        until: Instant,
        payload: &mut Payload<'_>,
    ) -> Result<(), ProblemDetails> {
        if payload.received.is_none() {
            let share = Some(self.memory.reserve(head.taker(), 1, until).await?);
            payload.received = Some(ReceivedBody { bytes: Bytes::new(), share });
        }
        Ok(())
    }

    /// Receives a whole body, unless it was received before. `until` is the end of the time of the
    /// request, as far as it is known.
    pub async fn receive(
        &self,
        head: &RequestHead,
        until: Instant,
        payload: &mut Payload<'_>,
    ) -> Result<Bytes, ProblemDetails> {
        if payload.received.is_none() {
            payload.received = Some(self.received(head, until, payload.stream).await?);
        }
        Ok(payload.bytes())
    }

    /// Takes a share for the next try of a request, if the answer of the last one has taken the
    /// share of its body over.
    ///
    /// # Errors
    /// `memory_full` or `rate_limited` if there is not enough free memory at once.
    pub fn share_again(
        &self,
        head: &RequestHead,
        payload: &mut Payload<'_>,
    ) -> Result<(), ProblemDetails> {
        match &mut payload.received {
            Some(body) => body.share_again(&self.memory, head.principal()),
            None => Ok(()),
        }
    }

    /// Receives a whole body and its share of the memory. The share grows as the bytes arrive: a
    /// client that announces a body and sends nothing takes no memory.
    ///
    /// Invariant: a body that has a share never waits for more. The first bytes wait for their
    /// share. If there is no memory for later bytes, the body is refused. Suppose that such bodies
    /// waited: bodies A and B each hold half of the memory, each waits for more, and neither ends.
    async fn received(
        &self,
        head: &RequestHead,
        until: Instant,
        body: &mut RequestBody,
    ) -> Result<ReceivedBody, ProblemDetails> {
        let BodyReader { memory, most_bytes, time, clock } = self;
        let deadline = until.min(clock.now() + *time);
        let too_large = || {
            let reason = format!("the body is too large: the limit is {most_bytes} bytes");
            ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", reason)
        };
        let announced = body.size_hint().upper().unwrap_or(*most_bytes as u64);
        if announced > *most_bytes as u64 {
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
                        None => memory.reserve(head.taker(), 1, deadline).await?,
                    };
                    return Ok(ReceivedBody { bytes: received.into_bytes(), share: Some(share) });
                }
                Ok(Some(Err(error))) => {
                    let reason = format!("the body of {} could not be read: {error}", head.path());
                    return Err(ProblemDetails::bad_request(reason));
                }
                // The time of the request is over, which the sender has set.
                Err(_) if deadline == until => {
                    let reason = "the body did not arrive before the deadline of the request";
                    return Err(ProblemDetails::unavailable("timed_out", reason));
                }
                Err(_) => {
                    let reason = format!("the body did not arrive within {time:?}");
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
            if bytes > *most_bytes {
                return Err(too_large());
            }
            match &mut share {
                Some(share) => share.resize_or_refuse(bytes)?,
                None => share = Some(memory.reserve(head.taker(), bytes, deadline).await?),
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

#[cfg(test)]
mod tests {
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
        let mut body = ReceivedBody { bytes, share: Some(share) };
        let has_room = |mib: usize| pool.try_reserve(None, mib * MIB).is_ok();
        assert!(body.share_again(&pool, None).is_ok(), "it has its share");
        assert!(has_room(1) && !has_room(2), "it takes no second one");
        // The answer has a share that ends with it.
        let answer = body.share.take().unwrap().into_bytes(vec![b'x'; 3 * MIB]);
        assert!(body.share_again(&pool, None).is_err(), "the answer is still there");
        drop(answer);
        assert!(body.share_again(&pool, None).is_ok());
        assert!(has_room(1) && !has_room(2), "the share is that of the whole body");
        drop(body);
        assert!(has_room(4));
    }
}
