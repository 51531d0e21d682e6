//! `vvm bench`: sends requests to a running node, and measures their latency.

mod load;
mod outcome;
mod pace;
mod sender;
mod shares;

use std::{
    pin::pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{cli::BenchArgs, command_error::CommandError, say, signals::Signals};
use load::RequestLoad;
use outcome::BenchOutcome;
use pace::RequestPace;
use sender::send_requests;

/// The most time to wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, CommandError> {
    let clock = Clock::system();
    let mut signals = Signals::install().map_err(CommandError::runtime)?;
    let load = Arc::new(RequestLoad::new(&args)?);
    load.create_workspaces(&clock).await?;
    let done = Arc::new(AtomicU64::new(0));
    let start = clock.now();
    let end = start + Duration::from_secs(args.seconds);
    let mut clients = JoinSet::new();
    let stop = CancellationToken::new();
    for number in 0..args.clients {
        let (load, clock, done) = (Arc::clone(&load), clock.clone(), Arc::clone(&done));
        let pace = RequestPace::new(args.rate, args.clients, number, start);
        let stop = stop.clone();
        clients.spawn(async move { send_requests(&load, &clock, pace, end, &stop, &done).await });
    }
    let (mut all, mut watch) = (pin!(all(clients)), pin!(watch(&clock, &args, start, &done)));
    let outcome = loop {
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
    let took = (clock.now() - start).as_secs_f64();
    outcome.print(&args, took)?;
    Ok(if outcome.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
async fn watch(clock: &Clock, args: &BenchArgs, start: Instant, done: &AtomicU64) {
    const EVERY: Duration = Duration::from_millis(200);
    let (end, requests) = (start + Duration::from_secs(args.seconds), args.send.name());
    let bar = ProgressBar::new((end - start).as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}") {
        bar.set_style(style);
    }
    let mut before = 0;
    while clock.now() < end + 2 * ANSWER_TIMEOUT {
        clock.sleep(EVERY).await;
        let sum = done.load(Ordering::Relaxed);
        let now = (sum - before) as f64 / EVERY.as_secs_f64();
        before = sum;
        bar.set_position((clock.now() - start).as_millis() as u64);
        bar.set_message(format!("{now:.0} {requests}/s"));
    }
}
