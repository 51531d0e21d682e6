//! A storage that a command uses for a while: the command connects, may be stopped by signals, and
//! leaves the storage as it was.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use clock::Clock;
use istorage::StorageDriver;
use istorage_tck::{KeyspaceTracker, Scale, Subject};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
    cli::{ServeArgs, StorageArgs},
    command_error::{CommandError, with_causes},
    say, serve,
    signals::Signals,
    storage_target::StorageTarget,
};

/// The most time for a connection.
const CONNECT: Duration = Duration::from_secs(30);

/// Gets one message when the job must end.
pub(crate) type StopSignal = oneshot::Receiver<()>;

/// Does a job on a storage. At the first signal the job ends, and everything that it made is
/// removed. At the second signal the process ends at once.
pub(crate) async fn run(
    args: &StorageArgs,
    job: impl AsyncFnOnce(ConnectedStorage, &mut StopSignal) -> Result<ExitCode, CommandError>,
) -> Result<ExitCode, CommandError> {
    // Listen for signals before anything is made. Otherwise an early signal ends the process, and
    // the things that it made stay.
    let mut signals = Signals::install().map_err(CommandError::runtime)?;
    let run = ScratchRun::prepare(args)?;
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
    fn prepare(args: &StorageArgs) -> Result<ScratchRun, CommandError> {
        let (target, folder) = match (&args.storage, &args.config) {
            (Some(target), _) => (target.clone(), None),
            (None, Some(path)) => {
                let config = serve::configuration(&ServeArgs {
                    config: Some(path.clone()),
                    ..ServeArgs::default()
                })?;
                (config.storage.to_target(&config.source)?, None)
            }
            (None, None) => {
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
                with_causes(error),
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

fn interrupted() -> CommandError {
    CommandError::unfinished("interrupted")
}

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

/// The storage, as trials see it.
pub(crate) struct ConnectedStorage {
    pub(crate) target: StorageTarget,
    pub(crate) clock: Clock,
    /// The keyspaces that were made. They are dropped when the job is done.
    pub(crate) keyspaces: KeyspaceTracker,
    first: Arc<dyn StorageDriver>,
    /// A folder for further files, on the same disk as the file that is proved.
    spares: Option<PathBuf>,
}

impl ConnectedStorage {
    async fn connect(&self, clock: Clock) -> istorage::Result<Arc<dyn StorageDriver>> {
        let deadline = clock.now() + CONNECT;
        let driver = self.target.connect(clock, deadline).await?;
        Ok(self.keyspaces.track(driver))
    }
}

#[async_trait]
impl Subject for ConnectedStorage {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn scale(&self) -> Scale {
        if self.target.is_embedded() { Scale::Embedded } else { Scale::Server }
    }

    async fn node(&self, wall_ahead_ms: i64) -> istorage::Result<Arc<dyn StorageDriver>> {
        if self.target.is_embedded() {
            return Ok(self.keyspaces.track(Arc::clone(&self.first)));
        }
        self.connect(self.clock.with_wall_offset(wall_ahead_ms)).await
    }

    async fn spare(&self) -> istorage::Result<Arc<dyn StorageDriver>> {
        let deadline = self.clock.now() + CONNECT;
        match (&self.target, &self.spares) {
            // Only one process can use a file, and only once. So a driver that may be closed needs
            // a file of its own.
            (StorageTarget::Redb(config), Some(folder)) => {
                let path = folder.join(format!("spare-{:x}.redb", self.clock.random()));
                let config = istorage_redb::RedbConfig { path, ..config.clone() };
                StorageTarget::Redb(config).connect(self.clock.clone(), deadline).await
            }
            // Each driver in memory has memory of its own. Its keyspaces end with the driver, so
            // they need no cleanup.
            (StorageTarget::Mem, _) => self.target.connect(self.clock.clone(), deadline).await,
            _ => self.connect(self.clock.clone()).await,
        }
    }
}
