//! The arguments of the commands for repairs.

use clap::{Args, Subcommand};

use super::{ConnectionArgs, NodeAddress};

#[derive(Debug, Subcommand)]
pub(crate) enum RepairCommand {
    /// List the partitions that run no commands, with the row that keeps each from working, the
    /// damaged rows of the other partitions, and the last repairs.
    List(RepairArgs),
    /// Restore an event that cannot be read from its whole copy in the log of the workspace. Put a
    /// marker in its place if there is no whole copy, at trust level 2, and if the copy is older
    /// than the last change from level 2: then the content of the event is lost. A damaged fencing
    /// entry is written again. The partition then goes on by itself.
    Mark {
        #[command(flatten)]
        event: MarkArgs,
        #[command(flatten)]
        args: RepairArgs,
    },
    /// Remove the foreign row in the way of a partition, if it still holds the bytes that were
    /// shown. The partition then goes on by itself, and writes the right row.
    Remove {
        #[command(flatten)]
        row: RemoveArgs,
        #[command(flatten)]
        args: RepairArgs,
    },
    /// Store a number in a row of the stored numbers that holds none, if the row still holds the
    /// bytes that were shown. The partition then goes on by itself.
    Number {
        #[command(flatten)]
        row: NumberArgs,
        #[command(flatten)]
        args: RepairArgs,
    },
}

impl RepairCommand {
    pub(crate) fn args(&self) -> &RepairArgs {
        match self {
            RepairCommand::List(args)
            | RepairCommand::Mark { args, .. }
            | RepairCommand::Remove { args, .. }
            | RepairCommand::Number { args, .. } => args,
        }
    }
}

/// The place of an event, and its numbers.
#[derive(Debug, Args)]
pub(crate) struct MarkArgs {
    /// The application.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) app: String,

    /// The partition, as `vvm repair list` shows it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: u16,

    /// The offset of the event in the log of the partition, as `vvm repair list` shows it.
    #[arg(long, value_name = "OFFSET")]
    pub(crate) event: u64,

    /// The workspace of the event.
    #[arg(long, value_name = "NUMBER", required_unless_present = "fencing")]
    pub(crate) ws: Option<u64>,

    /// The offset of the event in the log of its workspace.
    #[arg(long, value_name = "OFFSET", required_unless_present = "fencing")]
    pub(crate) offset: Option<u64>,

    /// State that the row is a damaged fencing entry, which has no workspace and no numbers. The
    /// entry is written again.
    #[arg(long, conflicts_with_all = ["ws", "offset", "numbers", "no_numbers"])]
    pub(crate) fencing: bool,

    /// The last number that the event drew of a sequence, such as 2:322680000135167. Leave the
    /// option out first: if numbers are needed, the refusal lists safe ones.
    #[arg(long = "number", value_name = "SEQUENCE:NUMBER")]
    pub(crate) numbers: Vec<String>,

    /// State that the event drew no numbers besides its offsets.
    #[arg(long, conflicts_with = "numbers")]
    pub(crate) no_numbers: bool,

    /// Use the given workspace and offset, or `--fencing`, although the damaged bytes name another
    /// place.
    #[arg(long)]
    pub(crate) ignore_hint: bool,

    /// Check the repair and show it. Write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Repair without asking for a confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The row in the way of a partition.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The application.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) app: String,

    /// The partition, as `vvm repair list` shows it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: u16,

    /// State that no node wrote the row, so that it is not a damaged event. If it was an event, its
    /// content is lost, and its numbers are given again.
    #[arg(long)]
    pub(crate) foreign: bool,

    /// Check the removal and show it. Write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Repair without asking for a confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// A row of the stored numbers.
#[derive(Debug, Args)]
pub(crate) struct NumberArgs {
    /// The application.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) app: String,

    /// The partition, as `vvm repair list` shows it.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partition: u16,

    /// The workspace of the number. Leave this option and --sequence out for the stored offset of
    /// the partition.
    #[arg(long, value_name = "NUMBER", requires = "sequence")]
    pub(crate) ws: Option<u64>,

    /// The sequence of the number, as `vvm repair list` shows it.
    #[arg(long, value_name = "NUMBER", requires = "ws")]
    pub(crate) sequence: Option<u16>,

    /// The number to be stored: not below the last one that was given. The default is a safe
    /// number. For the stored offset: the next event to replay. The default, 1, replays the whole
    /// log.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) number: Option<u64>,

    /// Check the repair and show it. Write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Repair without asking for a confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The arguments that all commands for repairs have.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The admin endpoint of the node that owns the partition. The default is the address in
    /// VVM__ADMIN__LISTEN, or else 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<NodeAddress>,

    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
