//! Reads that any node answers from the storage.

use http_server::{
    problem::{Answer, ProblemDetails},
    query::parameter,
    response::{JSON, bytes_response},
};
use hyper::{
    StatusCode,
    header::{HeaderName, HeaderValue},
};
use processor::Application;
use vvm::eventlog::{QName, Reader, RecordId};

use crate::{
    context::{ApiContext, ApiRequest},
    document_reads::{read_within_memory, with_version},
    read::{DocsQuery, no_workspace, of_table, read_docs, read_problem},
    route::{ApiOperation, CONSISTENCY},
    rows::{ShownFields, json_of_record},
};

/// The header that says that an answer may be outdated.
const CONSISTENCY_HEADER: HeaderName = HeaderName::from_static("x-vvm-consistency");

/// The consistency of an answer that may be outdated.
const EVENTUAL: &str = "eventual";

/// Whether the client accepts an answer that may be outdated.
fn is_eventual(query: Option<&str>) -> Result<bool, ProblemDetails> {
    match parameter::<String>(query, CONSISTENCY)?.as_deref() {
        None => Ok(false),
        Some(EVENTUAL) => Ok(true),
        Some(other) => {
            let reason = format!("`{other}` is not a consistency: send `{EVENTUAL}`, or nothing");
            Err(ProblemDetails::bad_request(reason))
        }
    }
}

/// Answers a request from the storage, if the client accepts that. The node need not own the
/// partition. The answer may be older than the last command that was answered.
pub(crate) async fn answer(
    api: &ApiContext,
    request: &ApiRequest<'_>,
) -> Result<Option<Answer>, ProblemDetails> {
    if !is_eventual(request.query())? {
        return Ok(None);
    }
    // A node without a seat has not opened the application, and forwards the request.
    let Some(reader) = request.app.reader() else { return Ok(None) };
    let answer = match request.operation {
        ApiOperation::ReadDoc(name, id) => read_one(api, request, reader, name, *id).await,
        ApiOperation::ReadDocs => read_several(api, request, reader).await,
        _ => return Ok(None),
    };
    Ok(Some(match answer {
        Ok(mut answer) => {
            answer.headers_mut().insert(CONSISTENCY_HEADER, HeaderValue::from_static(EVENTUAL));
            Ok(answer)
        }
        // "Not found" may be outdated, too: the record may exist by now.
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            Err(problem.with_header(CONSISTENCY_HEADER, EVENTUAL))
        }
        Err(problem) => Err(problem),
    }))
}

async fn read_one(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    reader: &Reader,
    name: &QName,
    id: RecordId,
) -> Answer {
    let table = request.table(name)?;
    let read = || async {
        let stored =
            api.limits.turns.run(reader.record(request.ws, id)).await.map_err(read_problem)?;
        let stored = of_table(stored, table, id)?;
        let json = async { json_of_record(&stored, &ShownFields::All, Some(table)).to_string() };
        Ok((api.limits.turns.run(json).await.into_bytes(), stored.version))
    };
    let (json, version) = read_within_memory(api, request, api.deadline(request), read).await?;
    Ok(with_version(bytes_response(StatusCode::OK, JSON, json), version))
}

async fn read_several(api: &ApiContext, request: &ApiRequest<'_>, reader: &Reader) -> Answer {
    let ws = request.ws;
    let query = DocsQuery::of(request.app.application().declarations().schema(), request.query())?;
    let records = |ids: Vec<RecordId>| async move {
        reader.records_by_ids(ws, &ids).await.map_err(read_problem)
    };
    let read = || async {
        let found = api.limits.turns.run(read_docs(&query, records)).await?;
        if found.is_nothing {
            let descriptor = reader.record(ws, Application::DESCRIPTOR).await;
            if descriptor.map_err(read_problem)?.is_none() {
                return Err(no_workspace(ws));
            }
        }
        Ok((found.json, ()))
    };
    let (docs, ()) = read_within_memory(api, request, api.deadline(request), read).await?;
    Ok(bytes_response(StatusCode::OK, JSON, docs))
}
