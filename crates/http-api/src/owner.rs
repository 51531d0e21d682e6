//! The owner of a partition, for clients of a node that does not own it. Answers call the owner the
//! leader.

use http_server::problem::{NOT_OWNER, ProblemDetails};
use vvm::{LocalPartition, NotOwner};

use crate::context::{ApiContext, ApiRequest};

/// The partition of a request if this node owns it; otherwise a problem with the owner.
pub(crate) async fn owned<'r>(
    api: &ApiContext,
    request: &ApiRequest<'r>,
) -> Result<LocalPartition<'r>, ProblemDetails> {
    match request.app.at(request.ws) {
        Ok(partition) => Ok(partition),
        Err(why) => Err(not_owner(api, request, why).await),
    }
}

/// Checks that a client may get the rows that were read.
pub(crate) async fn check_owned(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    partition: &LocalPartition<'_>,
) -> Result<(), ProblemDetails> {
    match partition.may_answer() {
        Ok(()) => Ok(()),
        Err(why) => Err(not_owner(api, request, why).await),
    }
}

async fn not_owner(api: &ApiContext, request: &ApiRequest<'_>, why: NotOwner) -> ProblemDetails {
    let problem = ProblemDetails::unavailable(NOT_OWNER, why.to_string());
    with_owner(api, request, problem).await
}

/// Adds the address of the owner to a problem of a partition that has another owner, if it is
/// known.
pub(crate) async fn with_owner(
    api: &ApiContext,
    request: &ApiRequest<'_>,
    problem: ProblemDetails,
) -> ProblemDetails {
    // In a cluster the request is forwarded to the owner.
    if problem.code() != NOT_OWNER || api.forwarder.is_some() {
        return problem;
    }
    let ApiRequest { app, ws, .. } = *request;
    match api.node.find_owner(app, app.partition_of(ws)).await {
        Some(owner) => problem.with("owner", owner.to_string()),
        None => problem,
    }
}
