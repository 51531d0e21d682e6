//! The properties of a request besides its body.

use std::sync::Arc;

use access::Caller;
use clock::{Clock, Instant};
use hyper::{HeaderMap, Method, Uri, Version, http::request::Parts};

use crate::{
    authentication::{PortAccess, TokenEnd, unchecked},
    limits::Asker,
    problem::ProblemDetails,
    request_id::request_id,
    server::RequestClient,
    spans::{RequestSpan, RequestTracer},
};

/// The properties of a request besides its body.
#[derive(Debug)]
pub struct RequestHead {
    /// The id of the request, for logs.
    pub request: String,
    /// The headers, as the client sent them.
    pub headers: HeaderMap,
    /// The target of the request.
    pub uri: Uri,
    /// The method of the request.
    pub method: Method,
    /// The version of HTTP.
    pub version: Version,
    /// The sender. Nobody, until it is [found](RequestHead::identify).
    pub caller: Arc<Caller>,
    /// The end of the token of the sender.
    pub token_end: TokenEnd,
    /// The span of the request, if it has one.
    pub span: RequestSpan,
    /// The client of the connection.
    client: Option<RequestClient>,
    /// Whether the sender has limits of its own: the port asks for tokens.
    has_principal: bool,
    /// Whether another node forwards the request.
    is_forwarded: bool,
}

impl RequestHead {
    /// The head of a request of a client.
    pub fn of_client(head: Parts, tracer: &RequestTracer, clock: &Clock) -> RequestHead {
        RequestHead {
            request: request_id(&head.headers, clock),
            span: tracer.arrived(&head.headers),
            client: head.extensions.get().cloned(),
            headers: head.headers,
            uri: head.uri,
            method: head.method,
            version: head.version,
            caller: unchecked(),
            token_end: TokenEnd::OVER,
            has_principal: false,
            is_forwarded: false,
        }
    }

    /// The head of a request that another node forwards.
    pub fn of_peer(head: Parts, tracer: &RequestTracer, clock: &Clock) -> RequestHead {
        RequestHead { is_forwarded: true, ..RequestHead::of_client(head, tracer, clock) }
    }

    /// Finds the sender. The sender is known before it is refused, so that the log names it.
    pub async fn identify(
        &mut self,
        access: &PortAccess,
        clock: &Clock,
    ) -> Result<(), ProblemDetails> {
        let caller = access.caller(&self.headers, self.client.as_ref()).await?;
        self.token_end = TokenEnd::of(caller.expires, clock);
        self.caller = caller;
        self.has_principal = access.needs_token();
        Ok(())
    }

    /// The path of the target.
    pub fn path(&self) -> &str {
        self.uri.path()
    }

    /// The query of the target.
    pub fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    /// The name of the sender, for its limits; `None` if the port checks nobody.
    pub fn principal(&self) -> Option<&str> {
        self.has_principal.then(|| self.caller.principal.as_str())
    }

    /// The sender, to ask for permits. A forwarded request holds a connection between the two
    /// nodes.
    pub fn asker(&self, until: Instant, now: Instant) -> Asker<'_> {
        let asker = Asker::new(self.principal(), until);
        if self.is_forwarded { asker.moment_for_share(now) } else { asker }
    }
}
