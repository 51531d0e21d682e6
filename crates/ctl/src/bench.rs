//! `vvm bench`: sends requests to running nodes, and measures what clients see.

mod args;
mod check;
mod load;
mod outcome;
mod progress;
mod report;
mod sender;
mod tries;

use std::{pin::pin, process::ExitCode, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::args::BenchArgs;
use self::{
    check::LogCheck,
    load::{ANSWER_TIMEOUT, RequestLoad},
    outcome::{BenchOutcome, SentCommand},
    progress::BenchProgress,
    report::BenchReport,
    sender::BenchClient,
};
use crate::{
    CommandError,
    terminal::{Signals, print, say},
};

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, CommandError> {
    let clock = Clock::system();
    let mut signals = Signals::install().map_err(CommandError::runtime)?;
    let load = Arc::new(RequestLoad::new(&args, &clock)?);
    tokio::select! {
        created = load.create_workspaces(&clock) => created?,
        signal = signals.next() => {
            return Err(CommandError::unfinished(format!("{signal} received: nothing was measured")));
        }
    }
    let progress = Arc::new(BenchProgress::new(clock.clone()));
    let start = clock.now();
    let mut outcome = send(&args, &clock, &load, &progress, &mut signals, start).await?;
    progress.note_pause();
    let (took, sent) = (clock.now() - start, std::mem::take(&mut outcome.sent));
    // The measurements are printed even if the logs cannot be checked.
    let (check, unchecked) = match check_logs(&load, &clock, &mut signals, sent).await {
        Ok(check) => (check, None),
        Err(error) => (None, Some(error)),
    };
    let longest_pause = progress.longest_pause();
    let report = BenchReport { args: &args, outcome: &outcome, took, longest_pause, check };
    print(&report.text())?;
    let is_clean = outcome.is_clean() && check.is_none_or(|check| check.is_clean());
    match unchecked {
        Some(error) => Err(error),
        None if is_clean => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::FAILURE),
    }
}

/// Runs the clients until their time is over, or a signal stops them.
async fn send(
    args: &BenchArgs,
    clock: &Clock,
    load: &Arc<RequestLoad>,
    progress: &Arc<BenchProgress>,
    signals: &mut Signals,
    start: Instant,
) -> Result<BenchOutcome, CommandError> {
    let end = start + Duration::from_secs(args.seconds);
    let mut clients = JoinSet::new();
    let stop = CancellationToken::new();
    for number in 0..args.clients {
        let (load, clock, progress) = (Arc::clone(load), clock.clone(), Arc::clone(progress));
        let stop = stop.clone();
        clients.spawn(async move {
            let (load, progress) = (&*load, &*progress);
            let client = BenchClient { load, clock, number, progress };
            client.send_requests(end, &stop).await
        });
    }
    let (mut all, mut watch) = (pin!(all(clients)), pin!(watch(clock, args, start, progress)));
    loop {
        tokio::select! {
            outcome = all.as_mut() => return outcome,
            () = watch.as_mut() => return Err(CommandError::unfinished("the clients did not end in time")),
            signal = signals.next() => {
                if stop.is_cancelled() {
                    return Err(CommandError::at_once(signal));
                }
                say(format!("{signal} received: stopping and printing the measurements so far; a second signal ends the process at once"));
                stop.cancel();
            }
        }
    }
}

/// Checks the logs, if the bench was asked to. A signal ends the check.
async fn check_logs(
    load: &RequestLoad,
    clock: &Clock,
    signals: &mut Signals,
    sent: Vec<SentCommand>,
) -> Result<Option<LogCheck>, CommandError> {
    if !load.is_checked {
        return Ok(None);
    }
    say(format!("checking the logs of {} workspaces", load.workspaces));
    tokio::select! {
        check = check::check(load, clock, sent) => check.map(Some),
        signal = signals.next() => {
            let why = format!("{signal} received: the logs were not checked to their ends");
            Err(CommandError::unfinished(why))
        }
    }
}

async fn all(
    mut clients: JoinSet<Result<BenchOutcome, CommandError>>,
) -> Result<BenchOutcome, CommandError> {
    let mut outcome = BenchOutcome::new()?;
    while let Some(client) = clients.join_next().await {
        let client =
            client.map_err(|panicked| CommandError::unfinished(panicked.to_string()))??;
        outcome.add(client)?;
    }
    Ok(outcome)
}

/// Shows the progress. Returns only if the clients still run long after the end.
async fn watch(clock: &Clock, args: &BenchArgs, start: Instant, progress: &BenchProgress) {
    const EVERY: Duration = Duration::from_millis(200);
    let (end, requests) = (start + Duration::from_secs(args.seconds), args.send.name());
    let bar = ProgressBar::new((end - start).as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}") {
        bar.set_style(style);
    }
    let mut before = 0;
    while clock.now() < end + 2 * ANSWER_TIMEOUT {
        clock.sleep(EVERY).await;
        let sum = progress.done();
        let now = (sum - before) as f64 / EVERY.as_secs_f64();
        before = sum;
        bar.set_position((clock.now() - start).as_millis() as u64);
        bar.set_message(format!("{now:.0} {requests}/s"));
    }
}
