//! `vvm storage verify`: the trials, the latencies, the clocks, and what they mean.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use clock::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use istorage::StorageDriver;
use istorage_tck::{Conclusion, Progress, Scale, Scratch, Subject, Trial, trials};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
    advice::advice,
    cli::VerifyArgs,
    config::Config,
    failure::{Failure, with_causes},
    keyspaces::Keyspaces,
    latency,
    report::Verification,
    say,
    signals::Signals,
    skew,
    target::Target,
};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(30);

/// Runs the command. The first signal ends the trials, and what was made is removed; the second leaves at once.
pub(crate) async fn run(args: VerifyArgs) -> Result<ExitCode, Failure> {
    let selected: Vec<&'static Trial> =
        trials().filter(|trial| trial.name().contains(&args.filter)).collect();
    if selected.is_empty() {
        return Err(Failure::usage(format!("no trial's name contains `{}`", args.filter)));
    }
    // Before anything is made, so that nothing that was made stays.
    let mut signals = Signals::install().map_err(Failure::runtime)?;
    let run = Run::prepare(&args)?;
    let (stop, stopped) = oneshot::channel();
    let mut verified = std::pin::pin!(run.verify(&args, selected, stopped));
    let signal = tokio::select! {
        verified = &mut verified => return verified,
        signal = signals.next() => signal,
    };
    say(format!("{signal} received: ending the trials, and removing {}", run.made()));
    say("a second one leaves at once");
    // Nobody listens if the trials are over already, and all is being removed.
    stop.send(()).ok();
    tokio::select! {
        verified = &mut verified => verified,
        signal = signals.next() => {
            Err(Failure::unfinished(format!("{signal} received: left at once{}", run.may_be_left())))
        }
    }
}

/// What a run works with.
struct Run {
    target: Target,
    /// For a storage that nobody named.
    folder: Option<TempDir>,
    clock: Clock,
    keyspaces: Keyspaces,
}

impl Run {
    fn prepare(args: &VerifyArgs) -> Result<Run, Failure> {
        let (target, folder) = match (&args.storage, &args.config) {
            (Some(target), _) => (target.clone(), None),
            (None, Some(path)) => (Config::read(path)?.storage.into_target()?, None),
            (None, None) => {
                let folder = folder_in(Path::new(""))?;
                let file = folder.path().join("scratch.redb");
                (Target::Redb(istorage_redb::Config::new(file)), Some(folder))
            }
        };
        Ok(Run { target, folder, clock: Clock::system(), keyspaces: Keyspaces::default() })
    }

    /// What was made so far, in words.
    fn made(&self) -> String {
        let names: Vec<_> = self.keyspaces.all().iter().map(ToString::to_string).collect();
        match (names.is_empty(), &self.folder) {
            (true, None) => "what is being made".to_owned(),
            (true, Some(folder)) => format!("the folder {}", folder.path().display()),
            (false, _) => format!("the scratch keyspaces: {}", names.join(", ")),
        }
    }

    /// What is lost sight of by leaving now.
    fn may_be_left(&self) -> String {
        let line = |keyspace| {
            let how = self.target.how_to_remove(&keyspace);
            format!("\nthe scratch keyspace {keyspace} may be left behind; {how}")
        };
        self.keyspaces.all().into_iter().map(line).collect()
    }

    /// Connects, verifies, prints, and cleans up in every case.
    async fn verify(
        &self,
        args: &VerifyArgs,
        selected: Vec<&'static Trial>,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<ExitCode, Failure> {
        let target = &self.target;
        say(format!("verifying {target}"));
        let unreachable = |error| Failure::storage(&format!("cannot use {target}"), &error);
        let connecting = target.connect(self.clock.clone(), self.clock.now() + CONNECT);
        let first = tokio::select! {
            first = connecting => first.map_err(unreachable)?,
            // A file that is being made must be there before it can be removed.
            _ = &mut stop, if !target.is_embedded() => return Err(interrupted()),
        };
        // Here, and not with the trials: one that was ended may hold on to what it has for a while.
        let spares = match target {
            Target::Redb(config) => Some(folder_in(config.path.parent().unwrap_or(Path::new("")))?),
            _ => None,
        };
        let subject = Connected {
            target: target.clone(),
            clock: self.clock.clone(),
            keyspaces: self.keyspaces.clone(),
            first: Arc::clone(&first),
            spares: spares.as_ref().map(|folder| folder.path().to_owned()),
        };
        let verified = self.verify_in(subject, args, selected, &mut stop).await;
        let left = self.keyspaces.drop_all(&*first, &self.clock).await;
        first.close().await;
        if let Some(Err(error)) = spares.map(TempDir::close) {
            say(format!("error: a folder of scratch files stays behind: {error}"));
        }
        for (keyspace, error) in &left {
            say(format!(
                "error: the scratch keyspace {keyspace} may be left behind, as it could not be dropped: {}\n  {}",
                with_causes(error),
                target.how_to_remove(keyspace)
            ));
        }
        match (verified, left.is_empty()) {
            (Ok(_), false) => Err(Failure::unfinished("not everything could be removed")),
            (verified, _) => verified,
        }
    }

