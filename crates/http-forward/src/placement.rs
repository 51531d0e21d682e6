//! The placement of a request: the owner of its partition makes each try, on this node or on
//! another one.
//!
//! A request waits while its partition has no owner, or while the owner is not ready. So a
//! partition that moves looks like a slow partition. Only a limited number of requests for one
//! partition are tried at the same time ([`PartitionLimits`]); the others wait in order.

use std::{fmt, sync::Arc, time::Duration};

use http_server::{
    body::Payload,
    limits::{Asker, Full, Limit, Need, Permit, take},
    problem::{Answer, NOT_OWNER, ProblemDetails},
    response::IDEMPOTENCY_KEY,
};
use vvm::sysvvm::ownership::{Owner, OwnerRow};

use crate::{
    forwarder::{ForwardKind, ForwardRequest, Forwarder},
    limits::{HeldOfPartition, PartitionLimits},
    log::LogPermits,
    outcome::code_of,
    peer::Peer,
    tries::{NextStep, Tries, TryEnd, is_tried_again},
    way::Way,
};

/// The longest wait for another owner before the second try. The wait doubles with each try.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The shortest time between two tries.
const LEAST_PAUSE: Duration = Duration::from_millis(2);

/// The tries of one request. [`next`](Placement::next) makes those on other nodes; the caller makes
/// those on this node, and tells their [answers](Placement::tried).
pub struct Placement<'f> {
    forwarder: &'f Forwarder,
    request: ForwardRequest<'f>,
    tries: Tries,
    /// What the request holds over its tries: from its first wait on, or while another node does
    /// it.
    held: HeldOfPartition,
    limits: Option<Arc<PartitionLimits>>,
    /// The row of the owner that the last try was for.
    seen: OwnerRow,
    pause: Duration,
    /// The end of the last try.
    end: Option<TryEnd>,
}

/// What follows for a request.
#[expect(missing_debug_implementations, reason = "the body of an answer has none")]
pub enum NextTry {
    /// This node owns the partition, and tries the request now.
    Here,
    /// The request has its answer.
    Answered(Answer),
}

impl fmt::Debug for Placement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement").field("request", &self.request).finish_non_exhaustive()
    }
}

/// The node that does the next try.
enum Target {
    Here,
    Nobody(ProblemDetails),
    Other(Owner),
}

