//! The arguments of the commands that copy a storage.

use std::path::PathBuf;

use clap::Args;

use super::{ConnectionArgs, NodeAddress, StorageArgs};

/// The help text of `vvm backup`.
pub(crate) const BACKUP_HELP: &str = "\
    Without --storage and --config the command asks a running node, which goes on working. With one of them the command \
    reads the redb file itself, which no node may use meanwhile. The backup has a name of its own until it is whole and \
    verified. A row that was acknowledged before the command began is in the backup.\n\n\
    Exit codes: 0 the backup is whole; 1 the backup failed or is not whole; 2 wrong usage, or FILE exists; 3 wrong configuration, or the \
    file is damaged or belongs to another program; 4 the node or the file could not be reached.";

/// The help text of `vvm restore`.
pub(crate) const RESTORE_HELP: &str = "\
    Without --storage and --config the command makes data/vvm.redb. The file has another name until it is whole and each \
    of its rows is verified. Never run a node on the restored file beside the node whose file was backed up: both would \
    give the same numbers.\n\n\
    Exit codes: 0 the file is whole; 1 the restore failed; 2 wrong usage, FILE does not exist or is no file, or the redb \
    file or its log exists or cannot be made; 3 wrong configuration, or the backup is damaged or of another version; 4 the \
    backup could not be read, or the file could not be written.";

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The file of the backup. It must not exist. A missing folder is made.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The admin endpoint of the node. The default is the address in VVM__ADMIN__LISTEN, or else
    /// 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["storage", "config"])]
    pub(crate) admin: Option<NodeAddress>,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,

    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The file of the backup.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,
}
