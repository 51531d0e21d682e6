//! A storage that a command uses for a while: the command connects, may be stopped by signals, and
//! leaves the storage as it was.

use std::{path::Path, process::ExitCode, sync::Arc};

use clock::Clock;
use tck::storage::KeyspaceTracker;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::subject::{CONNECT, ConnectedStorage};
use crate::{
    CommandError, NodeConfiguration, StorageArgs,
    command_error::with_causes_on_lines,
    storage_target::StorageTarget,
    terminal::{Signals, say},
};

/// Does a job on a storage. At the first signal the job ends, and everything that it made is
/// removed. At the second signal the process ends at once.
pub(crate) async fn run(
    args: &StorageArgs,
    node: NodeConfiguration,
    job: impl AsyncFnOnce(ConnectedStorage, &mut StopSignal) -> Result<ExitCode, CommandError>,
) -> Result<ExitCode, CommandError> {
    // Listen for signals before anything is made. Otherwise an early signal ends the process, and
    // the things that it made stay.
    let mut signals = Signals::install().map_err(CommandError::runtime)?;
    let run = ScratchRun::prepare(args, node)?;
    let (stop, stopped) = oneshot::channel();
    let mut done = std::pin::pin!(run.connect_and(job, stopped));
    let signal = tokio::select! {
        done = &mut done => return done,
        signal = signals.next() => signal,
    };
    say(format!("{signal} received: stopping the trials and removing {}", run.made()));
    say("a second signal ends the process at once, without cleanup");
    // If the job is over already, nothing receives the message: the cleanup is under way.
    stop.send(()).ok();
    tokio::select! {
        done = &mut done => done,
        signal = signals.next() => {
            Err(CommandError::unfinished(format!("{signal} received: left at once{}", run.may_be_left())))
        }
    }
}

/// The things that a run works with.
struct ScratchRun {
    target: StorageTarget,
    /// The folder of the storage, if the command line names no storage.
    folder: Option<TempDir>,
    clock: Clock,
    keyspaces: KeyspaceTracker,
}

impl ScratchRun {
    fn prepare(args: &StorageArgs, node: NodeConfiguration) -> Result<ScratchRun, CommandError> {
        let (target, folder) = match args.is_given() {
            true => (args.named(node)?.target, None),
            false => {
                let folder = folder_in(Path::new(""))?;
                let file = folder.path().join("scratch.redb");
                (StorageTarget::Redb(istorage_redb::RedbConfig::new(file)), Some(folder))
            }
        };
        Ok(ScratchRun {
            target,
            folder,
            clock: Clock::system(),
            keyspaces: KeyspaceTracker::default(),
        })
    }

    /// Names the things that were made so far.
    fn made(&self) -> String {
        let names: Vec<_> = self.keyspaces.recorded().iter().map(ToString::to_string).collect();
        match (names.is_empty(), &self.folder) {
            (true, None) => "the keyspaces that are being created".to_owned(),
            (true, Some(folder)) => format!("the folder {}", folder.path().display()),
            (false, _) => format!("the scratch keyspaces: {}", names.join(", ")),
        }
    }

    /// Names the keyspaces that may be left behind if the process ends now.
    fn may_be_left(&self) -> String {
        let line = |keyspace| {
            let how = self.target.removal_instructions(&keyspace);
            format!("\nthe scratch keyspace {keyspace} may be left behind; {how}")
        };
        self.keyspaces.recorded().into_iter().map(line).collect()
    }

    /// Connects, does the job, and cleans up in every case.
    async fn connect_and(
        &self,
        job: impl AsyncFnOnce(ConnectedStorage, &mut StopSignal) -> Result<ExitCode, CommandError>,
        mut stop: StopSignal,
    ) -> Result<ExitCode, CommandError> {
        let target = &self.target;
        say(format!("verifying {target}"));
        let unreachable = |error| CommandError::storage(&format!("cannot use {target}"), &error);
        let connecting = target.connect(self.clock.clone(), self.clock.now() + CONNECT);
        let first = tokio::select! {
            first = connecting => first.map_err(unreachable)?,
            // The connection to an embedded storage is not interrupted: a file must exist before it
            // can be removed.
            _ = &mut stop, if !target.is_embedded() => return Err(interrupted()),
        };
        // This function owns the folder, not a trial: a trial that was interrupted may hold its
        // files open for a while.
        let spares = match target {
            StorageTarget::Redb(config) => {
                Some(folder_in(config.path.parent().unwrap_or(Path::new("")))?)
            }
            _ => None,
        };
        let subject = ConnectedStorage {
            target: target.clone(),
            clock: self.clock.clone(),
            keyspaces: self.keyspaces.clone(),
            first: Arc::clone(&first),
            spares: spares.as_ref().map(|folder| folder.path().to_owned()),
        };
        let done = job(subject, &mut stop).await;
        let left = self.keyspaces.drop_all(&*first, &self.clock).await;
        first.close().await;
        if let Some(Err(error)) = spares.map(TempDir::close) {
            say(format!("error: a folder of scratch files could not be removed: {error}"));
        }
        for (keyspace, error) in &left {
            say(format!(
                "error: the scratch keyspace {keyspace} could not be dropped and may be left behind: {}\n  {}",
                with_causes_on_lines(error),
                target.removal_instructions(keyspace)
            ));
        }
        match (done, left.is_empty()) {
            (Ok(_), false) => {
                Err(CommandError::unfinished("scratch keyspaces could not be removed"))
            }
            (done, _) => done,
        }
    }
}

/// Makes a folder that is removed when the value is dropped.
fn folder_in(parent: &Path) -> Result<TempDir, CommandError> {
    // The path of the current folder is empty, and an empty path cannot be used here.
    let parent = if parent == Path::new("") { Path::new(".") } else { parent };
    tempfile::Builder::new().prefix("vvm-verify-").tempdir_in(parent).map_err(|error| {
        let parent = parent.display();
        CommandError::unfinished(format!(
            "cannot make a folder for scratch files in {parent}: {error}"
        ))
    })
}

/// Gets one message when the job must end.
pub(crate) type StopSignal = oneshot::Receiver<()>;

/// Runs a part of a job, unless the job must end.
pub(crate) async fn unless_stopped<T>(
    stop: &mut StopSignal,
    part: impl Future<Output = T>,
) -> Result<T, CommandError> {
    tokio::select! {
        biased;
        _ = stop => Err(interrupted()),
        done = part => Ok(done),
    }
}

fn interrupted() -> CommandError {
    CommandError::unfinished("interrupted")
}