impl<'f> Placement<'f> {
    /// Begins the tries of a request. Its body is received already, because a further try needs it
    /// again.
    pub fn new(forwarder: &'f Forwarder, request: ForwardRequest<'f>) -> Placement<'f> {
        let has_key = request.head.headers.contains_key(IDEMPOTENCY_KEY);
        Placement {
            tries: Tries::new(request.is_read(), has_key),
            seen: forwarder.node.owner_of(request.app, request.partition()),
            forwarder,
            request,
            held: HeldOfPartition::default(),
            limits: None,
            pause: FIRST_PAUSE,
            end: None,
        }
    }

    /// Tries the request on other nodes, until it is answered or this node must try it.
    pub async fn next(&mut self, payload: &mut Payload<'_>) -> NextTry {
        loop {
            if let Some(end) = self.end.take() {
                if let Some(answer) = self.answer_after(end, payload).await {
                    return NextTry::Answered(answer);
                }
                let Placement { forwarder, request, .. } = self;
                self.seen = forwarder.node.owner_of(request.app, request.partition());
            }
            self.end = Some(match self.target() {
                Target::Here => return NextTry::Here,
                Target::Nobody(why) => TryEnd::Refused(Err(why)),
                // Boxed, so that requests that this node does itself stay small.
                Target::Other(owner) => Box::pin(self.try_other(owner, payload)).await,
            });
        }
    }

    /// Notes the answer of a try on this node.
    pub fn tried(&mut self, answer: Answer) {
        self.end = Some(match answer {
            Err(problem) if is_tried_again(problem.code()) => TryEnd::Refused(Err(problem)),
            answer => {
                let code = code_of(&answer).map(str::to_owned);
                TryEnd::Answered(answer, code)
            }
        });
    }

    fn target(&self) -> Target {
        let Placement { forwarder, request, seen, .. } = self;
        // The table may be a second old, and the node itself knows better.
        let why = match request.app.at(request.ws) {
            Ok(_) => return Target::Here,
            Err(why) => why,
        };
        match seen.owner {
            None => {
                let reason = format!("no node owns partition {} now", why.partition);
                Target::Nobody(ProblemDetails::unavailable(NOT_OWNER, reason))
            }
            Some(owner) if forwarder.node.incarnation() == Some(owner.incarnation) => {
                let reason = format!("partition {} begins to work", why.partition);
                Target::Nobody(ProblemDetails::unavailable("recovering", reason))
            }
            Some(owner) => Target::Other(owner),
        }
    }

    /// The answer after a try; `None` if it is time for another try.
    async fn answer_after(&mut self, end: TryEnd, payload: &mut Payload<'_>) -> Option<Answer> {
        let last = match self.tries.next(end) {
            NextStep::Answer(answer) => return Some(answer),
            NextStep::Again(answer) => answer,
        };
        let Placement { forwarder, request, seen, pause, .. } = *self;
        let clock = forwarder.node.clock();
        let began = clock.now();
        if began >= request.until {
            return Some(last);
        }
        // The last answer ends with this try, and may have the memory of the body.
        if let Err(problem) = forwarder.bodies.take_again(request.head, payload) {
            return Some(self.tries.settled(Err(problem), None));
        }
        let parked = forwarder.metrics.park();
        match self.park(payload.size()).await {
            Ok(()) => {}
            Err(full) if full.is_late() => return Some(last),
            Err(full) => return Some(self.tries.settled(Err(full.into()), None)),
        }
        // The request may have waited long for its turn, so the owner is looked up again.
        if clock.now() < began + pause {
            let until = request.until.min(began + pause);
            forwarder.node.owner_changed(request.app, request.partition(), seen, until).await;
            clock.sleep_until(began + LEAST_PAUSE).await;
        }
        if clock.now() >= request.until {
            return Some(last);
        }
        drop(parked);
        forwarder.metrics.retries.increment(1);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        None
    }

    /// Tries a request at the owner of its partition.
    async fn try_other(&mut self, owner: Owner, payload: &mut Payload<'_>) -> TryEnd {
        let forwarder = self.forwarder;
        let Some(peer) = owner.cluster.and_then(|address| forwarder.peers.peer(address)) else {
            let reason = format!("this node cannot forward requests to {}", owner.advertised);
            let problem = ProblemDetails::unavailable(NOT_OWNER, reason);
            return TryEnd::refused_for_good(problem.with("owner", owner.advertised.to_string()));
        };
        let request = self.request;
        match self.way_to(&peer, owner).await {
            Ok(way) => forwarder.send(&request, way, payload).await,
            Err(problem) => TryEnd::refused_for_good(problem),
        }
    }

    /// Waits for what a try needs before it takes anything of its way to the owner.
    async fn way_to<'w>(
        &'w mut self,
        peer: &'w Arc<Peer>,
        owner: Owner,
    ) -> Result<Way<'w>, ProblemDetails> {
        let (request, seen, partition) = (self.request, self.seen, self.limits());
        let (mut log, mut drawn) = (None, None);
        match request.kind {
            ForwardKind::Log { is_followed: true } => {
                let principal = request.head.principal();
                log = Some(LogPermits::followed(self.forwarder, peer, owner, principal)?);
            }
            ForwardKind::Log { is_followed: false } => {
                let who = Asker::new(request.head.principal(), request.until);
                log = Some(LogPermits::Once(self.before_way(&peer.limits.logs, who, 1).await?));
            }
            // The owner has drawn the numbers when their answer arrives, so it would be too late
            // then to take memory for it.
            ForwardKind::Write { reserved_bytes: Some(bytes), .. } => {
                let now = self.forwarder.node.clock().now();
                let who = request.head.asker(request.until, now).half(now);
                let memory = self.forwarder.answers.of(bytes);
                drawn = Some(self.before_way(memory, who, bytes).await?);
            }
            ForwardKind::Read | ForwardKind::Write { reserved_bytes: None, .. } => {}
        }
        let can_be_sent_twice = self.tries.can_be_sent_twice();
        let held = &mut self.held;
        Ok(Way { peer, owner, seen, partition, held, log, drawn, can_be_sent_twice })
    }

    /// Takes units of a limit that comes before those of the way. A request that must wait for them
    /// gives back its permits of the partition, because others would wait for those.
    async fn before_way(
        &mut self,
        limit: &Arc<Limit>,
        who: Asker<'_>,
        units: usize,
    ) -> Result<Permit, Full> {
        if let Ok(permit) = limit.try_take(who.principal(), units) {
            return Ok(permit);
        }
        self.held = HeldOfPartition::default();
        limit.take(who, units).await
    }

    /// Counts the request among those that wait for the partition, until it is tried again.
    async fn park(&mut self, bytes: usize) -> Result<(), Full> {
        let (limits, request) = (self.limits(), self.request);
        let who = request.asker_on_way(self.forwarder.node.clock().now());
        let held = &mut self.held;
        let needs = &mut [
            Need { limit: &limits.requests, units: 1, held: &mut held.requests },
            Need { limit: &limits.bytes, units: bytes, held: &mut held.bytes },
            Need { limit: &limits.tries, units: 1, held: &mut held.tries },
        ];
        take(who, needs).await
    }

    /// The limits of the partition.
    fn limits(&mut self) -> Arc<PartitionLimits> {
        let Placement { forwarder, request, .. } = *self;
        let of = || forwarder.partitions.of(request.app_number, request.partition());
        Arc::clone(self.limits.get_or_insert_with(of))
    }
}
