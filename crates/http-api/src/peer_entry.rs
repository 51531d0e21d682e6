//! What happens to a request that another node forwards. It is never forwarded again.

use std::sync::Arc;

use bytes::Bytes;
use clock::Instant;
use http_forward::{Envelope, PROBLEM, asked_successor, code_of};
use http_server::{
    body::Payload,
    check::check,
    problem::{Answer, MISDIRECTED, ProblemDetails},
    request_body::RequestBody,
    request_head::RequestHead,
    response::{Body, full_body},
    server::RequestHandler,
};
use hyper::{Request, Response, StatusCode, header::HeaderValue};
use vvm::ielections::Incarnation;

use crate::{
    allowed_route::AllowedRoute,
    answer::response_of,
    context::{ApiContext, ApiRequest},
    operations,
    owner::owned,
    route::{Route, route},
};

/// Answers the requests that other nodes forward.
pub(crate) struct PeerEntry(pub(crate) Arc<ApiContext>);

impl RequestHandler for PeerEntry {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let api = &*self.0;
        let (head, body) = request.into_parts();
        let checked = check(&head, false);
        let mut head = RequestHead::of_peer(head, &api.tracer, api.node.clock());
        let answer = match checked {
            Ok(()) => self.answer_path(&mut head, body).await,
            Err(problem) => Err(problem),
        };
        let code = code_of(&answer);
        let mut response = response_of(api, &mut head, answer);
        if let Some(code) = code {
            response.headers_mut().insert(PROBLEM, HeaderValue::from_static(code));
        }
        response
    }
}

impl PeerEntry {
    async fn answer_path(&self, head: &mut RequestHead, body: &mut RequestBody) -> Answer {
        let api = &*self.0;
        let envelope = Envelope::read(&head.headers);
        let left = envelope.map(|envelope| envelope.left).unwrap_or_default();
        let until = api.node.clock().now() + left;
        if let Some(successor) = asked_successor(head.path()) {
            return self.answer_successor(successor);
        }
        let uri = head.uri.clone();
        let route = route(&head.method, uri.path())?;
        route.name_in(&mut head.span, &head.method, &head.request);
        head.identify(&api.access, api.node.clock()).await?;
        let route = AllowedRoute::of_peer(&api.access, &head.caller, route)?;
        self.answer_addressed(head, envelope, route, until, body).await
    }

    /// Answers an owner that is about to give a partition to this node.
    fn answer_successor(&self, successor: Incarnation) -> Answer {
        if !self.0.node.can_own(successor) {
            return Err(misdirected("this node does not take partitions as that successor"));
        }
        let mut answer = Response::new(full_body(Bytes::new()));
        *answer.status_mut() = StatusCode::NO_CONTENT;
        Ok(answer)
    }

    /// Does a request if it is for this process, in the present epoch of the partition.
    async fn answer_addressed(
        &self,
        head: &RequestHead,
        envelope: Option<Envelope>,
        route: AllowedRoute<'_>,
        until: Instant,
        body: &mut RequestBody,
    ) -> Answer {
        let api = &*self.0;
        let Route { owner, app, ws, endpoint, operation } = route.into_route();
        let (Some(app), Some(envelope)) = (api.node.app(owner, app), envelope) else {
            return Err(misdirected("the request is not for this node"));
        };
        if api.node.incarnation() != Some(envelope.incarnation)
            || app.partition_of(ws) != envelope.partition
        {
            return Err(misdirected("the request is for another process"));
        }
        let request = ApiRequest { head, app, ws, endpoint, operation: &operation, until };
        let epoch = owned(api, &request).await?.epoch();
        if epoch != envelope.epoch.into() {
            return Err(misdirected(format!(
                "the request is for epoch {} of partition {}, and the present epoch is {epoch}",
                envelope.epoch, envelope.partition,
            )));
        }
        endpoint.check_query(head.query())?;
        operations::run(api, &request, &mut Payload::new(body)).await
    }
}

fn misdirected(reason: impl Into<String>) -> ProblemDetails {
    ProblemDetails::new(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED, reason)
}
