//! The way of each request: its checks, its route, its operation and its metric.

use bytes::Bytes;
use clock::Instant;
use hyper::{
    Request, Response, StatusCode,
    header::{CONNECTION, HeaderName, HeaderValue},
};
use tracing::debug;
use vvm::{App, eventlog::WsId, ielections::Incarnation, processor::LogName};

use super::{
    batch::code_of,
    body::Payload,
    counted::{counted, is_counted_by_body},
    eventual::{CONSISTENCY_HEADER, is_eventual},
    handler::{ApiHandler, RequestHead, table_of},
    routing::RoutedRequest,
    tries::Answer,
    views::{ApiView, known_apps},
};
use crate::{
    authentication::{AllowedRoute, TokenEnd},
    check::check,
    cluster::{ForwardMark, asked_successor},
    openapi::is_changeable,
    problem::{MISDIRECTED, ProblemDetails, is_listed},
    request_body::RequestBody,
    response::{Body, REQUEST_ID, full_body, keep_out_of_caches},
    route::{ApiOperation, Route, route},
};

/// The header with the address of the node that answered.
const SERVED_BY: HeaderName = HeaderName::from_static("x-vvm-served-by");

/// The header with the code of a problem, in answers to other nodes.
pub(super) const PROBLEM: HeaderName = HeaderName::from_static("x-vvm-problem");

impl ApiHandler {
    /// Answers a request of a client.
    pub(super) async fn answer_client(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let checked = check(&head, self.settings.only_local);
        let mut head = self.head(head, Instant::FAR_FUTURE);
        let clock = self.node.clock();
        let start = clock.now();
        let uri = head.uri.clone();
        let preflight = checked.map(|()| self.pages.preflight(&head.method, &head.headers));
        let (kind, answered) = match preflight {
            Ok(Some(answer)) => ("none", Ok(answer)),
            Ok(None) => match ApiView::of(uri.path()) {
                Some(view) => (view.kind(), self.show(view, &mut head).await),
                None => self.answer_client_route(&mut head, uri.path(), start, body).await,
            },
            Err(problem) => ("none", Err(problem)),
        };
        let mut response = self.response(&mut head, answered);
        self.pages.tell(&head.headers, response.headers_mut());
        // A load balancer opens its next connection to another node.
        if self.node.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let status = response.status().as_u16();
        debug!(
            principal = %head.caller.principal, request = head.request, method = %head.method,
            path = head.path(), status, "request answered"
        );
        let status = status.to_string();
        metrics::histogram!("httpapi_request_seconds", "kind" => kind, "status" => status)
            .record(clock.now() - start);
        response
    }

    /// Answers a request of a client for an endpoint. Returns the kind of the request, too.
    async fn answer_client_route(
        &self,
        head: &mut RequestHead,
        path: &str,
        start: Instant,
        body: &mut RequestBody,
    ) -> (&'static str, Answer) {
        let route = match route(&head.method, path) {
            Ok(route) => route,
            Err(problem) => return ("none", Err(problem)),
        };
        let kind = route.endpoint.kind;
        head.span.set_route(&head.method, &head.request, &route);
        (kind, self.answer_sender(head, route, start, body).await)
    }

    async fn answer_sender(
        &self,
        head: &mut RequestHead,
        route: Route<'_>,
        start: Instant,
        body: &mut RequestBody,
    ) -> Answer {
        self.identify(head).await?;
        let route = self.access.allow_client(&head.caller, route, start)?;
        self.answer_route(head, route, body).await
    }

    /// Finds the sender of a request. The sender is known before the sender is refused, so that the
    /// log names the sender.
    pub(super) async fn identify(&self, head: &mut RequestHead) -> Result<(), ProblemDetails> {
        let caller = self.access.caller(&head.headers, head.client.as_ref()).await?;
        head.token_end = TokenEnd::of(caller.expires, self.node.clock());
        head.caller = caller;
        Ok(())
    }

