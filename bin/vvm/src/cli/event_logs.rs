//! The arguments of the commands for logs of events.

use clap::{ArgGroup, Args, Subcommand};

use super::{ConnectionArgs, NodeAddress};

#[derive(Debug, Subcommand)]
pub(crate) enum LogsCommand {
    /// Print the events of a log as they are applied, one JSON object in each line. The command
    /// connects again when its connection ends, and prints each event once.
    Follow(FollowArgs),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("log").args(["ws", "partition"]).required(true)))]
pub(crate) struct FollowArgs {
    /// The API of a node. With several addresses (repeat the option) the command goes on at the
    /// next node when one does not answer.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8822")]
    pub(crate) node: Vec<NodeAddress>,

    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    pub(crate) app: String,

    /// The workspace whose log is followed.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) ws: Option<u64>,

    /// The partition whose log is followed, in place of a workspace. The log has the events of all
    /// workspaces of the partition.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: Option<u16>,

    /// The offset of the first event, or `end` for the first event from now on.
    #[arg(long, value_name = "OFFSET", default_value = "1", value_parser = from)]
    pub(crate) from: String,

    /// The number of events after which the command ends.
    #[arg(long, value_name = "N", value_parser = limit)]
    pub(crate) limit: Option<u64>,

    /// How long the command tries to reach a node again before it ends with 4.
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) retry_seconds: u64,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

fn from(text: &str) -> Result<String, &'static str> {
    let is_offset = text.parse::<u64>().is_ok_and(|offset| offset > 0);
    match is_offset || text == "end" {
        true => Ok(text.to_owned()),
        false => Err("an offset of 1 or more is expected, or `end`"),
    }
}

fn limit(text: &str) -> Result<u64, &'static str> {
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    limit.ok_or("a number of events of 1 or more is expected")
}

#[cfg(test)]
mod tests {
    use clap::{Parser, error::ErrorKind};

    use crate::cli::Cli;

    /// The error without a log named only `--ws`.
    #[test]
    fn one_log_must_be_named() {
        let parsed = |log: &[&str]| {
            let line = [&["vvm", "logs", "follow"], log].concat();
            Cli::try_parse_from(line).map(drop).map_err(|error| (error.kind(), error.to_string()))
        };
        for log in [["--ws", "1"], ["--partition", "1"]] {
            parsed(&log).unwrap();
        }
        let (kind, text) = parsed(&[]).unwrap_err();
        assert_eq!(kind, ErrorKind::MissingRequiredArgument);
        assert!(text.contains("<--ws <NUMBER>|--partition <NUMBER>>"), "{text}");
        let (kind, text) = parsed(&["--ws", "1", "--partition", "1"]).unwrap_err();
        assert_eq!(kind, ErrorKind::ArgumentConflict, "{text}");
    }
}
