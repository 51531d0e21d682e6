//! `vvm sequences`: the stored numbers of a workspace. The node that owns the partition has read
//! the log, so no number of an earlier owner is missing. So these commands ask this node.

use std::{process::ExitCode, time::Duration};

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use sysvvm::AppName;

use crate::{
    answer_text::{array, shown, table_of},
    cli::{SequencesArgs, SequencesCommand},
    command_error::CommandError,
    node_client::{NodeClient, no_answer},
    print, serve,
};

/// The most time to wait for an answer. The node itself gives up sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn run(command: SequencesCommand) -> Result<ExitCode, CommandError> {
    let args = command.args();
    let answer = stored(args).await?;
    print(&if args.json { format!("{answer:#}\n") } else { text_of(&answer) })?;
    Ok(ExitCode::SUCCESS)
}

async fn stored(args: &SequencesArgs) -> Result<Value, CommandError> {
    let app: AppName =
        args.app.parse().map_err(|error| CommandError::usage(format!("--app: {error}")))?;
    let admin = &serve::admin_target(args.admin.clone(), &args.connection)?;
    let path = format!("/sequences?app={app}&ws={}", args.ws);
    let answer = NodeClient::ask(admin, (Method::GET, &path, Bytes::new()), ANSWER_TIMEOUT).await;
    let unreachable = |why| CommandError::unreachable(no_answer(admin, "admin.listen", why));
    answer.map_err(unreachable)?.object(admin)
}

fn text_of(answer: &Value) -> String {
    const KEYS: [&str; 4] = ["partition", "workspace", "name", "last"];
    let sequences = array(&answer["sequences"]);
    let place = shown(&answer["storedIn"]);
    if sequences.is_empty() {
        return format!("{place} has no number of the workspace yet\n");
    }
    let table = table_of(KEYS, sequences.iter().map(|one| KEYS.map(|key| shown(&one[key]))));
    format!("stored in {place}:\n{table}")
}
