//! The route of a request whose caller may do its operation.

use access::{Caller, Right};
use clock::Instant;
use http_server::{
    authentication::{PortAccess, forbidden},
    problem::ProblemDetails,
};

use crate::route::Route;

/// The route of a request whose caller may do the operation. Only a check that succeeds makes one.
pub(crate) struct AllowedRoute<'p>(Route<'p>);

impl<'p> AllowedRoute<'p> {
    /// Checks that a client may do the operation of its route, and that it does not send too many
    /// commands. Commands, batches and draws are counted later, when their bodies are known.
    pub(crate) fn of_client(
        access: &PortAccess,
        caller: &Caller,
        route: Route<'p>,
        now: Instant,
    ) -> Result<AllowedRoute<'p>, ProblemDetails> {
        let allowed = AllowedRoute::of_peer(access, caller, route)?;
        let Route { endpoint, operation, .. } = &allowed.0;
        if endpoint.right == Right::Write && !operation.is_counted_by_body() {
            access.count_commands(caller, 1, now)?;
        }
        Ok(allowed)
    }

    /// Checks that the caller of a forwarded request may do the operation of its route. The node
    /// that got the request from the client has counted the command.
    pub(crate) fn of_peer(
        access: &PortAccess,
        caller: &Caller,
        route: Route<'p>,
    ) -> Result<AllowedRoute<'p>, ProblemDetails> {
        if !access.needs_token() {
            return Ok(AllowedRoute(route));
        }
        let app = format!("{}/{}", route.owner, route.app);
        let (right, workspace) = (route.endpoint.right, route.workspace());
        if caller.grants.may(&app, workspace, right) {
            return Ok(AllowedRoute(route));
        }
        let place = match workspace {
            Some(workspace) => format!("workspace {workspace}"),
            None => "all workspaces".to_owned(),
        };
        let right = right.name();
        Err(forbidden(format!("the token does not grant `{right}` in {place} of {app}")))
    }

    pub(crate) fn into_route(self) -> Route<'p> {
        self.0
    }
}
