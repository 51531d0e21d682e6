//! The way of each request: its checks, its route, its operation and its metric.

use hyper::{Request, Response, header::HeaderValue};

use super::{
    handler::{ApiHandler, RequestHead, table_of},
    headers::request_id,
};
use crate::{
    check::check,
    problem::ProblemDetails,
    query::check_query,
    request_body::RequestBody,
    response::{Body, REQUEST_ID},
    route::{ApiOperation, Route, route},
    server::RequestHandler,
};

impl RequestHandler for ApiHandler {
    async fn answer(&self, request: Request<&mut RequestBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let checked = check(&head, self.settings.only_local);
        let request = request_id(&head.headers, self.node.clock());
        let head = RequestHead {
            request,
            headers: head.headers,
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            method: head.method,
            version: head.version,
        };
        let clock = self.node.clock();
        let start = clock.now();
        let (kind, answered) = match checked.and_then(|()| route(&head.method, &head.path)) {
            Ok(route) => (route.operation.kind(), self.dispatch(&head, route, body).await),
            Err(problem) => ("none", Err(problem)),
        };
        let mut response = answered.unwrap_or_else(|problem| {
            metrics::counter!("httpapi_problems_total", "code" => problem.code()).increment(1);
            problem.with("requestId", &*head.request).into_response()
        });
        if let Ok(id) = HeaderValue::from_str(&head.request) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        let status = response.status().as_u16().to_string();
        metrics::histogram!("httpapi_request_seconds", "kind" => kind, "status" => status)
            .record(clock.now() - start);
        response
    }
}

impl ApiHandler {
    async fn dispatch(
        &self,
        head: &RequestHead,
        Route { owner, app, ws, operation }: Route<'_>,
        body: &mut RequestBody,
    ) -> Result<Response<Body>, ProblemDetails> {
        let app = self.node.app(owner, app).ok_or_else(|| {
            ProblemDetails::not_found(format!("this node has no application {owner}/{app}"))
        })?;
        check_query(operation.parameters(), head.query.as_deref())?;
        match operation {
            ApiOperation::Command(name) => self.run_command(head, app, ws, name, body).await,
            ApiOperation::CreateDoc(name) => self.create_doc(head, app, ws, &name, body).await,
            ApiOperation::ReadDoc(name, id) => {
                self.read_doc(app, ws, table_of(app, &name)?, id).await
            }
            ApiOperation::ChangeDoc(name, id) => {
                self.change_doc(head, app, ws, (&name, id), body).await
            }
            ApiOperation::DeactivateDoc(name, id) => {
                self.deactivate_doc(head, app, ws, (&name, id)).await
            }
            ApiOperation::ListDocs(name) => {
                self.list_docs(head, app, ws, table_of(app, &name)?).await
            }
            ApiOperation::Log => self.log(head, app, ws).await,
            ApiOperation::ListSeries => self.list_series(app, ws).await,
            ApiOperation::ReadSeries(id) => self.read_series(app, ws, &id).await,
            ApiOperation::DrawNumbers(id) => self.draw_numbers(head, app, ws, &id, body).await,
            ApiOperation::PeekNumber(id) => self.peek_number(app, ws, &id).await,
            ApiOperation::ListGaps(id) => self.list_gaps(head, app, ws, &id).await,
        }
    }
}
