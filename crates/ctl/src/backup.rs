//! `vvm backup` and `vvm restore`: copies of a redb file.

use std::{
    io::{self, BufReader, Write},
    panic,
    path::{Path, PathBuf},
    process::ExitCode,
};

use base::with_causes;
use bytes::Bytes;
use clap::Args;
use clock::Clock;
use indicatif::ProgressBar;
use istorage::ErrorKind;
use istorage_redb::{BackupReport, OfflineBackup, RedbConfig, restore, verify_backup};

use crate::{
    CommandError, NodeConfiguration,
    client::{ConnectionArgs, NodeAddress, NodeRequest, NodeTarget, StreamedAnswer},
    command_error::ExitReason,
    new_file::{NewFile, check_free},
    regular_file::open_regular_file,
    storage_args::StorageArgs,
    terminal::{byte_bar, print},
};

/// The help text of `vvm backup`.
const BACKUP_HELP: &str = "\
    Without --storage and --config the command asks a running node, which goes on working. With one of them the command \
    reads the redb file itself, which no node may use meanwhile. The backup has a name of its own until it is whole and \
    verified. A row that was acknowledged before the command began is in the backup.\n\n\
    Exit codes: 0 the backup is whole; 1 the backup failed or is not whole; 2 wrong usage, or FILE exists; 3 wrong configuration, or the \
    file is damaged or belongs to another program; 4 the node or the file could not be reached.";

/// The help text of `vvm restore`.
const RESTORE_HELP: &str = "\
    Without --storage and --config the command makes data/vvm.redb. The file has another name until it is whole and each \
    of its rows is verified. Never run a node on the restored file beside the node whose file was backed up: both would \
    give the same numbers.\n\n\
    Exit codes: 0 the file is whole; 1 the restore failed; 2 wrong usage, FILE does not exist or is no file, or the redb \
    file or its log exists or cannot be made; 3 wrong configuration, or the backup is damaged or of another version; 4 the \
    backup could not be read, or the file could not be written.";

#[derive(Debug, Args)]
#[command(after_long_help = BACKUP_HELP)]
pub struct BackupArgs {
    /// The file of the backup. It must not exist. A missing folder is made.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The admin endpoint of the node. The default is the address in VVM__ADMIN__LISTEN, or else
    /// 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["storage", "config"])]
    admin: Option<NodeAddress>,

    #[command(flatten)]
    storage: StorageArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = RESTORE_HELP)]
pub struct RestoreArgs {
    /// The file of the backup.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    storage: StorageArgs,
}

/// What to do if the disk of the backup is too slow.
const SLOW: &str = "write the backup to a faster disk";

