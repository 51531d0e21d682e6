//! Receiving the answer of another node.
//!
//! The whole answer is received before the client gets its first byte. So an answer that breaks is
//! never passed on, and a slow client does not hold a connection to the owner. Only a log is passed
//! on while it arrives.

use http_server::{
    body::Payload,
    limits::{Asker, Permit, held_bytes},
    problem::{NOT_OWNER, ProblemDetails},
    response::full_body,
};
use hyper::{
    Method, Response, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TRANSFER_ENCODING},
};

use crate::{
    connection::PeerFailure,
    envelope::PROBLEM,
    forwarder::{ForwardKind, ForwardRequest, Forwarder},
    peer_body::PeerBody,
    tries::{TryEnd, is_tried_again},
    way::Way,
};

/// The headers of an answer that belong to the connection or to the body, and not to the client.
static NOT_PASSED_ON: [HeaderName; 3] = [CONNECTION, TRANSFER_ENCODING, DATE];

/// The most bytes of the answer to a request that was refused.
const PROBLEM_BYTES: usize = 64 << 10;

impl Forwarder {
    /// Receives the answer of the owner.
    pub(crate) async fn receive(
        &self,
        request: &ForwardRequest<'_>,
        way: Way<'_>,
        payload: &mut Payload<'_>,
        answer: Response<PeerBody>,
    ) -> Result<TryEnd, PeerFailure> {
        let head = request.head;
        let (mut parts, body) = answer.into_parts();
        for name in &NOT_PASSED_ON {
            parts.headers.remove(name);
        }
        let code = parts.headers.remove(PROBLEM);
        let code = code.and_then(|code| code.to_str().ok().map(str::to_owned));
        let is_misdirected = parts.status == StatusCode::MISDIRECTED_REQUEST;
        let is_refused = is_misdirected || code.as_deref().is_some_and(is_tried_again);
        // 1. Bound the length. Only a log has no bound.
        let most = match request.kind {
            _ if is_refused => PROBLEM_BYTES,
            ForwardKind::Read | ForwardKind::Log { .. } => self.answers.most,
            ForwardKind::Write { most_answer_bytes, .. } => most_answer_bytes,
        };
        let bytes = match (body.len(), way.log) {
            (Some(bytes), _) if bytes <= most => bytes,
            (None, Some(log)) => {
                let answer = log.answer(self, parts, body, head.token_end);
                return Ok(TryEnd::Answered(Ok(answer), code));
            }
            (Some(bytes), _) => {
                let why = format!("the answer has {bytes} bytes, and this node takes {most}");
                return Err(PeerFailure::Broken(why));
            }
            (None, None) => return Err(PeerFailure::Broken("the answer has no length".to_owned())),
        };
        // The head of an answer to HEAD tells the length of the answer to GET.
        if head.method != Method::HEAD {
            parts.headers.remove(CONTENT_LENGTH);
        }
        // 2. Find memory for the body. A read waits for it. The answer to a write is taken in any
        // case.
        let bytes = if request.is_read() && !is_refused {
            let now = self.node.clock().now();
            // A request that waits here holds a connection, and draws that wait for a connection
            // hold memory.
            let asker = Asker::new(head.principal(), request.until);
            let asker = asker.half(now).moment(now);
            match self.answers.of(bytes).take(asker, bytes).await {
                Ok(memory) => held_bytes(body.collect().await?, memory),
                Err(full) => return Ok(TryEnd::refused_for_good(full.into())),
            }
        } else {
            let bytes = body.collect().await?;
            let memory =
                if is_refused { None } else { way.drawn.or_else(|| payload.take_memory()) };
            Permit::around(memory, bytes)
        };
        let answer = Response::from_parts(parts, full_body(bytes));
        Ok(match is_refused {
            // Only nodes know what 421 means here.
            true if is_misdirected => TryEnd::Refused(Err(ProblemDetails::unavailable(
                NOT_OWNER,
                "the owner of the partition is changing",
            ))),
            true => TryEnd::Refused(Ok(answer)),
            false => TryEnd::Answered(Ok(answer), code),
        })
    }
}