    async fn answer_route(
        &self,
        head: &mut RequestHead,
        route: AllowedRoute<'_>,
        body: &mut RequestBody,
    ) -> Answer {
        let Route { owner, app, ws, endpoint, operation } = route.into_route();
        let not_deployed = || {
            let known = known_apps(&self.node, &head.caller.grants);
            ProblemDetails::not_deployed(format_args!("{owner}/{app}"), known)
        };
        let app = self.node.app(owner, app).ok_or_else(not_deployed)?;
        endpoint.check_query(head.query())?;
        check_partition(app, ws, &operation)?;
        check_changeable(app, &operation)?;
        let mut payload = Payload::new(body);
        // A node without a seat has not opened the application, and forwards the request.
        head.is_eventual = is_eventual(head.query())? && app.reader().is_some();
        match &operation {
            ApiOperation::ReadDoc(name, id) if head.is_eventual => {
                return self.read_eventually(head, app, ws, (table_of(app, name)?, *id)).await;
            }
            ApiOperation::ReadDocs if head.is_eventual => {
                return self.read_docs_eventually(head, app, ws).await;
            }
            _ => {}
        }
        let request = RoutedRequest { app, ws, endpoint, operation: &operation };
        if is_counted_by_body(&operation) {
            self.count_commands(head, &request, &mut payload).await?;
        }
        match &self.cluster {
            None => self.dispatch(head, app, ws, &operation, &mut payload).await,
            Some(cluster) => self.answer_routed(cluster, head, &request, &mut payload).await,
        }
    }

    /// Counts what a client sends, as far as there is a limit for it.
    async fn count_commands(
        &self,
        head: &RequestHead,
        request: &RoutedRequest<'_>,
        payload: &mut Payload<'_>,
    ) -> Result<(), ProblemDetails> {
        if !self.access.limits_commands() {
            return Ok(());
        }
        let body = self.receive_body(head, payload).await?;
        let commands = counted(request, &body.bytes);
        self.access.count_commands(&head.caller, commands, self.node.clock().now())
    }

    /// Answers a request that another node forwarded. The request is never forwarded again.
    pub(super) async fn answer_peer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let checked = check(&head, false);
        let mark = ForwardMark::read(&head.headers);
        let left = mark.map(|mark| mark.left).unwrap_or_default();
        let mut head = self.head(head, self.node.clock().now() + left);
        head.is_forwarded = true;
        let uri = head.uri.clone();
        let answered = match (checked, asked_successor(head.path())) {
            (Ok(()), Some(successor)) => self.answer_successor(successor),
            (Ok(()), None) => match route(&head.method, uri.path()) {
                Ok(route) => {
                    head.span.set_route(&head.method, &head.request, &route);
                    self.answer_forwarded(&mut head, mark, route, body).await
                }
                Err(problem) => Err(problem),
            },
            (Err(problem), _) => Err(problem),
        };
        let code = code_of(&answered);
        let mut response = self.response(&mut head, answered);
        if let Some(code) = code {
            response.headers_mut().insert(PROBLEM, HeaderValue::from_static(code));
        }
        if self.node.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn answer_forwarded(
        &self,
        head: &mut RequestHead,
        mark: Option<ForwardMark>,
        route: Route<'_>,
        body: &mut RequestBody,
    ) -> Answer {
        self.identify(head).await?;
        let route = self.access.allow(&head.caller, route)?;
        self.answer_marked(head, mark, route, body).await
    }

    /// Answers an owner that is about to give a partition to this node.
    fn answer_successor(&self, successor: Incarnation) -> Answer {
        match self.node.can_own(successor) {
            true => {
                let mut answer = Response::new(full_body(Bytes::new()));
                *answer.status_mut() = StatusCode::NO_CONTENT;
                Ok(answer)
            }
            false => Err(misdirected("this node does not take partitions as that successor")),
        }
    }

    async fn answer_marked(
        &self,
        head: &RequestHead,
        mark: Option<ForwardMark>,
        route: AllowedRoute<'_>,
        body: &mut RequestBody,
    ) -> Answer {
        let Route { owner, app, ws, endpoint, operation } = route.into_route();
        let app = self.node.app(owner, app);
        let (Some(app), Some(mark)) = (app, mark) else {
            return Err(misdirected("the request is not for this node"));
        };
        if self.node.incarnation() != Some(mark.incarnation)
            || app.partition_of(ws) != mark.partition
        {
            return Err(misdirected("the request is for another process"));
        }
        let partition = self.at(app, ws).await?;
        if partition.epoch() != mark.epoch.into() {
            let reason = format!(
                "the request is for epoch {} of partition {}, and the present epoch is {}",
                mark.epoch,
                mark.partition,
                partition.epoch()
            );
            return Err(misdirected(reason));
        }
        drop(partition);
        endpoint.check_query(head.query())?;
        self.dispatch(head, app, ws, &operation, &mut Payload::new(body)).await
    }

