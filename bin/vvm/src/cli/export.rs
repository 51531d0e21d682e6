//! The arguments of the commands that move an application between storages.

use std::path::PathBuf;

use clap::Args;
use sysvvm::AppName;

use super::StorageArgs;

/// The help text of `vvm export`.
pub(crate) const EXPORT_HELP: &str = "\
    Without --storage and --config the command reads data/vvm.redb. No node may use a redb file meanwhile. Cassandra and \
    DynamoDB can be read while nodes work: the export then has the first events of each partition, and at least those that \
    were acknowledged before the command began. Stop the nodes to move an application, and at trust level 2. The storage is \
    only read. The file has another name until it is whole and verified.\n\n\
    Exit codes: 0 the export is whole; 1 the export failed, or an event is damaged; 2 wrong usage, or FILE exists; 3 wrong configuration, the storage holds data of \
    another program or version, or the application does not exist, is damaged or was never deployed; 4 the storage could not \
    be reached.";

/// The help text of `vvm import`.
pub(crate) const IMPORT_HELP: &str = "\
    Without --storage and --config the command writes data/vvm.redb. The application must not exist in the storage. The file \
    is verified from its beginning to its end before anything is written. No node sees the application before the import is \
    finished. The first node that starts the application reads its logs from the beginning, and writes all other rows. Never \
    run nodes on both sides: they would give the same numbers.\n\n\
    If an import is killed or fails, repeat it with --again, or drop it with --discard, each with the same --app and the same \
    --storage or --config.\n\n\
    Exit codes: 0 the application is imported, or the unfinished import is dropped; 1 the import began, and the export could \
    not be read to its end or was changed, the storage is damaged or refused a call, or another command discarded the import; \
    2 wrong usage, or FILE does not exist or is no file; 3 wrong configuration, the export is damaged or of another version, \
    the application exists, an import of it has not finished, or the storage cannot hold its rows; 4 the export could not be \
    read before the import began, or the storage could not be reached, also later.";

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The file of the export. It must not exist. A missing folder is made.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    pub(crate) app: AppName,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file of the export.
    #[arg(value_name = "FILE", required_unless_present = "discard")]
    pub(crate) file: Option<PathBuf>,

    /// The name of the application in this storage. The default is its name in the export.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) app: Option<AppName>,

    /// Drop an import of the application that has not finished, and begin again.
    #[arg(long)]
    pub(crate) again: bool,

    /// Only drop an import that has not finished. Needs --app.
    #[arg(long, requires = "app", conflicts_with_all = ["again", "file"])]
    pub(crate) discard: bool,

    #[command(flatten)]
    pub(crate) storage: StorageArgs,
}
