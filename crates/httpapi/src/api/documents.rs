//! Requests that write a document. Each becomes a command with one change.

use hyper::{Response, StatusCode};
use serde::Deserialize;
use vvm::{
    App,
    eventlog::{QName, RecordId, WsId},
};

use super::{
    body::{Payload, parsed},
    handler::{ApiHandler, RequestHead, table_of},
    headers::{if_match, refuse_if_match},
};
use crate::{
    problem::ProblemDetails,
    response::Body,
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

impl ApiHandler {
    pub(super) async fn create_doc(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        name: &QName,
        payload: &mut Payload<'_>,
    ) -> Result<Response<Body>, ProblemDetails> {
        refuse_if_match(&head.headers)?;
        let body = self.receive_body(head, payload).await?;
        // A document that was created by mistake could never be removed.
        if body.bytes.is_empty() {
            let reason = "the body is empty: send a new document as `{\"fields\": {…}}`, and one without fields as `{}`";
            return Err(ProblemDetails::bad_request(reason));
        }
        let NewDocBody { fields } = parsed(&body.bytes)?;
        let row = rows::new_doc(table_of(app, name)?, fields)?;
        self.run_cud(head, app, ws, row, body, StatusCode::CREATED).await
    }

    pub(super) async fn change_doc(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        (name, id): (&QName, RecordId),
        payload: &mut Payload<'_>,
    ) -> Result<Response<Body>, ProblemDetails> {
        let body = self.receive_body(head, payload).await?;
        let ChangeBody { fields, is_active } = parsed(&body.bytes)?;
        if fields.is_empty() && is_active.is_none() {
            let reason = "the body changes nothing: send `fields` or `isActive`";
            return Err(ProblemDetails::bad_request(reason));
        }
        let expected = if_match(&head.headers)?;
        let row = rows::change_doc(table_of(app, name)?, id, expected, is_active, fields)?;
        self.run_cud(head, app, ws, row, body, StatusCode::OK).await
    }

    pub(super) async fn deactivate_doc(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        (name, id): (&QName, RecordId),
        payload: &mut Payload<'_>,
    ) -> Result<Response<Body>, ProblemDetails> {
        let expected = if_match(&head.headers)?;
        let table = table_of(app, name)?;
        let row = rows::change_doc(table, id, expected, Some(false), FieldsBody::default())?;
        let body = self.empty_body(head, payload).await?;
        self.run_cud(head, app, ws, row, body, StatusCode::OK).await
    }
}
