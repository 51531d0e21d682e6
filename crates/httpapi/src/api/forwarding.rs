//! Forwarding a request to the node that owns its partition.
//!
//! The whole answer is received before the client gets its first byte. So an answer that breaks is
//! never passed on, and a slow client does not hold a connection to the owner. Only a log is passed
//! on while it arrives.

use std::{
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{
        ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST, HeaderName,
        HeaderValue, IF_MATCH, TRANSFER_ENCODING,
    },
};
use vvm::sysvvm::ownership::{Owner, OwnerRow};

use super::{
    body::Payload,
    dispatch::PROBLEM,
    done::{BATCH_BYTES, DONE_BYTES, within_share},
    forwarded_log::LogPlace,
    handler::{ApiHandler, RequestHead},
    headers::IDEMPOTENCY_KEY,
    numbers::DRAWN_BYTES,
    routing::RoutedRequest,
    tries::{Tries, TryEnd, is_tried_again},
};
use crate::{
    cluster::{Cluster, ForwardMark, ParkedPartition, Peer, PeerBody, PeerFailure},
    memory::MemoryShare,
    places::PlaceTaker,
    problem::{NOT_LEADER, ProblemDetails},
    read::READ_BYTES,
    response::{REQUEST_ID, full_body},
    route::ApiOperation,
    spans::{RequestSpan, TRACEPARENT, TRACESTATE},
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

/// The headers of an answer that belong to the connection or to the body, and not to the client.
static NOT_PASSED_ON: [HeaderName; 3] = [CONNECTION, TRANSFER_ENCODING, DATE];

/// The time that the owner has for its answer after the deadline of the request.
const SENDER_WAITS: Duration = Duration::from_millis(250);

/// The most bytes of the answer to a request that was refused.
const PROBLEM_BYTES: usize = 64 << 10;

/// The interval at which a request that waits for its answer checks the owner of its partition.
/// Most answers come sooner.
const OWNER_CHECK: Duration = Duration::from_millis(250);

/// The time that a former owner has for its answer.
const FORMER_OWNER: Duration = Duration::from_millis(250);

/// The reason why a node stopped waiting for an answer.
enum GivenUp {
    /// The partition has another owner.
    Superseded,
    Late,
}

/// The node that gets a request, and the way to it.
pub(super) struct ForwardTarget<'a> {
    pub(super) cluster: &'a Cluster,
    /// The ownership row by which the node was chosen.
    pub(super) seen: OwnerRow,
    pub(super) owner: Owner,
    pub(super) parked: &'a ParkedPartition,
}

