//! Requests that read a document or a list.
//!
//! Each request takes memory for its answer before it reads. Its computations run on
//! the [turns](crate::limits::Limits).

use bytes::Bytes;
use clock::Instant;
use http_server::{
    READ_BYTES,
    limits::held_bytes,
    problem::{Answer, ProblemDetails},
    response::{Body, JSON, bytes_response},
};
use hyper::{
    Response, StatusCode,
    header::{ETAG, HeaderValue},
};
use vvm::{
    eventlog::{QName, RecordId, Version},
    isequencer::standard::{CRECORD_ID, FIRST_CRECORD_ID},
};

use crate::{
    context::{ApiContext, ApiRequest},
    owner::{check_owned, owned},
    read::{self, DocsQuery, ListQuery, read_problem},
    rows::{ShownFields, json_of_record},
};

pub(crate) async fn read_doc(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    name: &QName,
    id: RecordId,
) -> Answer {
    let table = request.table(name)?;
    let partition = owned(api, request).await?;
    let read = || async {
        let stored = read::read_record(&partition, request.ws, table, id);
        let stored = api.limits.turns.run(stored).await;
        // The leadership is checked even if the record was not found, because the present leader
        // may have the record.
        check_owned(api, request, &partition).await?;
        let stored = stored?;
        let json = async { json_of_record(&stored, &ShownFields::All, Some(table)).to_string() };
        Ok((api.limits.turns.run(json).await.into_bytes(), stored.version))
    };
    let (json, version) = read_within_memory(api, request, api.deadline(request), read).await?;
    Ok(with_version(bytes_response(StatusCode::OK, JSON, json), version))
}

pub(crate) async fn list_docs(api: &ApiContext, request: &ApiRequest<'_>, name: &QName) -> Answer {
    let (table, ws) = (request.table(name)?, request.ws);
    let partition = owned(api, request).await?;
    let (deadline, query) = (api.deadline(request), ListQuery::of(table, request.query())?);
    let (clock, block) = (api.node.clock(), |block| partition.commands().block(ws, block));
    let read = || async {
        let last = partition.last_number(ws, CRECORD_ID).await.map_err(read_problem)?;
        let last = last.unwrap_or(FIRST_CRECORD_ID);
        // The page ends in time, so that the client learns where the list goes on.
        let now = clock.now();
        let until = now + (deadline - now) / 2;
        let list = read::list_docs(&query, last, clock, until, &api.limits.long_pages, block);
        let listed = api.limits.turns.run(list).await;
        let exists = match &listed {
            Ok(listed) if listed.is_nothing => read::check_workspace_exists(&partition, ws).await,
            _ => Ok(()),
        };
        check_owned(api, request, &partition).await?;
        exists?;
        Ok((listed?.json, ()))
    };
    let (docs, ()) = read_within_memory(api, request, deadline, read).await?;
    Ok(bytes_response(StatusCode::OK, JSON, docs))
}

pub(crate) async fn read_docs(api: &ApiContext, request: &ApiRequest<'_>) -> Answer {
    let ws = request.ws;
    let partition = owned(api, request).await?;
    let deadline = api.deadline(request);
    let query = DocsQuery::of(request.app.application().declarations().schema(), request.query())?;
    let records = |ids: Vec<RecordId>| {
        let partition = &partition;
        async move { partition.commands().records_by_ids(ws, &ids).await.map_err(read_problem) }
    };
    let read = || async {
        let found = api.limits.turns.run(read::read_docs(&query, records)).await;
        let exists = match &found {
            Ok(found) if found.is_nothing => read::check_workspace_exists(&partition, ws).await,
            _ => Ok(()),
        };
        // The present leader may have records that were not found.
        check_owned(api, request, &partition).await?;
        exists?;
        Ok((found?.json, ()))
    };
    let (docs, ()) = read_within_memory(api, request, deadline, read).await?;
    Ok(bytes_response(StatusCode::OK, JSON, docs))
}

/// Returns the bytes of an answer, with memory that is large enough for them, and
/// the other values that were read.
///
/// The size of an answer is known only after the read. If an answer needs more memory, and none is
/// free at once, the answer is dropped together with its permit. Then the request waits for memory
/// of the right size among the large answers, and reads again.
pub(crate) async fn read_within_memory<
    T,
    R: Future<Output = Result<(Vec<u8>, T), ProblemDetails>> + Send,
>(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    deadline: Instant,
    read: impl Fn() -> R,
) -> Result<(Bytes, T), ProblemDetails> {
    let answers = &api.limits.answers;
    let mut memory = answers.small.take(api.half_asker(request.head, deadline), READ_BYTES).await?;
    loop {
        let (answer, more) = read_in_time(api, deadline, read()).await?;
        if memory.resize(answer.len()).is_ok() {
            return Ok((held_bytes(answer, memory), more));
        }
        let needs = answer.len();
        drop((answer, memory));
        memory = answers.large.take(api.half_asker(request.head, deadline), needs).await?;
    }
}

/// Reads something, at most until the deadline of the request.
pub(crate) async fn read_in_time<T>(
    api: &ApiContext,
    deadline: Instant,
    read: impl Future<Output = Result<T, ProblemDetails>>,
) -> Result<T, ProblemDetails> {
    let read = api.node.clock().timeout_at(deadline, read).await;
    read.unwrap_or_else(|_| {
        Err(ProblemDetails::unavailable("timed_out", "the answer was not read in time"))
    })
}

pub(crate) fn with_version(mut response: Response<Body>, version: Version) -> Response<Body> {
    let tag = format!("\"{}.{}\"", version.epoch.0, version.plog.0);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
