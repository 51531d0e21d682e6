//! Requests that read a document or a list.
//!
//! Each request takes its share of the memory for answers before it reads. Its computations run on
//! the [throttle](http_server::limits::ReadThrottle).

use bytes::Bytes;
use clock::Instant;
use http_server::{
    READ_BYTES,
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
        let stored = api.throttle.run(stored).await;
        // The leadership is checked even if the record was not found, because the present leader
        // may have the record.
        check_owned(api, request, &partition).await?;
        let stored = stored?;
        let json = async { json_of_record(&stored, &ShownFields::All).to_string() };
        Ok((api.throttle.run(json).await.into_bytes(), stored.version))
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
        let list = read::list_docs(&query, last, clock, until, &api.long_pages, block);
        let listed = api.throttle.run(list).await;
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
        let found = api.throttle.run(read::read_docs(&query, records)).await;
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

/// Returns the bytes of an answer, with a share of the memory that is large enough for them, and
/// the other values that were read.
///
/// The size of an answer is known only after the read. If an answer needs more than its share, and
/// there is no free memory at once, the answer is dropped together with its share. Then the request
/// waits for a share of the right size among the large answers, and reads again.
pub(crate) async fn read_within_memory<
    T,
    R: Future<Output = Result<(Vec<u8>, T), ProblemDetails>> + Send,
>(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    deadline: Instant,
    read: impl Fn() -> R,
) -> Result<(Bytes, T), ProblemDetails> {
    let taker = request.head.taker();
    let mut share = api.answers.small.reserve_in_half(taker, READ_BYTES, deadline).await?;
    loop {
        let (answer, more) = read_in_time(api, deadline, read()).await?;
        if share.resize(answer.len()) {
            return Ok((share.into_bytes(answer), more));
        }
        let needs = answer.len();
        drop((answer, share));
        share = api.answers.large.reserve_in_half(taker, needs, deadline).await?;
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