    /// Verifies and prints. What it makes is noted in the keyspaces of this run, and left to who called.
    async fn verify_in(
        &self,
        subject: Connected,
        args: &VerifyArgs,
        selected: Vec<&'static Trial>,
        stop: &mut oneshot::Receiver<()>,
    ) -> Result<ExitCode, Failure> {
        // Not ended by a signal: whether it had made the keyspace would not be known.
        let scratch = Scratch::create(Arc::new(subject)).await.map_err(|error| {
            Failure::storage(&format!("cannot make a keyspace in {}", self.target), &error)
        })?;
        for keyspace in self.keyspaces.all() {
            say(format!("scratch keyspace: {keyspace}; others of this run begin with its name"));
        }
        let report = tokio::select! {
            biased;
            _ = &mut *stop => return Err(interrupted()),
            report = run_trials(&scratch, selected) => report,
        };
        let mut verification = Verification::new(self.target.to_string(), report);
        let measured = tokio::select! {
            biased;
            _ = &mut *stop => Err(interrupted()),
            measured = measure(&scratch, &self.clock, args.calls, &mut verification) => measured,
        };
        // Whatever goes wrong from here on, and while cleaning up: what was found is told.
        let printed = verification.print(args.json);
        printed.map_err(|error| Failure::unfinished(format!("cannot print: {error}")))?;
        measured?;
        let report = &verification.report;
        match (report.failed(), report.passed()) {
            (0, 0) => Err(Failure::unfinished("nothing was proved: all trials were ignored")),
            (0, _) => Ok(ExitCode::SUCCESS),
            _ => Ok(ExitCode::FAILURE),
        }
    }
}

fn interrupted() -> Failure {
    Failure::unfinished("interrupted")
}

/// A folder that is removed with the value.
fn folder_in(parent: &Path) -> Result<TempDir, Failure> {
    // The current folder has no name of its own.
    let parent = if parent == Path::new("") { Path::new(".") } else { parent };
    tempfile::Builder::new().prefix("vvm-verify-").tempdir_in(parent).map_err(|error| {
        let parent = parent.display();
        Failure::unfinished(format!("cannot make a folder for scratch files in {parent}: {error}"))
    })
}

async fn run_trials(scratch: &Scratch, selected: Vec<&'static Trial>) -> istorage_tck::Report {
    let bar = progress_bar(selected.len());
    let report = scratch.run_all(selected, |progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    report
}

async fn measure(
    scratch: &Scratch,
    clock: &Clock,
    calls: u16,
    verification: &mut Verification,
) -> Result<(), Failure> {
    let storage = scratch.storage();
    let unfinished =
        |error| Failure::unfinished(format!("measuring failed: {}", with_causes(&error)));
    if calls > 0 {
        say(format!("measuring each operation {calls} times"));
        let measured = latency::measure(Arc::clone(&storage), clock.clone(), calls).await;
        verification.latencies = measured.map_err(unfinished)?;
    }
    verification.skew = skew::measure(&*storage, clock).await.map_err(unfinished)?;
    verification.advice =
        advice(&storage.capabilities(), &verification.latencies, verification.skew);
    Ok(())
}

fn progress_bar(trials: usize) -> ProgressBar {
    let bar = ProgressBar::new(trials as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// On a terminal a bar, and only what is worth a line of its own; elsewhere a line for each trial.
fn show(bar: &ProgressBar, progress: Progress<'_>) {
    let terminal = std::io::stderr().is_terminal();
    match progress {
        Progress::Started(name) => bar.set_message(name),
        Progress::Finished(trial) => {
            bar.inc(1);
            let line = match &trial.conclusion {
                Conclusion::Passed => format!("passed  {} ({:.1?})", trial.name, trial.took),
                Conclusion::Ignored(reason) => format!("ignored {}: {reason}", trial.name),
                Conclusion::Failed(why) => format!("FAILED  {}: {why}", trial.name),
            };
            match &trial.conclusion {
                Conclusion::Failed(_) => bar.suspend(|| say(line)),
                _ if !terminal => say(line),
                _ => {}
            }
        }
    }
}

/// The storage as the trials see it.
struct Connected {
    target: Target,
    clock: Clock,
    keyspaces: Keyspaces,
    first: Arc<dyn StorageDriver>,
    /// The folder for files besides the one that is proved, on the same disk.
    spares: Option<PathBuf>,
}

impl Connected {
    async fn connect(&self, clock: Clock) -> istorage::Result<Arc<dyn StorageDriver>> {
        let deadline = clock.now() + CONNECT;
        let driver = self.target.connect(clock, deadline).await?;
        Ok(self.keyspaces.noted_by(driver))
    }
}

#[async_trait]
impl Subject for Connected {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn scale(&self) -> Scale {
        if self.target.is_embedded() { Scale::Embedded } else { Scale::Server }
    }

    async fn node(&self, wall_ahead_ms: i64) -> istorage::Result<Arc<dyn StorageDriver>> {
        if self.target.is_embedded() {
            return Ok(self.keyspaces.noted_by(Arc::clone(&self.first)));
        }
        self.connect(self.clock.with_wall_offset(wall_ahead_ms)).await
    }

    async fn spare(&self) -> istorage::Result<Arc<dyn StorageDriver>> {
        let deadline = self.clock.now() + CONNECT;
        match (&self.target, &self.spares) {
            // One process, one file: a driver that may be closed needs a file of its own.
            (Target::Redb(config), Some(folder)) => {
                let path = folder.join(format!("spare-{:x}.redb", self.clock.random()));
                let config = istorage_redb::Config { path, ..config.clone() };
                Target::Redb(config).connect(self.clock.clone(), deadline).await
            }
            // The memory of a driver is its own; what is made there is no matter of ours.
            (Target::Mem, _) => self.target.connect(self.clock.clone(), deadline).await,
            _ => self.connect(self.clock.clone()).await,
        }
    }
}