impl ApiHandler {
    /// Sends a request to the owner of its partition, and receives the answer. A draw has the
    /// memory for its numbers.
    pub(super) async fn forward(
        &self,
        ForwardTarget { cluster, seen, owner, parked }: ForwardTarget<'_>,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        (payload, drawn): (&mut Payload<'_>, Option<MemoryShare>),
        tries: &Tries,
    ) -> TryEnd {
        let peer = owner.cluster.and_then(|address| Some((address, cluster.peers.peer(address)?)));
        let Some((address, peer)) = peer else {
            let reason = format!("this node cannot forward requests to {}", owner.advertised);
            let problem = ProblemDetails::unavailable(NOT_LEADER, reason);
            return refused_for_good(problem.with("leader", owner.advertised.to_string()));
        };
        // A request for a log that waits here takes no place of the peer meanwhile.
        let (log, follower) = match self.log_place(head, request, &peer, owner).await {
            Ok(places) => places,
            Err(problem) => return refused_for_good(problem),
        };
        let Some(_place) = peer.quota.take(payload.len()) else {
            let reason = format!("too many requests wait for the node {}", owner.advertised);
            return refused_for_good(ProblemDetails::unavailable("peer_busy", reason));
        };
        let is_sent = AtomicBool::new(false);
        let mut span = self.tracer.forwarded(&head.span, address);
        let answer = async {
            let (_connection, slot) = match follower {
                Some(slot) => (None, slot),
                // The semaphore is never closed.
                None => (parked.connections.acquire().await.ok(), peer.slot().await?),
            };
            if self.node.clock().now() >= head.until {
                let why = format!("no connection to {} was free in time", owner.advertised);
                return Err(PeerFailure::NotSent(why));
            }
            // The owner gets the time that is left now.
            let mut sent = self.forwarded(head, request, payload.bytes(), &peer, (seen, owner));
            span.write(sent.headers_mut());
            let answer = peer.ask(slot, sent, tries.can_be_sent_twice(), &is_sent).await?;
            self.received(head, request, (payload, drawn), answer, log).await
        };
        let answer = self.unless_superseded(head, request, seen, pin!(answer)).await;
        note_end(&mut span, &answer);
        self.end_of(answer, owner, is_sent.load(Ordering::Acquire))
    }

    fn end_of(
        &self,
        answer: Result<Result<TryEnd, PeerFailure>, GivenUp>,
        owner: Owner,
        is_sent: bool,
    ) -> TryEnd {
        let (counter, reason, is_sent) = match answer {
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

    /// The request for the owner.
    fn forwarded(
        &self,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        body: Bytes,
        peer: &Peer,
        (seen, owner): (OwnerRow, Owner),
    ) -> Request<Full<Bytes>> {
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
        let mark = ForwardMark {
            incarnation: owner.incarnation,
            partition: request.app.partition_of(request.ws),
            epoch: seen.epoch,
            left: head.until - self.node.clock().now(),
        };
        mark.write(&mut headers);
        let mut forwarded = Request::new(Full::new(body));
        *forwarded.method_mut() = head.method.clone();
        *forwarded.headers_mut() = headers;
        // The target of a client may have the form `http://host/path`.
        let target = head.uri.path_and_query().cloned().map(Into::into);
        *forwarded.uri_mut() = target.unwrap_or_default();
        forwarded
    }

    /// Receives the answer of the owner.
    async fn received(
        &self,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        (payload, drawn): (&mut Payload<'_>, Option<MemoryShare>),
        answer: Response<PeerBody>,
        log: Option<LogPlace>,
    ) -> Result<TryEnd, PeerFailure> {
        let (mut parts, body) = answer.into_parts();
        for name in &NOT_PASSED_ON {
            parts.headers.remove(name);
        }
        let code = parts.headers.remove(PROBLEM);
        let code = code.and_then(|code| code.to_str().ok().map(str::to_owned));
        let is_refused = parts.status == StatusCode::MISDIRECTED_REQUEST
            || code.as_deref().is_some_and(is_tried_again);
        let most = match request.endpoint.is_read() {
            _ if is_refused => PROBLEM_BYTES,
            true => self.settings.answers_bytes,
            false => most_of_write(request.operation),
        };
        let bytes = match (body.len(), log) {
            (Some(bytes), _) if bytes <= most => bytes,
            (None, Some(log)) => {
                return Ok(TryEnd::Answered(
                    Ok(self.passed_on((parts, body), log, head.token_end)),
                    code,
                ));
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
        let bytes = match request.endpoint.is_read() && !is_refused {
            true => {
                let pool = if bytes > READ_BYTES { &self.large_answers } else { &self.answers };
                let taker = PlaceTaker::between_nodes(self.access.principal(&head.caller));
                match pool.reserve_in_half(taker, bytes, head.until).await {
                    Ok(share) => share.into_bytes(body.collect().await?),
                    Err(problem) => return Ok(refused_for_good(problem)),
                }
            }
            // A request that was done is answered, whether there is free memory or not.
            false => {
                let bytes = body.collect().await?;
                let share = if is_refused { None } else { drawn.or_else(|| payload.take_share()) };
                within_share(share, bytes)
            }
        };
        let is_misdirected = parts.status == StatusCode::MISDIRECTED_REQUEST;
        let answer = Response::from_parts(parts, full_body(bytes));
        Ok(match is_refused {
            // Only nodes know what 421 means here.
            true if is_misdirected => TryEnd::Refused(Err(ProblemDetails::unavailable(
                NOT_LEADER,
                "the owner of the partition is changing",
            ))),
            true => TryEnd::Refused(Ok(answer)),
            false => TryEnd::Answered(Ok(answer), code),
        })
    }

    /// Waits for an answer: until the deadline of the request, and a moment longer. An owner that
    /// is replaced has only a moment.
    async fn unless_superseded<T>(
        &self,
        head: &RequestHead,
        &RoutedRequest { app, ws, .. }: &RoutedRequest<'_>,
        seen: OwnerRow,
        mut answer: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, GivenUp> {
        let clock = self.node.clock();
        let partition = app.partition_of(ws);
        let mut until = head.until + SENDER_WAITS;
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
            if matches!(given_up, GivenUp::Late) && self.node.owner_of(app, partition) != seen {
                given_up = GivenUp::Superseded;
                until = until.min(clock.now() + FORMER_OWNER);
            }
        }
    }
}

/// The most bytes of the answer to a request that writes: as many as the owner can answer. A write
/// is done before its answer arrives here, so no limit of this node may refuse the answer.
fn most_of_write(operation: &ApiOperation) -> usize {
    match operation {
        ApiOperation::DrawNumbers(_) => DRAWN_BYTES,
        ApiOperation::CommandBatch => BATCH_BYTES,
        _ => DONE_BYTES,
    }
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

/// The end of a try whose answer is final although nothing was done.
fn refused_for_good(problem: ProblemDetails) -> TryEnd {
    TryEnd::Answered(Err(problem), None)
}
