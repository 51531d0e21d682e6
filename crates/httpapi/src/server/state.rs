//! The state that all connections of a service share.

use std::future::Future;

use clock::Clock;
use hyper::{Request, Response};
use metrics::Counter;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::limits::{ClientKind, HttpLimits};
use crate::{request_body::RequestBody, response::Body};

/// Answers the requests of a service.
pub(crate) trait RequestHandler: Send + Sync + 'static {
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
    /// Asks the connection that has waited longest for its client to end.
    pub(super) give_way: Notify,
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
        let give_way = Notify::new();
        ServerState {
            service,
            answers,
            limits,
            clock,
            stop,
            clients,
            give_way,
            gave_way,
            not_taken,
            tls_refused,
        }
    }

    /// Whether the port has TLS.
    pub(super) fn is_secured(&self) -> bool {
        self.clients.tls().is_some()
    }
}
