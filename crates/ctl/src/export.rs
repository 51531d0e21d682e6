//! `vvm export` and `vvm import`: an application as a stream of events, between any two storages.

use std::{
    error::Error,
    fs::File,
    io::{BufReader, BufWriter},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use appstream::{
    CheckedStream, ExportError, Exporter, ImportError, ImportReport, StreamError, UnfinishedImport,
    check_stream, import,
};
use base::with_causes;
use clap::Args;
use clock::Clock;
use eventlog::AppRow;
use istorage::{ErrorKind, StorageDriver};
use sysvvm::{AppName, System};

use crate::{
    CommandError, NodeConfiguration,
    named_storage::{NamedStorage, OPEN_TIME},
    new_file::NewFile,
    regular_file::open_regular_file,
    storage_args::StorageArgs,
    storage_target::StorageTarget,
    terminal::{byte_bar, print},
};

/// The help text of `vvm export`.
const EXPORT_HELP: &str = "\
    Without --storage and --config the command reads data/vvm.redb. No node may use a redb file meanwhile. Cassandra and \
    DynamoDB can be read while nodes work: the export then has the first events of each partition, and at least those that \
    were acknowledged before the command began. Stop the nodes to move an application, and at trust level 2. The storage is \
    only read. The file has another name until it is whole and verified.\n\n\
    Exit codes: 0 the export is whole; 1 the export failed, or an event is damaged; 2 wrong usage, or FILE exists; 3 wrong configuration, the storage holds data of \
    another program or version, or the application does not exist, is damaged or was never deployed; 4 the storage could not \
    be reached.";

/// The help text of `vvm import`.
const IMPORT_HELP: &str = "\
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
#[command(after_long_help = EXPORT_HELP)]
pub struct ExportArgs {
    /// The file of the export. It must not exist. A missing folder is made.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    app: AppName,

    #[command(flatten)]
    storage: StorageArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = IMPORT_HELP)]
pub struct ImportArgs {
    /// The file of the export.
    #[arg(value_name = "FILE", required_unless_present = "discard")]
    file: Option<PathBuf>,

    /// The name of the application in this storage. The default is its name in the export.
    #[arg(long, value_name = "OWNER/NAME")]
    app: Option<AppName>,

    /// Drop an import of the application that has not finished, and begin again.
    #[arg(long)]
    again: bool,

    /// Only drop an import that has not finished. Needs --app.
    #[arg(long, requires = "app", conflicts_with_all = ["again", "file"])]
    discard: bool,

    #[command(flatten)]
    storage: StorageArgs,
}

/// Files are read and written in pieces of this size.
const PIECE: usize = 1 << 20;

/// The advice for a storage in memory.
const NOT_IN_MEMORY: &str = "an application moves between redb, Cassandra and DynamoDB only";

