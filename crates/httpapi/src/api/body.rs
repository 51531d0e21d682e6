//! The body of a request: its bytes, its share of the memory, and its JSON.

use std::mem;

use bytes::Bytes;
use clock::Instant;
use hyper::StatusCode;
use serde::Deserialize;

use super::{Asked, Requests};
use crate::{HttpLimits, incoming::RequestBody, reply::Trouble, room::Share, rows::Object};

/// The body of a command.
pub(super) struct Received {
    pub(super) bytes: Bytes,
    /// The share of the memory. The answer takes the share over.
    pub(super) share: Share,
    /// The deadline of the command.
    pub(super) deadline: Instant,
}

impl Requests {
    /// Takes a share for a command without a body, which needs memory for its answer. The wait for
    /// that share counts into the time of the command.
    pub(super) async fn no_body(&self) -> Result<Received, Trouble> {
        let deadline = self.deadline();
        let share = self.bodies.share(1, deadline).await?;
        Ok(Received { bytes: Bytes::new(), share, deadline })
    }

    /// Receives a whole body, within its limits, and its share of the memory. The share grows as
    /// the bytes arrive: a client that announces a body and sends nothing takes no memory.
    ///
    /// Invariant: a body that has a share never waits for more. The first bytes wait for their
    /// share. If there is no room for later bytes, the body is refused. Suppose that such bodies
    /// waited: bodies A and B each hold half of the room, each waits for more, and neither can end.
    pub(super) async fn body(
        &self,
        asked: &Asked,
        body: &mut RequestBody,
    ) -> Result<Received, Trouble> {
        let HttpLimits { body_bytes, body_time, .. } = self.settings.limits;
        let clock = self.node.clock();
        let deadline = clock.now() + body_time;
        let too_large = || {
            let reason = format!("a body has at most {body_bytes} bytes");
            Trouble::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", reason)
        };
        let said = body.size_hint().upper().unwrap_or(body_bytes as u64);
        if said > body_bytes as u64 {
            return Err(too_large());
        }
        let mut share: Option<Share> = None;
        let mut whole = Whole::default();
        loop {
            let frame = match clock.timeout_at(deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => {
                    let share = match share {
                        Some(share) => share,
                        None => self.bodies.share(1, deadline).await?,
                    };
                    let (bytes, deadline) = (whole.into_bytes(), self.deadline());
                    return Ok(Received { bytes, share, deadline });
                }
                Ok(Some(Err(error))) => {
                    let reason = format!("the body of {} broke: {error}", asked.path);
                    return Err(Trouble::bad_request(reason));
                }
                Err(_) => {
                    let reason = format!("the body did not come within {body_time:?}");
                    return Err(Trouble::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", reason));
                }
            };
            // Trailers have no meaning here.
            let Ok(data) = frame.into_data() else { continue };
            let bytes = whole.len() + data.len();
            if bytes > body_bytes {
                return Err(too_large());
            }
            let fits = match &mut share {
                Some(share) => share.fit(bytes),
                None => {
                    share = Some(self.bodies.share(bytes, deadline).await?);
                    true
                }
            };
            if !fits {
                return Err(self.bodies.is_full());
            }
            whole.add(data);
        }
    }
}

/// A body while it arrives. Most bodies arrive in one piece, and are not copied.
#[derive(Default)]
enum Whole {
    #[default]
    Nothing,
    One(Bytes),
    Many(Vec<u8>),
}

impl Whole {
    fn len(&self) -> usize {
        match self {
            Whole::Nothing => 0,
            Whole::One(bytes) => bytes.len(),
            Whole::Many(bytes) => bytes.len(),
        }
    }

    fn add(&mut self, data: Bytes) {
        *self = match mem::take(self) {
            Whole::Nothing => Whole::One(data),
            Whole::One(first) => Whole::Many([first, data].concat()),
            Whole::Many(mut bytes) => {
                bytes.extend_from_slice(&data);
                Whole::Many(bytes)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Whole::Nothing => Bytes::new(),
            Whole::One(bytes) => bytes,
            Whole::Many(bytes) => bytes.into(),
        }
    }
}

/// Parses the JSON of a body. An empty body counts as an empty object.
pub(super) fn parsed<'b, T: Deserialize<'b>>(body: &'b Bytes) -> Result<T, Trouble> {
    let text = if body.is_empty() { b"{}" } else { &body[..] };
    match serde_json::from_slice(text) {
        Ok(Object(body)) => Ok(body),
        Err(error) => Err(Trouble::bad_request(format!("the body cannot be understood: {error}"))),
    }
}
