//! Requests for a log, which is sent once or followed.

use std::sync::Arc;

use http_server::{
    READ_BYTES,
    problem::{Answer, ProblemDetails},
    request_head::RequestHead,
};
use hyper::StatusCode;
use vvm::{LocalPartition, processor::LogName};

use crate::{
    context::{ApiContext, ApiRequest},
    follow::{FollowRequest, FollowedPartition, NewFollower, follow, is_followed},
    owner::{check_owned, owned},
    read,
};

/// Sends a log, or begins to follow it.
pub(crate) async fn read(api: &ApiContext, request: &ApiRequest<'_>, name: LogName) -> Answer {
    let head = request.head;
    let partition = owned(api, request).await?;
    check_log_version(head)?;
    let log = match is_followed(request.query())? {
        true => follow_log(api, request, &partition, name).await,
        false => {
            let (clock, limits, query) = (api.node.clock(), &api.limits, request.query());
            let deadline = api.deadline(request);
            let log = limits.logs.take(head.asker(deadline, clock.now()), 1).await?;
            // A forwarded log may wait for each share for a moment, so the moment begins again
            // here.
            let who = api.half_asker(head, deadline);
            let memory = limits.answers.small.take(who, READ_BYTES).await?;
            let (permits, end) = ([log, memory], head.token_end);
            read::send_log(clock, &limits.turns, &partition, name, query, permits, end).await
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
    let permit = api.limits.followers.try_take(head.principal(), 1)?;
    let of = FollowedPartition {
        app: api.number_of(app),
        partition: app.partition_of(ws),
        epoch: partition.epoch().0,
    };
    let new = NewFollower {
        request: wanted,
        deadline: api.deadline(request),
        token_end: head.token_end,
        principal: head.principal().map(Arc::from),
        permit,
    };
    follow(&api.following, &api.followed, of, partition.log(name), new).await
}

/// Refuses a log for a client that cannot see where the log ends.
pub(crate) fn check_log_version(head: &RequestHead) -> Result<(), ProblemDetails> {
    if head.version >= hyper::Version::HTTP_11 {
        return Ok(());
    }
    let reason = "an HTTP/1.0 client cannot see the end of a log: send the request by HTTP/1.1 (in nginx: proxy_http_version 1.1)";
    let status = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
    Err(ProblemDetails::new(status, "http_version", reason))
}
