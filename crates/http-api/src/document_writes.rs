//! Requests that write a document. Each becomes a command with one change.

use http_server::{
    body::Payload,
    problem::{Answer, ProblemDetails},
};
use hyper::StatusCode;
use serde::Deserialize;
use vvm::eventlog::{QName, RecordId};

use crate::{
    commands::run_change,
    context::{ApiContext, ApiRequest},
    headers::{if_match, refuse_if_match},
    json_body::parse,
    rows::{self, FieldsBody},
};

/// The body of a request that creates a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewDocBody {
    #[serde(default)]
    fields: FieldsBody,
}

/// The body of a request that changes a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ChangeBody {
    #[serde(default)]
    fields: FieldsBody,
    is_active: Option<bool>,
}

pub(crate) async fn create(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    name: &QName,
    payload: &mut Payload<'_>,
) -> Answer {
    refuse_if_match(&request.head.headers)?;
    let body = api.bodies.receive(request.head, request.until, payload).await?;
    // A document that was created by mistake could never be removed.
    if body.is_empty() {
        let reason = "the body is empty: send a new document as `{\"fields\": {…}}`, and one without fields as `{}`";
        return Err(ProblemDetails::bad_request(reason));
    }
    let NewDocBody { fields } = parse(&body)?;
    let row = rows::new_doc(request.table(name)?, fields)?;
    run_change(api, request, row, payload, StatusCode::CREATED).await
}

pub(crate) async fn change(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    name: &QName,
    id: RecordId,
    payload: &mut Payload<'_>,
) -> Answer {
    let body = api.bodies.receive(request.head, request.until, payload).await?;
    let ChangeBody { fields, is_active } = parse(&body)?;
    if fields.is_empty() && is_active.is_none() {
        let reason = "the body changes nothing: send `fields` or `isActive`";
        return Err(ProblemDetails::bad_request(reason));
    }
    let expected = if_match(&request.head.headers)?;
    let row = rows::change_doc(request.table(name)?, id, expected, is_active, fields)?;
    run_change(api, request, row, payload, StatusCode::OK).await
}

pub(crate) async fn deactivate(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    name: &QName,
    id: RecordId,
    payload: &mut Payload<'_>,
) -> Answer {
    let expected = if_match(&request.head.headers)?;
    let table = request.table(name)?;
    let row = rows::change_doc(table, id, expected, Some(false), FieldsBody::default())?;
    // The time of the command includes the wait for the memory of the answer.
    let request = ApiRequest { until: api.deadline(request), ..*request };
    api.bodies.receive_nothing(request.head, request.until, payload).await?;
    run_change(api, &request, row, payload, StatusCode::OK).await
}
