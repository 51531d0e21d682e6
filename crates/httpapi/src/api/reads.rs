//! Requests that read: a document, a list, a log.
//!
//! Each request takes its share of the memory for answers before it reads. Its computations run on
//! the [throttle](crate::read_throttle).

use std::sync::Arc;

use bytes::Bytes;
use clock::Instant;
use hyper::{
    Response, StatusCode,
    header::{ETAG, HeaderValue},
};
use vvm::{
    App, LocalPartition,
    eventlog::{RecordId, Table, Version, WsId},
    isequencer::standard::{CRECORD_ID, FIRST_CRECORD_ID},
    processor::LogName,
};

use super::handler::{ApiHandler, RequestHead};
use crate::{
    follow::{FollowRequest, FollowedPartition, follow, is_followed},
    problem::ProblemDetails,
    read::{self, DocsQuery, ListQuery, READ_BYTES, read_problem},
    response::{Body, JSON, bytes_response},
    rows::{ShownFields, json_of_record},
};

impl ApiHandler {
    pub(super) async fn read_doc(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        table: &Table,
        id: RecordId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let partition = self.at(app, ws).await?;
        let deadline = self.deadline(head);
        let read = || async {
            let stored = self.throttle.run(read::read_record(&partition, ws, table, id)).await;
            // The leadership is checked even if the record was not found, because the present
            // leader may have the record.
            self.check_leadership(app, ws, &partition).await?;
            let stored = stored?;
            let json = async { json_of_record(&stored, &ShownFields::All).to_string() };
            let json = self.throttle.run(json).await;
            Ok((json.into_bytes(), stored.version))
        };
        let (json, version) = self.read_within_memory(head, deadline, read).await?;
        Ok(with_version(bytes_response(StatusCode::OK, JSON, json), version))
    }

    pub(super) async fn list_docs(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        table: &Table,
    ) -> Result<Response<Body>, ProblemDetails> {
        let partition = self.at(app, ws).await?;
        let (deadline, query) = (self.deadline(head), ListQuery::of(table, head.query())?);
        let (clock, block) = (self.node.clock(), |block| partition.block(ws, block));
        let read = || async {
            let last = partition.last_number(ws, CRECORD_ID).await.map_err(read_problem)?;
            let last = last.unwrap_or(FIRST_CRECORD_ID);
            // The page ends in time, so that the client learns where the list goes on.
            let now = clock.now();
            let until = now + (deadline - now) / 2;
            let list = read::list_docs(&query, last, (clock, until), &self.long_pages, block);
            let listed = self.throttle.run(list).await;
            let exists = match &listed {
                Ok(listed) if listed.is_nothing => {
                    read::check_workspace_exists(&partition, ws).await
                }
                _ => Ok(()),
            };
            self.check_leadership(app, ws, &partition).await?;
            exists?;
            Ok((listed?.json, ()))
        };
        let (docs, ()) = self.read_within_memory(head, deadline, read).await?;
        Ok(bytes_response(StatusCode::OK, JSON, docs))
    }

    pub(super) async fn read_docs(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
    ) -> Result<Response<Body>, ProblemDetails> {
        let partition = self.at(app, ws).await?;
        let deadline = self.deadline(head);
        let query = DocsQuery::of(app.application().schema(), head.query())?;
        let records = |ids: Vec<RecordId>| {
            let partition = &partition;
            async move { partition.records_by_ids(ws, &ids).await.map_err(read_problem) }
        };
        let read = || async {
            let found = self.throttle.run(read::read_docs(&query, records)).await;
            let exists = match &found {
                Ok(found) if found.is_nothing => read::check_workspace_exists(&partition, ws).await,
                _ => Ok(()),
            };
            // The present leader may have records that were not found.
            self.check_leadership(app, ws, &partition).await?;
            exists?;
            Ok((found?.json, ()))
        };
        let (docs, ()) = self.read_within_memory(head, deadline, read).await?;
        Ok(bytes_response(StatusCode::OK, JSON, docs))
    }

    /// Returns the bytes of an answer, with a share of the memory that is large enough for them,
    /// and the other values that were read.
    ///
    /// The size of an answer is known only after the read. If an answer needs more than its share,
    /// and there is no free memory at once, the answer is dropped together with its share. Then the
    /// request waits for a share of the right size among the large answers, and reads again.
    pub(super) async fn read_within_memory<
        T,
        R: Future<Output = Result<(Vec<u8>, T), ProblemDetails>> + Send,
    >(
        &self,
        head: &RequestHead,
        deadline: Instant,
        read: impl Fn() -> R,
    ) -> Result<(Bytes, T), ProblemDetails> {
        let taker = self.taker(head);
        let mut share = self.answers.reserve_in_half(taker, READ_BYTES, deadline).await?;
        loop {
            let Ok(read) = self.node.clock().timeout_at(deadline, read()).await else {
                return Err(ProblemDetails::unavailable(
                    "timed_out",
                    "the answer was not read in time",
                ));
            };
            let (answer, more) = read?;
            if share.resize(answer.len()) {
                return Ok((share.into_bytes(answer), more));
            }
            let needs = answer.len();
            drop((answer, share));
            share = self.large_answers.reserve_in_half(taker, needs, deadline).await?;
        }
    }

    /// Sends a log, or begins to follow it.
    pub(super) async fn log(
        &self,
        head: &RequestHead,
        app: &App,
        ws: WsId,
        name: LogName,
    ) -> Result<Response<Body>, ProblemDetails> {
        let partition = self.at(app, ws).await?;
        check_log_version(head)?;
        let log = match is_followed(head.query())? {
            true => self.follow(head, (app, ws), &partition, name).await,
            false => {
                let held = self.log_reads.permits(self.taker(head), self.deadline(head)).await?;
                let with = (&self.throttle, held);
                let end = (head.token_end, self.node.clock());
                read::stream_log(&partition, name, head.query(), with, end).await
            }
        };
        self.check_leadership(app, ws, &partition).await?;
        log
    }

    async fn follow(
        &self,
        head: &RequestHead,
        (app, ws): (&App, WsId),
        partition: &LocalPartition<'_>,
        name: LogName,
    ) -> Result<Response<Body>, ProblemDetails> {
        let request = FollowRequest::new(head.query(), &head.headers)?;
        if let LogName::Workspace(ws) = name {
            read::check_workspace_exists(partition, ws).await?;
        }
        let place = self.followers.take(self.access.principal(&head.caller))?;
        let of = FollowedPartition {
            app: self.number_of(app),
            partition: app.partition_of(ws),
            epoch: partition.epoch().0,
        };
        let logs = (&self.followed, of);
        let context = Arc::clone(&self.following);
        let start = (request, self.deadline(head), head.token_end);
        follow(context, logs, partition.log(name), start, place).await
    }
}

/// Refuses a log for a client that cannot see where the log ends.
pub(super) fn check_log_version(head: &RequestHead) -> Result<(), ProblemDetails> {
    if head.version >= hyper::Version::HTTP_11 {
        return Ok(());
    }
    let reason = "an HTTP/1.0 client cannot see the end of a log: send the request by HTTP/1.1 (in nginx: proxy_http_version 1.1)";
    let status = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
    Err(ProblemDetails::new(status, "http_version", reason))
}

pub(super) fn with_version(mut response: Response<Body>, version: Version) -> Response<Body> {
    let tag = format!("\"{}.{}\"", version.epoch.0, version.plog.0);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
