//! The owner of a partition, for clients of a node that does not own it. Answers call it the
//! leader.

use vvm::{App, LocalPartition, NotOwner, eventlog::WsId};

use super::handler::ApiHandler;
use crate::problem::{NOT_LEADER, ProblemDetails};

impl ApiHandler {
    /// The partition of a workspace if this node owns it; otherwise a problem with the owner.
    pub(super) async fn at<'a>(
        &self,
        app: &'a App,
        ws: WsId,
    ) -> Result<LocalPartition<'a>, ProblemDetails> {
        match app.at(ws) {
            Ok(partition) => Ok(partition),
            Err(why) => Err(self.not_owner(app, ws, why).await),
        }
    }

    /// Checks that a client may be given the rows that were read.
    pub(super) async fn check_leadership(
        &self,
        app: &App,
        ws: WsId,
        partition: &LocalPartition<'_>,
    ) -> Result<(), ProblemDetails> {
        match partition.may_answer() {
            Ok(()) => Ok(()),
            Err(why) => Err(self.not_owner(app, ws, why).await),
        }
    }

    async fn not_owner(&self, app: &App, ws: WsId, why: NotOwner) -> ProblemDetails {
        self.with_leader(app, ws, ProblemDetails::unavailable(NOT_LEADER, why.to_string())).await
    }

    /// Adds the address of the owner to a problem, if the owner is known.
    pub(super) async fn with_leader(
        &self,
        app: &App,
        ws: WsId,
        problem: ProblemDetails,
    ) -> ProblemDetails {
        // In a cluster the request is forwarded to the owner.
        if self.cluster.is_some() {
            return problem;
        }
        match self.node.find_owner(app, app.partition_of(ws)).await {
            Some(leader) => problem.with("leader", leader.to_string()),
            None => problem,
        }
    }
}
