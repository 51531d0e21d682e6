//! The stored numbers of a workspace, as the owner of its partition reads them.

use http_api::{check_workspace_exists, problem_of_busy, read_problem};
use http_server::{
    problem::{Answer, NOT_OWNER, ProblemDetails},
    query::{check_query, required},
    response::json_response,
};
use hyper::StatusCode;
use serde_json::json;
use vvm::{Node, NotOwner, eventlog::WsId, sysvvm::AppName};

use crate::found_app::found_app;

/// Lists the stored number of each sequence of a workspace.
pub(crate) async fn list(node: &Node, query: Option<&str>) -> Answer {
    check_query(&["app", "ws"], query)?;
    let (name, ws) = (required::<AppName>(query, "app")?, WsId(required(query, "ws")?));
    let app = found_app(node, &name)?;
    let not_owner = |why: NotOwner| {
        let reason = format!("{why}: ask the admin endpoint of its owner");
        ProblemDetails::unavailable(NOT_OWNER, reason)
    };
    let partition = app.at(ws).map_err(not_owner)?;
    // Before the log is read, the numbers of an earlier leader may be missing.
    let applied = partition.commands().applied();
    applied.map_err(problem_of_busy)?;
    check_workspace_exists(&partition, ws).await?;
    let stored = partition.sequences(ws).await.map_err(read_problem)?;
    partition.may_answer().map_err(not_owner)?;
    let number = app.partition_of(ws);
    let sequences: Vec<_> = stored
        .iter()
        .map(|stored| {
            json!({
                "partition": number, "workspace": stored.ws.0, "name": stored.name,
                "last": stored.last,
            })
        })
        .collect();
    let place = partition.sequences_place();
    let answer = json!({ "app": name.to_string(), "storedIn": place, "sequences": sequences });
    Ok(json_response(StatusCode::OK, &answer))
}
