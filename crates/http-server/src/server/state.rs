//! The state that all connections of a service share.

use std::future::Future;

use clock::Clock;
use hyper::{Request, Response};
use metrics::Counter;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::limits::{ClientKind, HttpLimits};
use crate::{client_lines::ClientLines, request_body::RequestBody, response::Body};

/// Answers the requests of a service.
pub trait RequestHandler: Send + Sync + 'static {
    /// Answers a request. The body is received as the handler asks for it.
    fn answer(
        &self,
        request: Request<&mut RequestBody>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// The state of a service for all its connections.
pub(super) struct ServerState<A> {
    pub(super) service: &'static str,
    pub(super) answers: A,
    pub(super) limits: HttpLimits,
    pub(super) clock: Clock,
    pub(super) stop: CancellationToken,
    pub(super) clients: ClientKind,
    pub(super) lines: ClientLines,
    /// The connections that are asked to end. The one that has waited longest for its client is
    /// asked first.
    give_way: Semaphore,
    pub(super) gave_way: Counter,
    pub(super) not_taken: Counter,
    pub(super) tls_refused: Counter,
}

impl<A> ServerState<A> {
    pub(super) fn new(
        service: &'static str,
        answers: A,
        limits: HttpLimits,
        clients: ClientKind,
        clock: Clock,
        stop: CancellationToken,
    ) -> ServerState<A> {
        let closed = |reason| {
            let of = "httpapi_connections_closed_total";
            metrics::counter!(of, "service" => service, "reason" => reason)
        };
        let (gave_way, not_taken) = (closed("gave_way"), closed("answer_not_taken"));
        let tls_refused = closed("tls_refused");
        let give_way = Semaphore::new(0);
        let lines = ClientLines::new(service, clock.clone());
        ServerState {
            service,
            answers,
            limits,
            clock,
            stop,
            clients,
            lines,
            give_way,
            gave_way,
            not_taken,
            tls_refused,
        }
    }

    /// Asks one connection more to give way to a new one.
    pub(super) fn ask_to_give_way(&self) {
        self.give_way.add_permits(1);
    }

    /// Withdraws questions that no connection has heard, down to this number.
    pub(super) fn ask_at_most(&self, number: usize) {
        self.give_way.forget_permits(self.give_way.available_permits().saturating_sub(number));
    }

    /// Waits until the connection is asked to give way to a new one.
    pub(super) async fn asked_to_give_way(&self) {
        // The semaphore is never closed.
        if let Ok(asked) = self.give_way.acquire().await {
            asked.forget();
        }
    }

    /// Takes a question that no connection has heard yet. A server that stops asks none.
    pub(super) fn is_asked_to_give_way(&self) -> bool {
        !self.stop.is_cancelled()
            && self.give_way.try_acquire().map(SemaphorePermit::forget).is_ok()
    }

    /// Whether the port has TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.clients.tls().is_some()
    }
}
