//! Requests for a log, which is sent once or followed.

use std::sync::Arc;

use http_server::{
    problem::{Answer, ProblemDetails},
    request_head::RequestHead,
};
use hyper::StatusCode;
use vvm::{LocalPartition, processor::LogName};

use super::{
    context::{ApiContext, ApiRequest},
    owner::{check_owned, owned},
};
use crate::{
    follow::{FollowRequest, FollowedPartition, follow, is_followed},
    read,
};

/// Sends a log, or begins to follow it.
pub(super) async fn read(api: &ApiContext, request: &ApiRequest<'_>, name: LogName) -> Answer {
    let head = request.head;
    let partition = owned(api, request).await?;
    check_log_version(head)?;
    let log = match is_followed(request.query())? {
        true => follow_log(api, request, &partition, name).await,
        false => {
            let held = api.log_reads.permits(head.taker(), api.deadline(request)).await?;
            let with = (&api.throttle, held);
            let end = (head.token_end, api.node.clock());
            read::stream_log(&partition, name, request.query(), with, end).await
        }
    };
    check_owned(api, request, &partition).await?;
    log
}

async fn follow_log(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    partition: &LocalPartition<'_>,
    name: LogName,
) -> Answer {
    let ApiRequest { head, app, ws, .. } = *request;
    let wanted = FollowRequest::new(head.query(), &head.headers)?;
    if let LogName::Workspace(ws) = name {
        read::check_workspace_exists(partition, ws).await?;
    }
    let place = api.followers.take(head.principal())?;
    let of = FollowedPartition {
        app: api.number_of(app),
        partition: app.partition_of(ws),
        epoch: partition.epoch().0,
    };
    let start = (wanted, api.deadline(request), head.token_end);
    let context = Arc::clone(&api.following);
    follow(context, (&api.followed, of), partition.log(name), start, place).await
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