/// Runs `vvm backup`.
pub(crate) async fn run_backup(
    args: BackupArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let BackupArgs { file: path, admin, storage, connection } = args;
    let bar = byte_bar();
    let mut file = NewFile::create(&path)?;
    if storage.is_given() {
        let config = storage.redb_file(node)?;
        let mut counted = bar.wrap_write(&mut file);
        let opened = quietly(|| OfflineBackup::open(&config));
        let backup = opened.map_err(|error| not_opened(&config, &path, &error))?;
        let written = quietly(|| backup.write(&mut counted));
        written.map_err(|error| not_copied(&config, &path, &error))?;
    } else {
        let node = &node.admin_target(admin, &connection)?;
        receive(node, &mut file, &path, &bar).await?;
    }
    bar.set_message("verifying");
    let report = file.publish(|file| {
        let read = BufReader::with_capacity(1 << 20, file);
        verify_backup(read).map_err(|error| CommandError::unfinished(with_causes(&error)))
    })?;
    bar.finish_and_clear();
    print(&text_of(&path, &report))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `vvm restore`.
pub(crate) fn run_restore(
    args: RestoreArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let config = args.storage.redb_file(node)?;
    let file = open_regular_file(&args.file, "the backup")?;
    check_free(&config.path)?;
    let bar = byte_bar();
    let clock = Clock::system();
    let report = restore(bar.wrap_read(file), &config, &clock).map_err(|error| {
        let (from, to) = (args.file.display(), config.path.display());
        let what = format!("the restore of {from} to {to} failed");
        match error.kind() {
            // The path, or that of a log, is taken or cannot be used.
            ErrorKind::Invalid => CommandError::because(ExitReason::Usage, &what, &error),
            _ => CommandError::storage(&what, &error),
        }
    })?;
    bar.finish_and_clear();
    print(&text_of(&config.path, &report))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the backup that a node sends.
async fn receive(
    node: &NodeTarget,
    file: &mut NewFile,
    path: &Path,
    bar: &ProgressBar,
) -> Result<(), CommandError> {
    let mut answer =
        StreamedAnswer::open(node, NodeRequest::post("/backup", Bytes::new()), SLOW).await?;
    let mut counted = bar.wrap_write(file);
    let unwritten = |error| unwritten(path, &error);
    while let Some(piece) = answer.next().await? {
        counted.write_all(&piece).map_err(unwritten)?;
    }
    Ok(())
}

/// Runs a call of redb, which panics on damaged pages. The message of the panic is hidden, because
/// the error describes the damage better.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> T {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = call();
    panic::set_hook(hook);
    result
}

/// The error of a file that cannot be written, for example because the disk is full.
fn unwritten(path: &Path, error: &io::Error) -> CommandError {
    CommandError::unfinished(format!("cannot write the backup {}: {error}", path.display()))
}

fn not_opened(config: &RedbConfig, path: &Path, error: &istorage::Error) -> CommandError {
    let mut what = failed(config, path);
    if error.kind() == ErrorKind::Unavailable {
        what += " (if a node uses the file, ask the node: leave out --storage and --config, and give --admin)";
    }
    CommandError::storage(&what, error)
}

/// The error of a backup that has begun. A node that sends a backup gives the same exit code.
fn not_copied(config: &RedbConfig, path: &Path, error: &istorage::Error) -> CommandError {
    CommandError::because(ExitReason::Failed, &failed(config, path), error)
}

fn failed(config: &RedbConfig, path: &Path) -> String {
    format!("the backup of {} to {} failed", config.path.display(), path.display())
}

fn text_of(path: &Path, report: &BackupReport) -> String {
    let BackupReport { keyspaces, rows, bytes } = report;
    let path = path.display();
    format!("{path}: {rows} rows in {keyspaces} keyspaces are whole ({bytes} bytes of backup)\n")
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use futures::TryStreamExt;
    use istorage::{KeyspaceName, StorageDriver};
    use istorage_redb::RedbDriver;
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// The test had a server that sends no backup, and no server that sends a whole one. So it also
    /// passed if the command lost what it received.
    #[tokio::test]
    async fn only_a_whole_backup_gets_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let whole = whole_backup(folder.path()).await;
        let file = folder.path().join("backups/copy");
        let (cut, mut damaged) = (&whole[..whole.len() - 1], whole.clone());
        damaged[whole.len() / 2] ^= 4;
        let foreign = &b"the page of another server"[..];
        for (sent, announced, why) in [
            (foreign, foreign.len(), "is not a backup"),
            (cut, cut.len(), "cut off"),
            (&damaged, damaged.len(), "damaged"),
            (cut, whole.len(), "sent only a part of the answer"),
        ] {
            let error = received(&file, sent, announced).await.unwrap_err();
            assert_eq!(error.code(), 1, "{error}");
            assert!(error.to_string().contains(why), "{why}: {error}");
            // Nor is there a file under another name.
            assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 0, "{error}");
        }
        received(&file, &whole, whole.len()).await.unwrap();
        assert!(fs::read(&file).unwrap() == whole, "the file is not what was sent");
    }

    async fn whole_backup(folder: &Path) -> Vec<u8> {
        let clock = Clock::system();
        let soon = clock.now() + Duration::from_secs(30);
        let config = RedbConfig::new(folder.join("node.redb"));
        let driver = RedbDriver::open(config, clock).await.unwrap();
        driver.create(&KeyspaceName::new("tests").unwrap(), soon).await.unwrap();
        let pieces = driver.backup(soon).await.unwrap().unwrap();
        let pieces: Vec<_> = pieces.try_collect().await.unwrap();
        driver.close().await;
        pieces.concat()
    }

    /// Backs up a server that announces an answer of this length, and sends these bytes.
    async fn received(
        file: &Path,
        sent: &[u8],
        announced: usize,
    ) -> Result<ExitCode, CommandError> {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = server.local_addr().unwrap().to_string().parse().unwrap();
        let serve = async {
            let mut client = tokio::io::BufReader::new(server.accept().await.unwrap().0);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                client.read_line(&mut line).await.unwrap();
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {announced}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            client.write_all(sent).await.unwrap();
            client.shutdown().await.unwrap();
            client
        };
        let connection =
            ConnectionArgs { ca_file: None, cert_file: None, key_file: None, token_file: None };
        let storage = StorageArgs { storage: None, config: None };
        let args = BackupArgs { file: file.to_owned(), admin: Some(admin), storage, connection };
        futures::join!(serve, run_backup(args, NodeConfiguration::none())).1
    }

    /// The message of a full disk named no file, or only the storage that was read.
    #[test]
    fn an_error_of_the_new_file_names_it() {
        let (path, full) = (Path::new("/backup/monday"), io::ErrorKind::StorageFull);
        let received = unwritten(path, &full.into());
        let written = istorage::Error::unavailable("the disk is full");
        let written = not_copied(&RedbConfig::new("data/vvm.redb"), path, &written);
        for error in [received, written] {
            assert!(error.to_string().contains("/backup/monday"), "{error}");
            assert_eq!(error.code(), 1, "{error}");
        }
    }
}
