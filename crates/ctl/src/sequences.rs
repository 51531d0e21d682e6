//! `vvm sequences`: the stored numbers of a workspace. The node that owns the partition has read
//! the log, so no number of an earlier owner is missing. So these commands ask this node.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{
    CommandError, NodeConfiguration,
    answer_text::{array, shown, table_of},
    client::{NodeAddress, NodeClient, NodeRequest},
    terminal::print,
    workspace_args::WorkspaceArgs,
};

#[derive(Debug, Subcommand)]
pub enum SequencesCommand {
    /// Show the stored numbers of a workspace: the last one of each sequence, and the last event of
    /// the partition that the next start need not read. The numbers that were given may be higher,
    /// because they are stored a moment later.
    Show(SequencesArgs),
}

#[derive(Debug, Args)]
pub struct SequencesArgs {
    /// The admin endpoint of the node that owns the partition. The default is the address in
    /// VVM__ADMIN__LISTEN, or else 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<NodeAddress>,

    #[command(flatten)]
    workspace: WorkspaceArgs,
}

/// The most time to wait for an answer. The node itself gives up sooner.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn run(
    SequencesCommand::Show(SequencesArgs { admin, workspace }): SequencesCommand,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let WorkspaceArgs { app, ws, json, connection } = workspace;
    let admin = &node.admin_target(admin, &connection)?;
    let path = format!("/sequences?app={app}&ws={ws}");
    let answer = NodeClient::ask(admin, NodeRequest::get(&path), ANSWER_TIMEOUT).await?;
    let answer = answer.object(admin)?;
    print(&if json { format!("{answer:#}\n") } else { text_of(&answer) })?;
    Ok(ExitCode::SUCCESS)
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
