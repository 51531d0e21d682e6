//! The placement of a request: each of its tries is made on this node or on another one, by the
//! owner of its partition.
//!
//! A request waits while its partition has no owner, or while the owner is not ready. So a
//! partition that moves looks like a slow partition. The first tries are made at once. All further
//! tries of the requests for one partition take turns ([`Parking`](crate::parking::Parking)).

use std::{fmt, sync::Arc, time::Duration};

use clock::Instant;
use http_server::{
    body::Payload,
    limits::{Asker, Limit, Permit},
    problem::{Answer, NOT_LEADER, ProblemDetails},
    response::IDEMPOTENCY_KEY,
};
use tokio::sync::OwnedSemaphorePermit;
use vvm::sysvvm::ownership::{Owner, OwnerRow};

use crate::{
    forwarder::{ForwardKind, ForwardRequest, Forwarder},
    log::LogPlace,
    outcome::code_of,
    parking::{Parked, ParkedPartition},
    peer::Peer,
    quota::QuotaShare,
    tries::{NextStep, Tries, TryEnd, is_tried_again},
    way::Way,
};

/// The longest wait for another owner before the first further try. The wait doubles with each try.
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
    held: HeldPlaces,
    parked: Option<Arc<ParkedPartition>>,
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

/// The places that a request holds over its tries: from its first wait on, or while another node
/// answers it.
#[derive(Default)]
struct HeldPlaces {
    /// The place of a read among those that its principal sends to the owner of the partition.
    read: Option<Permit>,
    quota: Option<QuotaShare>,
    lane: Option<OwnedSemaphorePermit>,
}

impl HeldPlaces {
    /// Takes a place for a read. A read that has to wait gives back first what the requests of all
    /// principals share, and takes it again later.
    async fn permit_in(
        &mut self,
        reads: &Arc<Limit>,
        principal: Option<&str>,
        until: Instant,
    ) -> Result<Permit, ProblemDetails> {
        if let Ok(permit) = reads.try_take(principal, 1) {
            return Ok(permit);
        }
        self.give_back_shared();
        Ok(reads.take(Asker::new(principal, until), 1).await?)
    }

