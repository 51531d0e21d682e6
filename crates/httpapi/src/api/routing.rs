//! The way of a request through a cluster: it is tried at the owner of its partition, here or on
//! another node, until it is done or its time is over.
//!
//! A request waits while its partition has no owner, or while the owner is not ready. So a
//! partition that moves looks like a slow partition. The first tries are made at once. All further
//! tries of the requests for one partition take turns ([`Parking`](crate::cluster::Parking)).

use std::{sync::Arc, time::Duration};

use clock::Instant;
use tokio::sync::OwnedSemaphorePermit;
use vvm::{
    App,
    eventlog::WsId,
    sysvvm::ownership::{Owner, OwnerRow},
};

use super::{
    batch::code_of,
    body::Payload,
    forwarding::ForwardTarget,
    handler::{ApiHandler, RequestHead},
    headers::IDEMPOTENCY_KEY,
    numbers::{draw_body, numbers_drawn},
    reads::check_log_version,
    tries::{Answer, NextStep, Tries, TryEnd, is_tried_again},
};
use crate::{
    cluster::{Cluster, Parked, ParkedPartition, QuotaShare, ReadPlaces},
    memory::MemoryShare,
    places::Place,
    problem::{NOT_LEADER, ProblemDetails},
    route::{ApiOperation, Endpoint},
};

/// The longest wait for another owner before the first further try. The wait doubles with each try.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The shortest time between two tries.
const LEAST_PAUSE: Duration = Duration::from_millis(2);

/// A request and its route.
pub(super) struct RoutedRequest<'r> {
    pub(super) app: &'r App,
    pub(super) ws: WsId,
    pub(super) endpoint: &'static Endpoint,
    pub(super) operation: &'r ApiOperation,
}

/// The places that a request holds over its tries: from its first wait on, or while another node
/// answers it.
#[derive(Default)]
struct HeldPlaces {
    /// The place of a read among those that its principal sends to the owner of the partition.
    read: Option<Place>,
    quota: Option<QuotaShare>,
    lane: Option<OwnedSemaphorePermit>,
}

impl HeldPlaces {
    /// Takes a place for a read. A read that has to wait gives back first what the requests of all
    /// principals share, and takes it again later.
    async fn place_in(
        &mut self,
        reads: &ReadPlaces,
        principal: Option<&str>,
        until: Instant,
    ) -> Result<Place, ProblemDetails> {
        if let Some(place) = reads.try_take(principal) {
            return Ok(place);
        }
        (self.quota, self.lane) = (None, None);
        reads.take(principal, until).await
    }
}

