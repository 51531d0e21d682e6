//! `vvm backup` and `vvm restore`: copies of a redb file.

use std::{
    io::{self, BufReader, Write},
    panic,
    path::Path,
    process::ExitCode,
};

use causes::with_causes;
use clock::Clock;
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use istorage::ErrorKind;
use istorage_redb::{BackupReport, OfflineBackup, RedbConfig, restore, verify_backup};

use crate::{
    cli::{BackupArgs, RestoreArgs},
    command_error::{CommandError, with_causes_on_lines},
    new_file::{NewFile, NewFolders, check_free},
    node_client::NodeTarget,
    print,
    regular_file::open_regular_file,
    serve, storage_check,
    streamed_answer::StreamedAnswer,
};

/// What to do if the disk of the backup is too slow.
const SLOW: &str = "write the backup to a faster disk";

/// Runs `vvm backup`.
pub(crate) async fn run_backup(args: BackupArgs) -> Result<ExitCode, CommandError> {
    let BackupArgs { file: path, admin, storage, connection } = args;
    let bar = byte_bar();
    let mut file = NewFile::create(&path)?;
    if storage.storage.is_some() || storage.config.is_some() {
        let config = storage_check::file(storage)?;
        let mut counted = bar.wrap_write(&mut file);
        let opened = quietly(|| OfflineBackup::open(&config));
        let backup = opened.map_err(|error| not_opened(&config, &path, &error))?;
        let written = quietly(|| backup.write(&mut counted));
        written.map_err(|error| not_copied(&config, &path, &error))?;
    } else {
        let node = &serve::admin_target(admin, &connection)?;
        receive(node, (&mut file, &path), &bar).await?;
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
pub(crate) fn run_restore(args: RestoreArgs) -> Result<ExitCode, CommandError> {
    let config = storage_check::file(args.storage)?;
    let file = open_regular_file(&args.file, "the backup")?;
    check_free(&config.path)?;
    let _folders = NewFolders::above(&config.path);
    let bar = byte_bar();
    let unique = Clock::system().random();
    let report = restore(bar.wrap_read(file), &config, unique).map_err(|error| {
        let (from, to) = (args.file.display(), config.path.display());
        let what = format!("the restore of {from} to {to} failed");
        CommandError::storage(&what, &error)
    })?;
    bar.finish_and_clear();
    print(&text_of(&config.path, &report))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the backup that a node sends.
async fn receive(
    node: &NodeTarget,
    (file, path): (&mut NewFile, &Path),
    bar: &ProgressBar,
) -> Result<(), CommandError> {
    let mut answer = StreamedAnswer::open(node, (Method::POST, "/backup"), SLOW).await?;
    let mut counted = bar.wrap_write(file);
    let unwritten = |error| unwritten(path, &error);
    while let Some(piece) = answer.next().await? {
        counted.write_all(&piece).map_err(unwritten)?;
    }
    Ok(())
}

/// Runs a call of redb, which panics on damaged pages. The message of the panic is hidden, because
/// the error describes the damage better.
fn quietly<T>(call: impl FnOnce() -> T) -> T {
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
    let (what, why) = (failed(config, path), with_causes_on_lines(error));
    CommandError::unfinished(format!("{what}: {why}"))
}

fn failed(config: &RedbConfig, path: &Path) -> String {
    format!("the backup of {} to {} failed", config.path.display(), path.display())
}

/// Shows how many bytes were read or written.
pub(crate) fn byte_bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{bytes} {bytes_per_sec} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn text_of(path: &Path, report: &BackupReport) -> String {
    let BackupReport { keyspaces, rows, bytes } = report;
    let path = path.display();
    format!("{path}: {rows} rows in {keyspaces} keyspaces are whole ({bytes} bytes of backup)\n")
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::cli::{ConnectionArgs, StorageArgs};

    /// A server sends something that is no whole backup.
    #[tokio::test]
    async fn a_backup_that_is_not_whole_is_unfinished() {
        let folder = tempfile::tempdir().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = server.local_addr().unwrap().to_string().parse().unwrap();
        let serve = async {
            let mut client = tokio::io::BufReader::new(server.accept().await.unwrap().0);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                client.read_line(&mut line).await.unwrap();
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nvvm";
            client.write_all(answer).await.unwrap();
            client.flush().await.unwrap();
            client
        };
        let file = folder.path().join("copy");
        let connection =
            ConnectionArgs { ca_file: None, cert_file: None, key_file: None, token_file: None };
        let storage = StorageArgs { storage: None, config: None };
        let args = BackupArgs { file: file.clone(), admin: Some(admin), storage, connection };
        let (_client, done) = futures::join!(serve, run_backup(args));
        let error = done.unwrap_err();
        assert_eq!(error.code(), 1, "{error}");
        assert!(!file.exists());
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
