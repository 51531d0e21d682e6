//! `vvm bench`: sends requests to running nodes, and measures what clients see.

mod check;
mod load;
mod outcome;
mod pace;
mod progress;
mod sender;
mod shares;

use std::{pin::pin, process::ExitCode, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{cli::BenchArgs, command_error::CommandError, say, signals::Signals};
use load::RequestLoad;
use outcome::{BenchOutcome, BenchTotals};
use pace::RequestPace;
use progress::BenchProgress;
use sender::BenchClient;

/// The most time for a request, with all its tries. A crash of an owner takes less.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, CommandError> {
    let clock = Clock::system();
    let mut signals = Signals::install().map_err(CommandError::runtime)?;
    let load = Arc::new(RequestLoad::new(&args, &clock)?);
    load.create_workspaces(&clock).await?;
    let progress = Arc::new(BenchProgress::new(clock.clone()));
    let start = clock.now();
    let end = start + Duration::from_secs(args.seconds);
    let mut clients = JoinSet::new();
    let stop = CancellationToken::new();
    for number in 0..args.clients {
        let (load, clock, progress) = (Arc::clone(&load), clock.clone(), Arc::clone(&progress));
        let pace = RequestPace::new(args.rate, args.clients, number, start);
        let stop = stop.clone();
        clients.spawn(async move {
            let (load, progress) = (&*load, &*progress);
            let client = BenchClient { load, clock, number, progress };
            client.send_requests(pace, end, &stop).await
        });
    }
    let (mut all, mut watch) = (pin!(all(clients)), pin!(watch(&clock, &args, start, &progress)));
    let mut outcome = loop {
        tokio::select! {
            outcome = all.as_mut() => break outcome?,
            () = watch.as_mut() => return Err(CommandError::unfinished("the clients did not end in time")),
            signal = signals.next() => {
                if stop.is_cancelled() {
                    return Err(CommandError::at_once(signal));
                }
                say(format!("{signal} received: stopping and printing the measurements so far; a second signal ends the process at once"));
                stop.cancel();
            }
        }
    };
    progress.note_pause();
    let seconds = (clock.now() - start).as_secs_f64();
    let check = match load.is_checked {
        true => Some(check::check(&load, &clock, std::mem::take(&mut outcome.sent)).await?),
        false => None,
    };
    let is_clean = outcome.is_clean() && check.is_none_or(|check| check.is_clean());
    let longest_pause = progress.longest_pause();
    outcome.print(&args, &BenchTotals { seconds, longest_pause, check })?;
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

/// Shows the progress. Returns only if the clients run on long after the end.
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
