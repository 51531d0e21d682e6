//! The body of a request: its bytes, and its memory.

use std::{mem, sync::Arc, time::Duration};

use bytes::Bytes;
use clock::{Clock, Instant};
use hyper::StatusCode;

use crate::{
    limits::{Full, Limit, Permit},
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
    /// The permit for the memory. The answer takes it over.
    memory: Option<Permit>,
}

impl<'r> Payload<'r> {
    /// A body before its first byte.
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

    /// The permit for the memory, for the answer.
    pub fn take_memory(&mut self) -> Option<Permit> {
        self.received.as_mut().and_then(|body| body.memory.take())
    }
}

impl ReceivedBody {
    /// Takes memory again if the body has none: the answer of an earlier try has taken it over.
    ///
    /// Invariant: a received body has memory. A simpler version tries the body again without any.
    /// Suppose that the owner of a partition does not know the outcome of its commands: each of its
    /// answers takes the memory of a body away. So the bodies that are tried again have no bound,
    /// and the limit counts none of them.
    fn take_again(&mut self, of: &Arc<Limit>, principal: Option<&str>) -> Result<(), Full> {
        if self.memory.is_none() {
            self.memory = Some(of.try_take(principal, self.bytes.len().max(1))?);
        }
        Ok(())
    }
}

/// Receives bodies, within their limits and the memory for all of them.
#[derive(Clone, Debug)]
pub struct BodyReader {
    memory: Arc<Limit>,
    most_bytes: usize,
    /// The time that a body may take to arrive.
    time: Duration,
    clock: Clock,
}

impl BodyReader {
    /// Bodies take their memory from `memory`, and are bounded by `limits`.
    pub fn new(memory: Arc<Limit>, limits: &HttpLimits, clock: Clock) -> BodyReader {
        let HttpLimits { body_bytes: most_bytes, body_time: time, .. } = *limits;
        BodyReader { memory, most_bytes, time, clock }
    }

    /// Takes memory for the answer of a request without a body, unless the request has some.
    pub async fn receive_nothing(
        &self,
        head: &RequestHead,
        until: Instant,
        payload: &mut Payload<'_>,
    ) -> Result<(), ProblemDetails> {
        if payload.received.is_none() {
            let asker = head.asker(until, self.clock.now());
            let memory = Some(self.memory.take(asker, 1).await?);
            payload.received = Some(ReceivedBody { bytes: Bytes::new(), memory });
        }
        Ok(())
    }

    /// Receives a whole body, unless it was received before. `until` is the deadline of the
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

    /// Takes memory for the next try of a request, if the answer of the last try has taken over the
    /// memory of the body.
    ///
    /// # Errors
    /// `memory_full` or `rate_limited` if there is not enough free memory at once.
    pub fn take_again(
        &self,
        head: &RequestHead,
        payload: &mut Payload<'_>,
    ) -> Result<(), ProblemDetails> {
        if let Some(body) = &mut payload.received {
            body.take_again(&self.memory, head.principal())?;
        }
        Ok(())
    }

    /// Receives a whole body, and takes its memory. The permit grows as the bytes arrive: a client
    /// that announces a body and sends nothing takes no memory.
    ///
    /// Invariant: a body that has memory never waits for more. Only its first bytes wait for
    /// memory. If there is none for later bytes, the body is refused. If such bodies waited, bodies
    /// A and B could each hold half of the memory and wait for more, and neither would end.
    /// A principal beyond its share waits, too, up to a number of requests. More get 429 at once.
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
        let mut held: Option<Permit> = None;
        let mut received = PartialBody::default();
        loop {
            let frame = match clock.timeout_at(deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => {
                    let held = match held {
                        Some(held) => held,
                        None => memory.take(head.asker(deadline, clock.now()), 1).await?,
                    };
                    return Ok(ReceivedBody { bytes: received.into_bytes(), memory: Some(held) });
                }
                Ok(Some(Err(error))) => {
                    let reason = format!("the body of {} could not be read: {error}", head.path());
                    return Err(ProblemDetails::bad_request(reason));
                }
                // The deadline that the sender has set is over.
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
            match &mut held {
                Some(held) => held.resize(bytes)?,
                None => {
                    held = Some(memory.take(head.asker(deadline, clock.now()), bytes).await?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{LimitRules, held_bytes};

    const MIB: usize = 1 << 20;

    /// A body was sent again to another node, and nothing counted it: the answer of the first try
    /// had taken over its memory.
    #[test]
    fn a_body_that_is_tried_again_has_memory() {
        let clock = Clock::system();
        let limit = Limit::new(LimitRules::memory("bodies", 4 * MIB), &clock);
        let bytes = Bytes::from(vec![b'x'; 3 * MIB]);
        let memory = Some(limit.try_take(None, 3 * MIB).unwrap());
        let mut body = ReceivedBody { bytes, memory };
        let has_room = |mib: usize| limit.try_take(None, mib * MIB).is_ok();
        assert!(body.take_again(&limit, None).is_ok(), "it has its memory");
        assert!(has_room(1) && !has_room(2), "it takes none twice");
        // The answer has memory that ends with it.
        let answer = held_bytes(vec![b'x'; 3 * MIB], body.memory.take());
        assert!(body.take_again(&limit, None).is_err(), "the answer is still there");
        drop(answer);
        assert!(body.take_again(&limit, None).is_ok());
        assert!(has_room(1) && !has_room(2), "the memory is that of the whole body");
        drop(body);
        assert!(has_room(4));
    }
}
