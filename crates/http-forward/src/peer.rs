//! A peer: another node, as this node talks to it.
//!
//! Invariant: a request holds a slot of the peer while it uses a connection. Followers of logs stay
//! long, and have slots of their own. One slot is for [questions](Peer::question), so that they do
//! not wait behind requests.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;
use clock::{Clock, Instant};
use http_body_util::Full;
use http_server::{
    ClusterTls,
    limits::{Limit, LimitRules, ShareRules},
    problem::{ProblemDetails, TOO_MANY_FOLLOWERS},
    server::ONCE_WITHIN,
};
use hyper::{Request, Response, header::HeaderValue};
use tokio::sync::Semaphore;

use crate::{
    connection::PeerFailure,
    connections::{Connections, IDLE, PeerSlot},
    peer_body::PeerBody,
    quota::{Quota, QuotaLimits},
    read_places::reads,
    settings::ClusterSettings,
};

/// The slots for requests. One more is for questions.
const REQUEST_SLOTS: usize = ClusterSettings::REQUESTS_PER_PEER - 1;

/// The most logs that one peer sends to this node at the same time. Each needs a connection.
const LOGS_PER_PEER: usize = 8;

/// The clients that follow logs of a peer through this node.
fn followers() -> LimitRules {
    LimitRules {
        most: ClusterSettings::FOLLOWERS_PER_PEER,
        share: Some(ShareRules { least: 1, waiting: 0 }),
        waits: false,
        code: TOO_MANY_FOLLOWERS,
        reason: |_, most, of_one| {
            format!(
                "at most {most} clients{of_one} follow logs of the owner through this node: follow \
                 the log at the owner itself"
            )
        },
        ..LimitRules::default()
    }
}

/// Another node, as this node talks to it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The value of `Host` in requests to the peer.
    pub(crate) host: HeaderValue,
    connections: Arc<Connections>,
    slots: Arc<Semaphore>,
    question_slot: Arc<Semaphore>,
    /// The requests that the peer answers, and the bytes of their bodies.
    pub(crate) quota: Arc<Quota>,
    /// The shares of principals in the slots for requests.
    pub(crate) reads: Arc<Limit>,
    pub(crate) logs: Arc<Limit>,
    followers: Arc<Limit>,
}

impl Peer {
    pub(crate) fn new(
        address: SocketAddr,
        tls: Option<ClusterTls>,
        limits: QuotaLimits,
        clock: Clock,
    ) -> Peer {
        let host = HeaderValue::from_str(&address.to_string());
        Peer {
            address,
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            connections: Arc::new(Connections::new(address, tls, clock.clone())),
            slots: Arc::new(Semaphore::new(REQUEST_SLOTS)),
            question_slot: Arc::new(Semaphore::new(1)),
            quota: Quota::new(limits),
            reads: reads(
                REQUEST_SLOTS,
                limits,
                &clock,
                "peer_busy",
                "reads at the owner of this partition",
            ),
            logs: Limit::new(
                LimitRules::logs("through this node, the owner sends", LOGS_PER_PEER),
                &clock,
            ),
            followers: Limit::new(followers(), &clock),
        }
    }

    /// Waits for a slot for a request.
    pub(crate) async fn slot(&self) -> Result<PeerSlot, PeerFailure> {
        PeerSlot::of(&self.slots).await
    }

    /// Takes the slot of a follower, if one is free. Followers may stay for days, so nobody waits.
    pub(crate) fn follower_slot(
        &self,
        principal: Option<&str>,
    ) -> Result<PeerSlot, ProblemDetails> {
        Ok(PeerSlot::Follower { _permit: self.followers.try_take(principal, 1)? })
    }

    /// Sends a question of this node itself, which changes nothing. The question waits only for
    /// other questions.
    pub(crate) async fn question(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<PeerBody>, PeerFailure> {
        let slot = PeerSlot::of(&self.question_slot).await?;
        self.ask(slot, request, true, &AtomicBool::new(false)).await
    }

    /// Sends a request, and waits for the head of its answer. `is_sent` tells a caller that drops
    /// this future whether the peer may have got the request.
    pub(crate) async fn ask(
        &self,
        slot: PeerSlot,
        mut request: Request<Full<Bytes>>,
        can_be_sent_twice: bool,
        is_sent: &AtomicBool,
    ) -> Result<Response<PeerBody>, PeerFailure> {
        let rest = if can_be_sent_twice { IDLE } else { ONCE_WITHIN };
        loop {
            let (mut open, is_new) = match self.connections.take_idle(rest) {
                Some(open) => (open, false),
                None => (self.connections.connect().await?, true),
            };
            match open.connection.send(request, is_sent).await {
                Ok(answer) => {
                    let of = Arc::clone(&self.connections);
                    return Ok(answer.map(|body| PeerBody::new(body, open, slot, of)));
                }
                // The peer ended a connection that rested, so the next one is tried. There are at
                // most as many of them as slots.
                Err((PeerFailure::NotSent(_), Some(unsent))) if !is_new => request = unsent,
                Err((failure, _)) => return Err(failure),
            }
        }
    }

    /// Closes connections that have rested for too long. Returns whether some are left.
    pub(crate) fn close_idle(&self, now: Instant) -> bool {
        self.connections.close_idle(now)
    }
}