/// Runs `vvm export`.
pub(crate) async fn run_export(
    args: ExportArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let ExportArgs { file: path, app, storage } = args;
    let storage = storage.outside_memory(node, NOT_IN_MEMORY)?;
    let clock = Clock::system();
    let deadline = clock.now() + OPEN_TIME;
    let driver = storage.target.open_for_reading(clock.clone(), deadline).await;
    let advice = "stop the node, or export the file of a backup: vvm backup, vvm restore";
    let driver = driver.map_err(|error| storage.not_opened(&error, advice))?;
    let NamedStorage { target, system } = storage;
    let written = async {
        let opened = Exporter::open(Arc::clone(&driver), system, &app, clock, deadline).await;
        let exporter = opened.map_err(|error| not_opened(&target, &error))?;
        let bar = byte_bar();
        let mut file = NewFile::create(&path)?;
        let mut counted = BufWriter::with_capacity(PIECE, bar.wrap_write(&mut file));
        let report = exporter.write(&mut counted).await;
        drop(counted);
        let report = report.map_err(|error| not_written(&target, &app, &path, &error))?;
        bar.set_message("verifying");
        file.publish(|file| {
            let read = BufReader::with_capacity(PIECE, file);
            check_stream(read).map_err(|error| CommandError::unfinished(in_file(&path, &error)))
        })?;
        bar.finish_and_clear();
        Ok(report)
    };
    let written = written.await;
    driver.close().await;
    let report = written?;
    let path = path.display();
    print(&format!("{path}: {} events of {app} ({} bytes)\n", report.events, report.bytes))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `vvm import`.
pub(crate) async fn run_import(
    args: ImportArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let storage = args.storage.outside_memory(node, NOT_IN_MEMORY)?;
    let checked = args.file.as_deref().map(check).transpose()?;
    if let Some(checked) = &checked {
        // A connection makes the file of redb, and opening the system keyspace makes the keyspace.
        let fits = checked.check_rows(storage.target.capabilities().row.value);
        fits.map_err(|error| not_imported(&storage.target, &error))?;
    }
    let app = args.app.clone().or_else(|| checked.as_ref().map(|it| it.app().clone()));
    let app = app.ok_or_else(|| CommandError::usage("--app names the application to discard"))?;
    let clock = Clock::system();
    let deadline = clock.now() + OPEN_TIME;
    let driver = match args.discard {
        true => storage.open_existing(clock.clone(), deadline).await,
        false => storage.target.connect(clock.clone(), deadline).await,
    };
    let driver = driver.map_err(|error| storage.not_opened(&error, "stop the node"))?;
    let done = with_driver(&args, &storage, &app, checked, &driver, clock).await;
    driver.close().await;
    print(&done?)?;
    Ok(ExitCode::SUCCESS)
}

async fn with_driver(
    args: &ImportArgs,
    storage: &NamedStorage,
    app: &AppName,
    checked: Option<CheckedStream>,
    driver: &Arc<dyn StorageDriver>,
    clock: Clock,
) -> Result<String, CommandError> {
    let NamedStorage { target, system } = storage;
    let deadline = clock.now() + OPEN_TIME;
    let failed = |error| not_imported(target, &ImportError::System(error));
    // Opening the system keyspace would make it.
    if args.discard
        && driver.open(system, deadline).await.map_err(|it| failed(it.into()))?.is_none()
    {
        return Err(CommandError::config(format!(
            "{target} has no keyspace {system}, so it has no import: nothing was removed"
        )));
    }
    let opened = System::open(Arc::clone(driver), system.clone(), clock.clone(), deadline).await;
    let system = opened.map_err(failed)?;
    if args.again || args.discard {
        match system.discard_import(app, deadline).await {
            Err(sysvvm::Error::DoesNotExist { .. }) if args.again => {}
            Err(sysvvm::Error::AlreadyExists { .. }) if args.discard => {
                return Err(CommandError::config(format!(
                    "{app} in {target} is not an unfinished import: nothing was removed"
                )));
            }
            discarded => discarded.map_err(failed)?,
        }
    }
    let (Some(path), Some(checked)) = (&args.file, checked) else {
        return Ok(format!("the unfinished import of {app} is removed from {target}\n"));
    };
    let bar = byte_bar();
    let source = BufReader::with_capacity(PIECE, bar.wrap_read(open(path)?));
    let deadline = clock.now() + OPEN_TIME;
    let imported = import(&system, app, source, &checked, clock, deadline).await;
    let ImportReport { events } = imported.map_err(|error| match error {
        ImportError::Unfinished(error) => not_finished(target, args, path, app, &error),
        ImportError::System(error @ sysvvm::Error::Importing { .. }) => {
            let advice = removal_advice(args, path, app);
            CommandError::config(format!(
                "the import into {target} failed: {error}\n  wait for it, {advice}"
            ))
        }
        ImportError::Stream(error) => not_read(path, &error),
        error => not_imported(target, &error),
    })?;
    bar.finish_and_clear();
    let (partitions, level) = (checked.partitions(), checked.trust_level());
    Ok(format!(
        "{app} is in {target}: {events} events, {partitions} partitions, trust level {level}\n\
         the logs of workspaces, the records and the numbers of {app} appear after a node has \
         started with it\n"
    ))
}

fn check(path: &Path) -> Result<CheckedStream, CommandError> {
    let bar = byte_bar();
    bar.set_message("verifying");
    let source = BufReader::with_capacity(PIECE, bar.wrap_read(open(path)?));
    let checked = check_stream(source).map_err(|error| not_read(path, &error))?;
    bar.finish_and_clear();
    Ok(checked)
}

fn open(path: &Path) -> Result<File, CommandError> {
    open_regular_file(path, "the export")
}

fn not_read(path: &Path, error: &StreamError) -> CommandError {
    let message = in_file(path, error);
    match error {
        StreamError::Read(_) => CommandError::unreachable(message),
        _ => CommandError::config(message),
    }
}

/// The commands that repeat or drop an import, for the same storage and the same application. A
/// command without the option of the storage would import into the usual redb file.
fn removal_advice(args: &ImportArgs, path: &Path, app: &AppName) -> String {
    let StorageArgs { storage, config } = &args.storage;
    let mut options = format!(" --app {app}");
    if let Some(storage) = storage {
        options += &format!(" --storage {}", shell_word(&storage.to_string()));
    }
    if let Some(config) = config {
        options += &format!(" --config {}", shell_word(&config.to_string_lossy()));
    }
    let path = shell_word(&path.to_string_lossy());
    format!(
        "repeat it with `vvm import {path} --again{options}`, or drop it with \
         `vvm import --discard{options}`"
    )
}

/// An argument of a command line, in quotes if a shell would read it in another way.
fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:,+@%".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The error of an import that has begun.
fn not_finished(
    target: &StorageTarget,
    args: &ImportArgs,
    path: &Path,
    app: &AppName,
    error: &UnfinishedImport,
) -> CommandError {
    let advice = removal_advice(args, path, app);
    let why = match error {
        UnfinishedImport::Stream(_) | UnfinishedImport::Changed => in_file(path, error),
        error => format!("the import into {target} failed: {}", with_causes(error)),
    };
    let message = format!(
        "{why}\n  the import of {app} has not finished: {advice}; until then its rows stay in \
         {target}, and no node starts with {app}"
    );
    match error.storage().map(istorage::Error::kind) {
        None | Some(ErrorKind::Corrupt | ErrorKind::Invalid) => CommandError::unfinished(message),
        Some(_) => CommandError::unreachable(message),
    }
}

/// The message of an error of a file.
fn in_file(path: &Path, error: &impl Error) -> String {
    format!("{}: {}", path.display(), with_causes(error))
}

/// The error of an application that cannot be opened.
fn not_opened(target: &StorageTarget, error: &ExportError) -> CommandError {
    let what = format!("cannot export from {target}");
    match (error, error.storage()) {
        (_, Some(error)) => CommandError::storage(&what, error),
        (ExportError::System(error), None) => CommandError::system(&what, error),
        (error, None) => CommandError::config(format!("{what}: {}", with_causes(error))),
    }
}

/// The error of an export that has begun.
fn not_written(
    target: &StorageTarget,
    app: &AppName,
    path: &Path,
    error: &ExportError,
) -> CommandError {
    let what = format!("cannot export from {target}");
    let why = with_causes(error);
    match (error, error.storage()) {
        (ExportError::Write(_), _) => CommandError::unfinished(in_file(path, error)),
        (ExportError::Log(eventlog::Error::DamagedRow(damaged)), _) => {
            let advice = repair_advice(app, damaged.row());
            CommandError::unfinished(format!("{what}: {why}\n{advice}"))
        }
        (_, Some(lost)) if !matches!(lost.kind(), ErrorKind::Corrupt | ErrorKind::Invalid) => {
            CommandError::storage(&what, lost)
        }
        _ => CommandError::unfinished(format!("{what}: {why}")),
    }
}

/// What to do about a damaged row.
fn repair_advice(app: &AppName, row: AppRow) -> String {
    let shown = match row {
        AppRow::Plog(partition, offset) => format!(
            "  `vvm inspect plog --app {app} --partition {partition} --from {} --limit 1`, with \
             the storage of this command, shows the row\n",
            offset.0
        ),
        _ => String::new(),
    };
    format!("{shown}  repair it first: start a node, and `vvm repair list` shows the repair")
}

fn not_imported(target: &StorageTarget, error: &ImportError) -> CommandError {
    let what = format!("the import into {target} failed");
    match (error, error.storage()) {
        (_, Some(error)) => CommandError::storage(&what, error),
        // The import began, and another command has removed it.
        (ImportError::System(error @ sysvvm::Error::ImportDiscarded { .. }), None) => {
            CommandError::unfinished(format!("{what}: {}", with_causes(error)))
        }
        (ImportError::System(error), None) => CommandError::system(&what, error),
        (error @ ImportError::RowTooLarge { .. }, None) => {
            CommandError::config(format!("{what}: {}", with_causes(error)))
        }
        (error, None) => CommandError::unfinished(format!("{what}: {}", with_causes(error))),
    }
}

#[cfg(test)]
mod tests;