    fn give_back_shared(&mut self) {
        (self.quota, self.lane) = (None, None);
    }
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
            held: HeldPlaces::default(),
            parked: None,
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
                // A request that this node does has no room for this future.
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
                Target::Nobody(ProblemDetails::unavailable(NOT_LEADER, reason))
            }
            Some(owner) if forwarder.node.incarnation() == Some(owner.incarnation) => {
                let reason = format!("partition {} begins to work", why.partition);
                Target::Nobody(ProblemDetails::unavailable("recovering", reason))
            }
            Some(owner) => Target::Other(owner),
        }
    }

    /// The answer after a try; `None` if the time for another try has come.
    async fn answer_after(&mut self, end: TryEnd, payload: &mut Payload<'_>) -> Option<Answer> {
        let last = match self.tries.next(end) {
            NextStep::Answer(answer) => return Some(answer),
            NextStep::Again(answer) => answer,
        };
        let Placement { forwarder, request, .. } = *self;
        if forwarder.node.clock().now() >= request.until {
            return Some(last);
        }
        // The last answer ends with this try, and may have the share of the body.
        let counted = self
            .take_quota(payload)
            .and_then(|()| forwarder.bodies.take_again(request.head, payload));
        if let Err(problem) = counted {
            return Some(self.tries.settled(Err(problem), None));
        }
        if !self.wait().await {
            return Some(last);
        }
        forwarder.metrics.retries.increment(1);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        None
    }

    /// Waits before the next try. Returns false if the time of the request is over.
    async fn wait(&mut self) -> bool {
        let Placement { forwarder, request, seen, pause, .. } = *self;
        let clock = forwarder.node.clock();
        let _counted = Parked::new(&forwarder.metrics.parked);
        let began = clock.now();
        if self.held.lane.is_none() {
            let lane = Arc::clone(&self.parked().lanes).acquire_owned();
            self.held.lane = clock.timeout_at(request.until, lane).await.ok().and_then(Result::ok);
            if self.held.lane.is_none() {
                return false;
            }
        }
        let now = clock.now();
        // The request may have waited long for its turn, so the owner is looked up again.
        if now < began + pause {
            let until = request.until.min(began + pause);
            forwarder.node.owner_changed(request.app, request.partition(), seen, until).await;
            clock.sleep_until(began + LEAST_PAUSE).await;
        }
        clock.now() < request.until
    }

    /// Tries a request at the owner of its partition.
    async fn try_other(&mut self, owner: Owner, payload: &mut Payload<'_>) -> TryEnd {
        let forwarder = self.forwarder;
        let Some(peer) = owner.cluster.and_then(|address| forwarder.peers.peer(address)) else {
            let reason = format!("this node cannot forward requests to {}", owner.advertised);
            let problem = ProblemDetails::unavailable(NOT_LEADER, reason);
            return TryEnd::refused_for_good(problem.with("leader", owner.advertised.to_string()));
        };
        match self.way_to(&peer, owner, payload).await {
            Ok(way) => forwarder.send(&self.request, way, payload).await,
            Err(problem) => TryEnd::refused_for_good(problem),
        }
    }

    /// Waits for what a try needs on its way to the owner.
    ///
    /// Invariant: a read has the share of its principal in the connections to the owner before it
    /// takes anything that the requests of all principals share. In a simpler version a principal
    /// that takes its answers slowly holds all connections to the owner, because each of its reads
    /// waits on one of them for memory of the principal, and all other principals wait for a
    /// connection.
    async fn way_to<'w>(
        &mut self,
        peer: &'w Arc<Peer>,
        owner: Owner,
        payload: &Payload<'_>,
    ) -> Result<Way<'w>, ProblemDetails> {
        let request = self.request;
        let (mut log, mut read, mut drawn) = (None, None, None);
        match request.kind {
            ForwardKind::Read => read = self.read_place(peer).await?,
            ForwardKind::Write { reserved_bytes: Some(bytes), .. } => {
                drawn = Some(self.memory_for_draw(bytes).await?);
            }
            ForwardKind::Log { .. } | ForwardKind::Write { reserved_bytes: None, .. } => {}
        }
        self.take_quota(payload)?;
        if let ForwardKind::Log { is_followed } = request.kind {
            // A log that waits here takes no place of the peer meanwhile.
            log = Some(LogPlace::take(self.forwarder, &request, peer, owner, is_followed).await?);
        }
        Ok(Way {
            peer,
            owner,
            seen: self.seen,
            parked: self.parked(),
            log,
            drawn,
            _read: read,
            can_be_sent_twice: self.tries.can_be_sent_twice(),
        })
    }

    /// Waits for the places of a read among the reads of its principal that the owner does. A write
    /// waits for no share of its principal.
    ///
    /// The read keeps its place in the partition until it is answered: if it gave the place back
    /// after each try, later reads of its principal would take it. The place at the owner is
    /// returned, for one try. Between two tries the read uses no connection to this owner, which
    /// may be ready for reads in other partitions.
    async fn read_place(&mut self, peer: &Peer) -> Result<Option<Permit>, ProblemDetails> {
        let (forwarder, request) = (self.forwarder, self.request);
        let principal = request.head.principal();
        if principal.is_none() {
            return Ok(None);
        }
        let now = forwarder.node.clock().now();
        // The other half of the time belongs to the read.
        let until = now + (request.until - now) / 2;
        if self.held.read.is_none() {
            let parked = self.parked();
            let place = self.held.permit_in(&parked.reads, principal, until).await?;
            self.held.read = Some(place);
        }
        self.held.permit_in(&peer.reads, principal, until).await.map(Some)
    }

    /// Takes the memory for the numbers that another node draws. The owner has drawn the numbers
    /// when their answer arrives, so it would be too late then.
    async fn memory_for_draw(&mut self, bytes: usize) -> Result<Permit, ProblemDetails> {
        let head = self.request.head;
        let memory = self.forwarder.answers.of(bytes);
        if let Ok(permit) = memory.try_take(head.principal(), bytes) {
            return Ok(permit);
        }
        // The request takes again later what the requests of all principals share.
        self.held.give_back_shared();
        let now = self.forwarder.node.clock().now();
        Ok(memory.take(head.asker(self.request.until, now).half(now), bytes).await?)
    }

    /// Counts the request among those that wait for the partition, or that another node answers.
    fn take_quota(&mut self, payload: &Payload<'_>) -> Result<(), ProblemDetails> {
        if self.held.quota.is_none() {
            let quota = self.parked().quota.take(payload.size()).ok_or_else(|| {
                let reason = "too many requests wait for this partition already";
                ProblemDetails::unavailable("partition_busy", reason)
            })?;
            self.held.quota = Some(quota);
        }
        Ok(())
    }

    fn parked(&mut self) -> Arc<ParkedPartition> {
        let Placement { forwarder, request, .. } = *self;
        let of = || forwarder.parking.of(request.app_number, request.partition());
        Arc::clone(self.parked.get_or_insert_with(of))
    }
}