impl ApiHandler {
    /// Answers a request on this node or by another one.
    pub(super) async fn answer_routed(
        &self,
        cluster: &Cluster,
        head: &mut RequestHead,
        request: &RoutedRequest<'_>,
        payload: &mut Payload<'_>,
    ) -> Answer {
        let &RoutedRequest { app, ws, endpoint, .. } = request;
        if endpoint.is_log() {
            check_log_version(head)?;
        }
        // The body is received before the first try, because another try needs it again.
        if endpoint.body.is_some() {
            head.until = self.receive_body(head, payload).await?.deadline;
        } else {
            head.until = self.deadline(head);
        }
        let partition = app.partition_of(ws);
        let mut tries = Tries::new(endpoint.is_read(), head.headers.contains_key(IDEMPOTENCY_KEY));
        let (mut parked, mut held) = (None, HeldPlaces::default());
        let mut pause = FIRST_PAUSE;
        loop {
            let seen = self.node.owner_of(app, partition);
            let end = match self.target(request, seen) {
                RequestTarget::Here => self.try_here(head, request, payload).await,
                RequestTarget::Nobody(why) => refused(why),
                RequestTarget::Other(owner) => {
                    let parked = self.parked(&mut parked, cluster, app, partition);
                    let to = ForwardTarget { cluster, seen, owner, parked };
                    let forward = self.try_other(to, head, request, payload, (&tries, &mut held));
                    // A request that this node does has no room for this future.
                    Box::pin(forward).await
                }
            };
            let last = match tries.next(end) {
                NextStep::Answer(answer) => return answer,
                NextStep::Again(answer) => answer,
            };
            if self.node.clock().now() >= head.until || !payload.is_whole() {
                return last;
            }
            let parked = self.parked(&mut parked, cluster, app, partition);
            if let Err(problem) = self.take_quota(&mut held, parked, payload) {
                return tries.settled(Err(problem), None);
            }
            // The last answer ends with this try, and may have the share of the body.
            let principal = self.access.principal(&head.caller);
            if let Err(problem) = payload.share_again(&self.bodies, principal) {
                return tries.settled(Err(problem), None);
            }
            if !self.wait(head, request, seen, pause, parked, &mut held).await {
                return last;
            }
            self.metrics.retries.increment(1);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tries a request at the owner of its partition.
    ///
    /// Invariant: a read has the share of its principal in the connections to the owner before it
    /// takes anything that the requests of all principals share. In a simpler version a principal
    /// that takes its answers slowly holds all these connections, because each of its reads waits
    /// on one of them for memory of the principal, and all other principals wait for a connection.
    async fn try_other(
        &self,
        to: ForwardTarget<'_>,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        payload: &mut Payload<'_>,
        (tries, held): (&Tries, &mut HeldPlaces),
    ) -> TryEnd {
        let _place = match self.read_places(&to, head, request, held).await {
            Ok(place) => place,
            Err(problem) => return TryEnd::Answered(Err(problem), None),
        };
        let drawn = match self.memory_for_draw(head, request, payload, held).await {
            Ok(drawn) => drawn,
            Err(problem) => return TryEnd::Answered(Err(problem), None),
        };
        match self.take_quota(held, to.parked, payload) {
            Ok(()) => self.forward(to, head, request, (payload, drawn), tries).await,
            Err(problem) => TryEnd::Answered(Err(problem), None),
        }
    }

    /// Takes the memory for the numbers that another node draws; `None` for other requests. The
    /// owner has drawn the numbers when their answer arrives, so it would be too late then.
    async fn memory_for_draw(
        &self,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        payload: &mut Payload<'_>,
        held: &mut HeldPlaces,
    ) -> Result<Option<MemoryShare>, ProblemDetails> {
        let Some(count) = numbers_drawn(request, &payload.bytes()) else { return Ok(None) };
        if let Ok(share) = self.try_memory_for_numbers(head, count) {
            return Ok(Some(share));
        }
        // The request takes again later what the requests of all principals share.
        (held.quota, held.lane) = (None, None);
        payload.replace(draw_body(count));
        self.memory_for_numbers(head, count, head.until).await.map(Some)
    }

    /// Waits for the places of a read among the reads of its principal that the owner does. Logs
    /// have places of their own. A write waits for no share of its principal.
    ///
    /// The read keeps its place in the partition until it is answered: if it gave the place back
    /// after each try, later reads of its principal would take it. The place at the owner is
    /// returned, for one try. Between two tries the read uses no connection to this owner, which
    /// may be ready for reads in other partitions.
    async fn read_places(
        &self,
        to: &ForwardTarget<'_>,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        held: &mut HeldPlaces,
    ) -> Result<Option<Place>, ProblemDetails> {
        let principal = self.access.principal(&head.caller);
        if principal.is_none() || !request.endpoint.is_read() || request.endpoint.is_log() {
            return Ok(None);
        }
        let peer = to.owner.cluster.and_then(|address| to.cluster.peers.peer(address));
        let Some(peer) = peer else { return Ok(None) };
        let now = self.node.clock().now();
        // The other half of the time belongs to the read.
        let until = now + (head.until - now) / 2;
        if held.read.is_none() {
            held.read = Some(held.place_in(&to.parked.reads, principal, until).await?);
        }
        held.place_in(&peer.reads, principal, until).await.map(Some)
    }

    /// Waits before the next try. Returns false if the time of the request is over.
    async fn wait(
        &self,
        head: &RequestHead,
        &RoutedRequest { app, ws, .. }: &RoutedRequest<'_>,
        seen: OwnerRow,
        pause: Duration,
        parked: &ParkedPartition,
        held: &mut HeldPlaces,
    ) -> bool {
        let clock = self.node.clock();
        let _counted = Parked::new(&self.metrics.parked);
        let began = clock.now();
        if held.lane.is_none() {
            let lane = Arc::clone(&parked.lanes).acquire_owned();
            held.lane = clock.timeout_at(head.until, lane).await.ok().and_then(Result::ok);
            if held.lane.is_none() {
                return false;
            }
        }
        let now = clock.now();
        // The request may have waited long for its turn, so the owner is looked up again.
        if now < began + pause {
            let until = head.until.min(began + pause);
            self.node.owner_changed(app, app.partition_of(ws), seen, until).await;
            clock.sleep_until(began + LEAST_PAUSE).await;
        }
        clock.now() < head.until
    }

    fn parked<'p>(
        &self,
        parked: &'p mut Option<Arc<ParkedPartition>>,
        cluster: &Cluster,
        app: &App,
        partition: u16,
    ) -> &'p ParkedPartition {
        parked.get_or_insert_with(|| cluster.parking.of(self.number_of(app), partition))
    }

    /// Counts the request among those that wait for the partition, or that another node answers.
    fn take_quota(
        &self,
        held: &mut HeldPlaces,
        parked: &ParkedPartition,
        payload: &Payload<'_>,
    ) -> Result<(), ProblemDetails> {
        if held.quota.is_none() {
            held.quota = Some(parked.quota.take(payload.len()).ok_or_else(|| {
                let reason = "too many requests wait for this partition already";
                ProblemDetails::unavailable("partition_busy", reason)
            })?);
        }
        Ok(())
    }

    fn target(
        &self,
        &RoutedRequest { app, ws, .. }: &RoutedRequest<'_>,
        seen: OwnerRow,
    ) -> RequestTarget {
        // The table may be a second old, and the node itself knows better.
        let why = match app.at(ws) {
            Ok(_) => return RequestTarget::Here,
            Err(why) => why,
        };
        match seen.owner {
            None => {
                let reason = format!("no node owns partition {} now", why.partition);
                RequestTarget::Nobody(ProblemDetails::unavailable(NOT_LEADER, reason))
            }
            Some(owner) if self.node.incarnation() == Some(owner.incarnation) => {
                let reason = format!("partition {} begins to work", why.partition);
                RequestTarget::Nobody(ProblemDetails::unavailable("recovering", reason))
            }
            Some(owner) => RequestTarget::Other(owner),
        }
    }

    async fn try_here(
        &self,
        head: &RequestHead,
        &RoutedRequest { app, ws, operation, .. }: &RoutedRequest<'_>,
        payload: &mut Payload<'_>,
    ) -> TryEnd {
        match self.dispatch(head, app, ws, operation, payload).await {
            Err(problem) if is_tried_again(problem.code()) => TryEnd::Refused(Err(problem)),
            answer => {
                let code = code_of(&answer).map(str::to_owned);
                TryEnd::Answered(answer, code)
            }
        }
    }
}

/// The node that answers a request.
enum RequestTarget {
    Here,
    Nobody(ProblemDetails),
    Other(Owner),
}

fn refused(problem: ProblemDetails) -> TryEnd {
    TryEnd::Refused(Err(problem))
}
