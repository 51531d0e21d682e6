//! `vvm storage verify`: the trials, the latencies, the clocks, and what they mean.

use std::{io::IsTerminal, process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use indicatif::{ProgressBar, ProgressStyle};
use istorage::StorageDriver;
use istorage_tck::{Conclusion, Progress, Scale, Scratch, Subject, Trial, trials};

use crate::{
    advice::advice,
    cli::VerifyArgs,
    config::Config,
    failure::{Failure, with_causes},
    latency,
    report::Verification,
    skew,
    target::Target,
};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(30);

/// Runs the command.
pub(crate) async fn run(args: VerifyArgs) -> Result<ExitCode, Failure> {
    let (target, _folder) = match (&args.storage, &args.config) {
        (Some(target), _) => (target.clone(), None),
        (None, Some(path)) => (Config::read(path)?.storage.into_target()?, None),
        (None, None) => {
            let folder = tempfile::Builder::new().prefix("vvm-verify-").tempdir_in(".");
            let folder = folder.map_err(|error| {
                Failure::unfinished(format!(
                    "cannot make a folder for a scratch file here: {error}"
                ))
            })?;
            (
                Target::Redb(istorage_redb::Config::new(folder.path().join("scratch.redb"))),
                Some(folder),
            )
        }
    };
    let selected: Vec<&'static Trial> =
        trials().filter(|trial| trial.name().contains(&args.filter)).collect();
    if selected.is_empty() {
        return Err(Failure::unfinished(format!("no trial's name contains `{}`", args.filter)));
    }
    eprintln!("verifying {target} in a scratch keyspace");
    let clock = Clock::system();
    let unreachable = |error| Failure::storage(&format!("cannot use {target}"), &error);
    let first = target.connect(clock.clone(), clock.now() + CONNECT).await.map_err(unreachable)?;
    let subject =
        Connected { target: target.clone(), clock: clock.clone(), first: Arc::clone(&first) };
    let scratch = Scratch::create(Arc::new(subject)).await.map_err(unreachable)?;

    let verified = tokio::select! {
        verified = verify(&args, &scratch, &clock, &target, selected) => verified,
        () = interrupted() => Err(Failure::unfinished("interrupted")),
    };
    // In every case: the scratch keyspace must not stay.
    let removed = scratch.remove().await;
    first.close().await;
    let verification = verified?;
    removed
        .map_err(|error| Failure::storage("the scratch keyspace could not be dropped", &error))?;

    verification
        .print(args.json)
        .map_err(|error| Failure::unfinished(format!("cannot print: {error}")))?;
    Ok(if verification.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn verify(
    args: &VerifyArgs,
    scratch: &Scratch,
    clock: &Clock,
    target: &Target,
    selected: Vec<&'static Trial>,
) -> Result<Verification, Failure> {
    let bar = progress_bar(selected.len());
    let report = scratch.run_all(selected, |progress| show(&bar, progress)).await;
    bar.finish_and_clear();

    let storage = scratch.storage();
    let unfinished =
        |error| Failure::unfinished(format!("measuring failed: {}", with_causes(&error)));
    let mut latencies = Vec::new();
    if args.calls > 0 {
        eprintln!("measuring each operation {} times", args.calls);
        let measured = latency::measure(Arc::clone(&storage), clock.clone(), args.calls).await;
        latencies = measured.map_err(unfinished)?;
    }
    let skew = skew::measure(&*storage, clock).await.map_err(unfinished)?;
    let advice = advice(&storage.capabilities(), &latencies, skew);
    Ok(Verification { storage: target.to_string(), report, latencies, skew, advice })
}

/// Ctrl-C, or the wish of whoever started us.
async fn interrupted() {
    let mut terminate = match tokio::signal::unix::signal(
        tokio::signal::unix::SignalKind::terminate(),
    ) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::warn!(%error, "cannot listen for SIGTERM: the scratch keyspace would stay if one came");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
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
                Conclusion::Failed(_) => bar.suspend(|| eprintln!("{line}")),
                _ if !terminal => eprintln!("{line}"),
                _ => {}
            }
        }
    }
}

/// The storage as the trials see it.
struct Connected {
    target: Target,
    clock: Clock,
    first: Arc<dyn StorageDriver>,
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
            return Ok(Arc::clone(&self.first));
        }
        let clock = self.clock.with_wall_offset(wall_ahead_ms);
        let deadline = clock.now() + CONNECT;
        self.target.connect(clock, deadline).await
    }

    async fn spare(&self) -> istorage::Result<Arc<dyn StorageDriver>> {
        let deadline = self.clock.now() + CONNECT;
        match &self.target {
            // One process, one file: a driver that may be closed needs a file of its own.
            Target::Redb(config) => {
                let mut path = config.path.clone().into_os_string();
                path.push(format!(".spare-{:x}", self.clock.random()));
                let config = istorage_redb::Config { path: path.into(), ..config.clone() };
                let path = config.path.clone();
                let spare = Target::Redb(config).connect(self.clock.clone(), deadline).await?;
                // It lives for as long as it is open, and nothing stays behind.
                let kept = |error: std::io::Error| {
                    istorage::Error::unavailable(format!("cannot remove {}", path.display()))
                        .because(error)
                };
                std::fs::remove_file(&path).map_err(kept)?;
                Ok(spare)
            }
            target => target.connect(self.clock.clone(), deadline).await,
        }
    }
}
