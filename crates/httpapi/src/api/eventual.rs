//! Reads that any node answers from the storage.

use hyper::{
    Response, StatusCode,
    header::{HeaderName, HeaderValue},
};
use vvm::{
    App,
    eventlog::{RecordId, Table, WsId},
};

use super::{
    handler::{ApiHandler, RequestHead},
    reads::with_version,
};
use crate::{
    problem::ProblemDetails,
    query::parameter,
    read::{of_table, read_problem},
    response::{Body, JSON, bytes_response},
    route::CONSISTENCY,
    rows::json_of_record,
};

/// The header that says that an answer may be outdated.
const CONSISTENCY_HEADER: HeaderName = HeaderName::from_static("x-vvm-consistency");

/// Whether the client accepts an answer that may be outdated.
pub(super) fn is_eventual(query: Option<&str>) -> Result<bool, ProblemDetails> {
    match parameter::<String>(query, CONSISTENCY)?.as_deref() {
        None => Ok(false),
        Some("eventual") => Ok(true),
        Some(other) => {
            let reason = format!("`{other}` is not a consistency: send `eventual`, or nothing");
            Err(ProblemDetails::bad_request(reason))
        }
    }
}

impl ApiHandler {
    /// Reads a document as the storage shows it. The node need not own the partition. The document
    /// may be older than the last command that was answered.
    pub(super) async fn read_eventually(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        (table, id): (&Table, RecordId),
    ) -> Result<Response<Body>, ProblemDetails> {
        let reader = app.reader().ok_or_else(|| {
            let reason = "this node has not opened the storage of the application yet";
            ProblemDetails::unavailable("recovering", reason)
        })?;
        let read = || async {
            let stored = self.throttle.run(reader.record(ws, id)).await.map_err(read_problem)?;
            let stored = of_table(stored, table, id)?;
            let json = self.throttle.run(async { json_of_record(&stored).to_string() }).await;
            Ok((json.into_bytes(), stored.version))
        };
        let (json, version) = self.read_within_memory(self.deadline(head), read).await?;
        let mut response = with_version(bytes_response(StatusCode::OK, JSON, json), version);
        response.headers_mut().insert(CONSISTENCY_HEADER, HeaderValue::from_static("eventual"));
        Ok(response)
    }
}