    /// Makes the response, with the headers that all responses have.
    fn response(&self, head: &mut RequestHead, answered: Answer) -> Response<Body> {
        let code = answered.as_ref().err().map(ProblemDetails::code);
        let mut response = answered.unwrap_or_else(|problem| {
            let (status, code) = (problem.status().as_u16(), problem.code());
            debug_assert!(is_listed(status, code), "{status} {code} is not among the codes");
            metrics::counter!("httpapi_problems_total", "code" => problem.code()).increment(1);
            problem.with("requestId", &*head.request).into_response()
        });
        head.span.answered(response.status(), code);
        // A record that is not found may be there, too.
        let says_eventual =
            head.is_eventual && matches!(response.status(), StatusCode::OK | StatusCode::NOT_FOUND);
        let headers = response.headers_mut();
        keep_out_of_caches(headers);
        if says_eventual {
            headers.insert(CONSISTENCY_HEADER, HeaderValue::from_static("eventual"));
        }
        if let Ok(id) = HeaderValue::from_str(&head.request) {
            headers.insert(REQUEST_ID, id);
        }
        if self.cluster.is_some()
            && !headers.contains_key(SERVED_BY)
            && let Ok(address) = HeaderValue::try_from(self.node.advertised().to_string())
        {
            headers.insert(SERVED_BY, address);
        }
        response
    }

    /// Does a request on this node.
    pub(super) async fn dispatch(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        operation: &ApiOperation,
        payload: &mut Payload<'_>,
    ) -> Answer {
        use ApiOperation as Op;
        match operation {
            Op::Command(name) => self.run_command(head, app, ws, name, payload).await,
            Op::CommandBatch => self.run_batch(head, app, ws, payload).await,
            Op::CreateDoc(name) => self.create_doc(head, app, ws, name, payload).await,
            Op::ReadDoc(name, id) => self.read_doc(head, app, ws, table_of(app, name)?, *id).await,
            Op::ReadDocs => self.read_docs(head, app, ws).await,
            Op::ChangeDoc(name, id) => self.change_doc(head, app, ws, (name, *id), payload).await,
            Op::DeactivateDoc(name, id) => {
                self.deactivate_doc(head, app, ws, (name, *id), payload).await
            }
            Op::ListDocs(name) => self.list_docs(head, app, ws, table_of(app, name)?).await,
            Op::Log => self.log(head, app, ws, LogName::Workspace(ws)).await,
            Op::PartitionLog => self.log(head, app, ws, LogName::Partition).await,
            Op::ListSeries => self.list_series(head, app, ws).await,
            Op::ReadSeries(id) => self.read_series(head, app, ws, id).await,
            Op::DrawNumbers(id) => self.draw_numbers(head, app, ws, id, payload).await,
            Op::PeekNumber(id) => self.peek_number(head, app, ws, id).await,
            Op::ListGaps(id) => self.list_gaps(head, app, ws, id).await,
        }
    }
}

/// The number of a partition must be one that the application has.
fn check_partition(app: &App, ws: WsId, operation: &ApiOperation) -> Result<(), ProblemDetails> {
    if matches!(operation, ApiOperation::PartitionLog) && u64::from(app.partition_of(ws)) != ws.0 {
        let reason = format!("the application {} has no partition {}", app.name(), ws.0);
        return Err(ProblemDetails::not_found(reason));
    }
    Ok(())
}

/// Refuses a change of a record that no client changes. The description has no such operation.
fn check_changeable(app: &App, operation: &ApiOperation) -> Result<(), ProblemDetails> {
    let (ApiOperation::ChangeDoc(name, _) | ApiOperation::DeactivateDoc(name, _)) = operation
    else {
        return Ok(());
    };
    match app.application().schema().table(name) {
        Some(table) if !is_changeable(table) => {
            let reason = format!("clients cannot change records of {name}: read them with GET");
            Err(ProblemDetails::method_not_allowed("GET, HEAD", reason))
        }
        _ => Ok(()),
    }
}

fn misdirected(reason: impl Into<String>) -> ProblemDetails {
    ProblemDetails::new(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED, reason)
}
