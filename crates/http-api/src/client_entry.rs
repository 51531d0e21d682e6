//! What happens to a request of a client: checks, route, sender, and the node that does it.

use std::sync::Arc;

use clock::Instant;
use http_forward::{ForwardKind, ForwardRequest, Forwarder, NextTry, Placement};
use http_server::{
    body::Payload,
    check::check,
    cross_origin::PageOrigins,
    problem::{Answer, ProblemDetails},
    request_body::RequestBody,
    request_head::RequestHead,
    response::Body,
    server::RequestHandler,
};
use hyper::{Request, Response};
use tracing::debug;
use vvm::App;

use crate::{
    allowed_route::AllowedRoute,
    answer::response_of,
    context::{ApiContext, ApiRequest},
    counted::counted,
    done::{BATCH_BYTES, DONE_BYTES},
    eventual,
    follow::is_followed,
    logs::check_log_version,
    numbers::{DRAWN_BYTES, drawn_bytes},
    openapi::is_changeable,
    operations,
    request_times::RequestTimes,
    route::{ApiOperation, Route, route},
    views::{ApiView, Views, known_apps},
};

/// Answers the requests of clients.
pub(crate) struct ClientEntry {
    api: Arc<ApiContext>,
    /// The web pages that may use the API.
    pages: PageOrigins,
    views: Views,
    times: RequestTimes,
}

impl RequestHandler for ClientEntry {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let clock = self.api.node.clock();
        let start = clock.now();
        let (head, body) = request.into_parts();
        let checked = check(&head, self.api.settings.only_local);
        let mut head = RequestHead::of_client(head, &self.api.tracer, clock);
        let preflight = checked.map(|()| self.pages.preflight(&head.method, &head.headers));
        let (kind, answer) = match preflight {
            Ok(Some(answer)) => ("none", Ok(answer)),
            Ok(None) => self.answer_path(&mut head, start, body).await,
            Err(problem) => ("none", Err(problem)),
        };
        let mut response = response_of(&self.api, &mut head, answer);
        self.pages.tell(&head.headers, response.headers_mut());
        let status = response.status();
        debug!(
            principal = %head.caller.principal, request = head.request, method = %head.method,
            path = head.path(), status = status.as_u16(), "request answered"
        );
        self.times.record(kind, status, clock.now() - start);
        response
    }
}

impl ClientEntry {
    pub(crate) fn new(api: Arc<ApiContext>) -> ClientEntry {
        let pages = PageOrigins::new(&api.settings.page_origins);
        ClientEntry { api, pages, views: Views::new(), times: RequestTimes::default() }
    }

    /// Answers a request by its path. Also returns the kind of the request.
    async fn answer_path(
        &self,
        head: &mut RequestHead,
        start: Instant,
        body: &mut RequestBody,
    ) -> (&'static str, Answer) {
        let uri = head.uri.clone();
        if let Some(view) = ApiView::of(uri.path()) {
            return (view.kind(), self.views.show(&self.api, view, head).await);
        }
        match route(&head.method, uri.path()) {
            Ok(route) => {
                let kind = route.endpoint.kind;
                route.name_in(&mut head.span, &head.method, &head.request);
                (kind, self.answer_route(head, route, start, body).await)
            }
            Err(problem) => ("none", Err(problem)),
        }
    }

