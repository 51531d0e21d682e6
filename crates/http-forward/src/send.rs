//! Sending a request to the node that owns its partition.

use std::{
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use http_body_util::Full;
use http_server::{
    body::Payload,
    problem::ProblemDetails,
    response::{IDEMPOTENCY_KEY, REQUEST_ID},
    spans::{RequestSpan, TRACEPARENT, TRACESTATE},
};
use hyper::{
    HeaderMap, Request,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, IF_MATCH},
};
use vvm::sysvvm::ownership::{Owner, OwnerRow};

use crate::{
    connection::PeerFailure,
    envelope::Envelope,
    forwarder::{ForwardRequest, Forwarder},
    peer::Peer,
    tries::TryEnd,
    way::Way,
};

/// The headers of a request that the owner gets, besides those that the node makes itself.
static PASSED_ON: [HeaderName; 8] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    ACCEPT,
    IF_MATCH,
    IDEMPOTENCY_KEY,
    HeaderName::from_static("last-event-id"),
    TRACEPARENT,
    TRACESTATE,
];

/// The time that the owner has for its answer after the deadline of the request.
const SENDER_WAITS: Duration = Duration::from_millis(250);

/// How often a request that waits for its answer checks the owner of its partition. Most answers
/// come sooner.
const OWNER_CHECK: Duration = Duration::from_millis(250);

/// The time that a former owner has for its answer.
const FORMER_OWNER: Duration = Duration::from_millis(250);

/// The reason why a node stopped waiting for an answer.
enum GivenUp {
    /// The partition has another owner.
    Superseded,
    Late,
}

impl Forwarder {
    /// Sends a request to the owner of its partition, and receives the answer.
    pub(crate) async fn send(
        &self,
        request: &ForwardRequest<'_>,
        mut way: Way<'_>,
        payload: &mut Payload<'_>,
    ) -> TryEnd {
        let (peer, owner, seen, to) = (way.peer, way.owner, way.seen, way.owner.advertised);
        let is_sent = AtomicBool::new(false);
        let mut span = self.tracer.forwarded(&request.head.span, peer.address);
        let answer = async {
            // 1. The limits on the way, until a connection is free.
            let who = request.asker_on_way(self.node.clock().now());
            let late = || PeerFailure::NotSent(format!("no connection to {to} was free in time"));
            let mut held = match way.enter(who, payload.size()).await {
                Ok(held) => held,
                Err(full) if full.is_late() => return Err(late()),
                Err(full) => return Ok(TryEnd::refused_for_good(full.into())),
            };
            if self.node.clock().now() >= request.until {
                return Err(late());
            }
            // 2. The owner, which gets the time that is left now.
            let envelope = Envelope {
                incarnation: owner.incarnation,
                partition: request.partition(),
                epoch: seen.epoch,
                left: request.until - self.node.clock().now(),
            };
            let mut sent = request_of(request, payload.bytes(), peer, envelope);
            span.write(sent.headers_mut());
            let answer =
                peer.ask(held.connection.take(), sent, way.can_be_sent_twice, &is_sent).await?;
            self.receive(request, way, payload, answer).await
        };
        let answer = self.unless_superseded(request, seen, pin!(answer)).await;
        note_end(&mut span, &answer);
        self.end_of(answer, owner, is_sent.load(Ordering::Acquire))
    }

    /// Waits for an answer: until the deadline of the request, and a moment longer. An owner that
    /// is replaced has only a moment.
    async fn unless_superseded<T>(
        &self,
        request: &ForwardRequest<'_>,
        seen: OwnerRow,
        mut answer: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, GivenUp> {
        let (node, clock) = (&self.node, self.node.clock());
        let mut until = request.until + SENDER_WAITS;
        let mut given_up = GivenUp::Late;
        loop {
            let now = clock.now();
            if now >= until {
                return Err(given_up);
            }
            let next: Instant = until.min(now + OWNER_CHECK);
            if let Ok(answer) = clock.timeout_at(next, answer.as_mut()).await {
                return Ok(answer);
            }
            if matches!(given_up, GivenUp::Late)
                && node.owner_of(request.app, request.partition()) != seen
            {
                given_up = GivenUp::Superseded;
                until = until.min(clock.now() + FORMER_OWNER);
            }
        }
    }

    fn end_of(
        &self,
        answer: Result<Result<TryEnd, PeerFailure>, GivenUp>,
        owner: Owner,
        is_sent: bool,
    ) -> TryEnd {
        let (counter, reason, is_sent) = match answer {
            // A limit of this node refused the request on its way.
            Ok(Ok(end)) if !is_sent => return end,
            Ok(Ok(end)) => {
                let is_refused = matches!(end, TryEnd::Refused(_));
                let counter =
                    if is_refused { &self.metrics.refused } else { &self.metrics.answered };
                counter.increment(1);
                return end;
            }
            Ok(Err(PeerFailure::NotSent(why))) => (&self.metrics.not_sent, why, false),
            Ok(Err(PeerFailure::Broken(why))) => {
                let reason = format!("the connection to {} broke: {why}", owner.advertised);
                (&self.metrics.broken, reason, true)
            }
            Err(GivenUp::Superseded) => {
                let reason = format!("{} does not own the partition any more", owner.advertised);
                (&self.metrics.abandoned, reason, is_sent)
            }
            Err(GivenUp::Late) => {
                let reason = format!("{} did not answer in time", owner.advertised);
                (&self.metrics.late, reason, is_sent)
            }
        };
        counter.increment(1);
        match is_sent {
            true => TryEnd::Unknown(reason),
            false => TryEnd::Refused(Err(ProblemDetails::unavailable("unreachable", reason))),
        }
    }
}

/// The request for the owner.
fn request_of(
    request: &ForwardRequest<'_>,
    body: Bytes,
    peer: &Peer,
    envelope: Envelope,
) -> Request<Full<Bytes>> {
    let head = request.head;
    let mut headers = HeaderMap::with_capacity(16);
    headers.insert(HOST, peer.host.clone());
    for name in &PASSED_ON {
        for value in head.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    if let Ok(id) = HeaderValue::from_str(&head.request) {
        headers.insert(REQUEST_ID, id);
    }
    envelope.write(&mut headers);
    let mut sent = Request::new(Full::new(body));
    *sent.method_mut() = head.method.clone();
    *sent.headers_mut() = headers;
    // The target of a client may have the form `http://host/path`.
    let target = head.uri.path_and_query().cloned().map(Into::into);
    *sent.uri_mut() = target.unwrap_or_default();
    sent
}

/// Notes the end of a try in its span.
fn note_end(span: &mut RequestSpan, answer: &Result<Result<TryEnd, PeerFailure>, GivenUp>) {
    match answer {
        Ok(Ok(TryEnd::Answered(answer, code))) => match answer {
            Ok(answer) => span.answered(answer.status(), code.as_deref()),
            Err(problem) => span.failed(problem.code()),
        },
        Ok(Ok(TryEnd::Refused(answer))) => match answer {
            Ok(answer) => span.answered(answer.status(), None),
            Err(problem) => span.failed(problem.code()),
        },
        Ok(Ok(TryEnd::Unknown(_)) | Err(PeerFailure::Broken(_))) => span.failed("broken"),
        Ok(Err(PeerFailure::NotSent(_))) => span.failed("not_sent"),
        Err(GivenUp::Superseded) => span.failed("superseded"),
        Err(GivenUp::Late) => span.failed("late"),
    }
}
