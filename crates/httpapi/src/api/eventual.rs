//! Reads that any node answers from the storage.

use hyper::{Response, StatusCode, header::HeaderName};
use processor::Application;
use vvm::{
    App,
    eventlog::{Reader, RecordId, Table, WsId},
};

use super::{
    handler::{ApiHandler, RequestHead},
    reads::with_version,
};
use crate::{
    problem::ProblemDetails,
    query::parameter,
    read::{DocsQuery, no_workspace, of_table, read_docs, read_problem},
    response::{Body, JSON, bytes_response},
    route::CONSISTENCY,
    rows::{ShownFields, json_of_record},
};

/// The header that says that an answer may be outdated.
pub(super) const CONSISTENCY_HEADER: HeaderName = HeaderName::from_static("x-vvm-consistency");

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
        let reader = reader_of(app)?;
        let read = || async {
            let stored = self.throttle.run(reader.record(ws, id)).await.map_err(read_problem)?;
            let stored = of_table(stored, table, id)?;
            let json = async { json_of_record(&stored, &ShownFields::All).to_string() };
            let json = self.throttle.run(json).await;
            Ok((json.into_bytes(), stored.version))
        };
        let (json, version) = self.read_within_memory(head, self.deadline(head), read).await?;
        Ok(with_version(bytes_response(StatusCode::OK, JSON, json), version))
    }

    /// Reads records by their ids as the storage shows them, like [`ApiHandler::read_eventually`].
    pub(super) async fn read_docs_eventually(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let reader = reader_of(app)?;
        let query = DocsQuery::of(app.application().schema(), head.query())?;
        let records = |ids: Vec<RecordId>| async move {
            reader.records_by_ids(ws, &ids).await.map_err(read_problem)
        };
        let read = || async {
            let found = self.throttle.run(read_docs(&query, records)).await?;
            if found.is_nothing {
                let descriptor = reader.record(ws, Application::DESCRIPTOR).await;
                if descriptor.map_err(read_problem)?.is_none() {
                    return Err(no_workspace(ws));
                }
            }
            Ok((found.json, ()))
        };
        let (docs, ()) = self.read_within_memory(head, self.deadline(head), read).await?;
        Ok(bytes_response(StatusCode::OK, JSON, docs))
    }
}

fn reader_of(app: &App) -> Result<&Reader, ProblemDetails> {
    app.reader().ok_or_else(|| {
        let reason = "this node has not opened the storage of the application yet";
        ProblemDetails::unavailable("recovering", reason)
    })
}