    async fn answer_route(
        &self,
        head: &mut RequestHead,
        route: Route<'_>,
        start: Instant,
        body: &mut RequestBody,
    ) -> Answer {
        let api = &*self.api;
        // 1. Who sends it, and may it do this here?
        head.identify(&api.access, api.node.clock()).await?;
        let route = AllowedRoute::of_client(&api.access, &head.caller, route, start)?;
        let Route { owner, app, ws, endpoint, operation } = route.into_route();
        let not_deployed = || {
            let known = known_apps(&api.node, &head.caller.grants);
            ProblemDetails::not_deployed(format_args!("{owner}/{app}"), known)
        };
        let app = api.node.app(owner, app).ok_or_else(not_deployed)?;
        endpoint.check_query(head.query())?;
        let operation = &operation;
        let until = Instant::FAR_FUTURE;
        let request = ApiRequest { head, app, ws, endpoint, operation, until };
        check_partition(&request)?;
        check_changeable(app, operation)?;
        // 2. Some reads need no owner.
        if let Some(answer) = eventual::answer(api, &request).await? {
            return answer;
        }
        // 3. The owner of the partition does all others.
        let mut payload = Payload::new(body);
        if operation.is_counted_by_body() && api.access.limits_commands() {
            let body = api.bodies.receive(head, until, &mut payload).await?;
            let now = api.node.clock().now();
            api.access.count_commands(&head.caller, counted(&request, &body), now)?;
        }
        match &api.forwarder {
            None => operations::run(api, &request, &mut payload).await,
            Some(forwarder) => answer_placed(api, forwarder, request, &mut payload).await,
        }
    }
}

/// Answers a request on this node, or forwards it.
async fn answer_placed(
    api: &ApiContext,
    forwarder: &Forwarder,
    mut request: ApiRequest<'_>,
    payload: &mut Payload<'_>,
) -> Answer {
    if request.endpoint.is_log() {
        check_log_version(request.head)?;
    }
    // 1. Receive the body before the first try, because another try needs it again.
    if request.endpoint.body.is_some() {
        api.bodies.receive(request.head, request.until, payload).await?;
    }
    request.until = api.deadline(&request);
    // 2. Try the request here or at the owner, until it is done or its time is over.
    let mut placement = Placement::new(forwarder, forwarded(api, &request, payload)?);
    loop {
        match placement.next(payload).await {
            NextTry::Answered(answer) => return answer,
            NextTry::Here => placement.tried(operations::run(api, &request, payload).await),
        }
    }
}

/// The request as another node may do it.
fn forwarded<'r>(
    api: &ApiContext,
    request: &ApiRequest<'r>,
    payload: &Payload<'_>,
) -> Result<ForwardRequest<'r>, ProblemDetails> {
    let ApiRequest { head, app, ws, endpoint, operation, until } = *request;
    let write = |most_answer_bytes, reserved_bytes| ForwardKind::Write {
        most_answer_bytes,
        reserved_bytes,
    };
    let kind = match operation {
        _ if endpoint.is_log() => ForwardKind::Log { is_followed: is_followed(head.query())? },
        _ if endpoint.is_read() => ForwardKind::Read,
        ApiOperation::DrawNumbers(id) => {
            write(DRAWN_BYTES, drawn_bytes(app, id, &payload.bytes())?)
        }
        ApiOperation::CommandBatch => write(BATCH_BYTES, None),
        _ => write(DONE_BYTES, None),
    };
    Ok(ForwardRequest { head, app, app_number: api.number_of(app), ws, kind, until })
}

/// Refuses a partition number that the application does not have.
fn check_partition(request: &ApiRequest<'_>) -> Result<(), ProblemDetails> {
    let ApiRequest { app, ws, operation, .. } = *request;
    if matches!(operation, ApiOperation::PartitionLog) && u64::from(app.partition_of(ws)) != ws.0 {
        let reason = format!("the application {} has no partition {}", app.name(), ws.0);
        return Err(ProblemDetails::not_found(reason));
    }
    Ok(())
}

/// Refuses to change a record that clients must not change. The description has no such operation.
fn check_changeable(app: &App, operation: &ApiOperation) -> Result<(), ProblemDetails> {
    let (ApiOperation::ChangeDoc(name, _) | ApiOperation::DeactivateDoc(name, _)) = operation
    else {
        return Ok(());
    };
    match app.application().declarations().schema().table(name) {
        // A command on an append-only table is refused by its rule, and names it.
        Some(table) if !is_changeable(table) && !table.is_append_only() => {
            let reason = format!("clients cannot change records of {name}: read them with GET");
            Err(ProblemDetails::method_not_allowed("GET, HEAD", reason))
        }
        _ => Ok(()),
    }
}
