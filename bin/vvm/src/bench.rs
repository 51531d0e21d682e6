//! `vvm bench`: sends commands to a running node, and measures their latency.

mod client;
mod load;

use std::{
    collections::BTreeMap,
    pin::pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{cli::BenchArgs, command_error::CommandError, print, say, signals::Signals};
use client::NodeClient;
use load::{CommandLoad, CommandPace, WorkspacePicker};

/// The most time to wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest time that is recorded, in microseconds: one hour. Longer times count as this one.
const LONGEST: u64 = 3_600_000_000;

/// The outcome of the commands of one client, or of all clients.
struct BenchOutcome {
    /// The times of the commands that were done, in microseconds.
    times: Histogram<u64>,
    /// The numbers of commands that were not done, by the answer.
    failed: BTreeMap<String, u64>,
    /// The number of commands that were due before the end and were not sent, because their clients
    /// still waited for answers.
    unsent: u64,
}

impl BenchOutcome {
    fn new() -> Result<BenchOutcome, CommandError> {
        let times = Histogram::new_with_bounds(1, LONGEST, 3);
        let times = times.map_err(|error| CommandError::unfinished(error.to_string()))?;
        Ok(BenchOutcome { times, failed: BTreeMap::new(), unsent: 0 })
    }

    fn add(&mut self, other: BenchOutcome) -> Result<(), CommandError> {
        self.times.add(other.times).map_err(|error| CommandError::unfinished(error.to_string()))?;
        for (why, count) in other.failed {
            *self.failed.entry(why).or_default() += count;
        }
        self.unsent += other.unsent;
        Ok(())
    }
}

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, CommandError> {
    let clock = Clock::system();
    let mut signals = Signals::install().map_err(CommandError::runtime)?;
    let load = Arc::new(CommandLoad::new(&args)?);
    load.create_workspaces(&clock).await?;
    let done = Arc::new(AtomicU64::new(0));
    let start = clock.now();
    let end = start + Duration::from_secs(args.seconds);
    let mut clients = JoinSet::new();
    let stop = CancellationToken::new();
    for number in 0..args.clients {
        let (load, clock, done) = (Arc::clone(&load), clock.clone(), Arc::clone(&done));
        let pace = CommandPace::new(args.rate, args.clients, number, start);
        let stop = stop.clone();
        clients.spawn(async move { client(&load, &clock, pace, end, &stop, &done).await });
    }
    let (mut all, mut watch) = (pin!(all(clients)), pin!(watch(&clock, start, end, &done)));
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
    report(&args, &outcome, took)?;
    let is_clean = outcome.failed.is_empty() && !outcome.times.is_empty();
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends one command after another, and returns the outcome.
async fn client(
    load: &CommandLoad,
    clock: &Clock,
    mut pace: CommandPace,
    end: Instant,
    stop: &CancellationToken,
    done: &AtomicU64,
) -> Result<BenchOutcome, CommandError> {
    let mut outcome = BenchOutcome::new()?;
    let mut workspaces = WorkspacePicker::new(load, clock.random());
    let mut client = None;
    while clock.now() < end {
        let next = stop.run_until_cancelled(pace.next(clock, end));
        let Some(Some(due)) = next.await else { break };
        let ws = workspaces.next();
        let answered = async {
            let client = match &mut client {
                Some(client) => client,
                none => none.insert(NodeClient::connect(load.address).await?),
            };
            client.post(&load.path(ws), load.body.clone()).await
        };
        let answered = clock.timeout_at(clock.now() + ANSWER_TIMEOUT, answered).await;
        let why = match answered {
            Ok(Ok(answer)) if answer.status.is_success() => {
                // The time starts when the command was due. Otherwise a node that stands still
                // would delay the next commands, and their waiting would not be measured.
                let micros = (clock.now() - due).as_micros() as u64;
                outcome.times.saturating_record(micros);
                done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Ok(Ok(answer)) => answer.problem("code"),
            Ok(Err(error)) => {
                client = None;
                error.to_string()
            }
            Err(_) => {
                client = None;
                format!("no answer in {ANSWER_TIMEOUT:?}")
            }
        };
        *outcome.failed.entry(why).or_default() += 1;
        // The leadership may be moving to another node.
        clock.sleep(Duration::from_millis(20)).await;
    }
    outcome.unsent = pace.left(clock.now().min(end));
    Ok(outcome)
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
async fn watch(clock: &Clock, start: Instant, end: Instant, done: &AtomicU64) {
    const EVERY: Duration = Duration::from_millis(200);
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
        bar.set_message(format!("{now:.0} commands/s"));
    }
}

fn report(args: &BenchArgs, outcome: &BenchOutcome, took: f64) -> Result<(), CommandError> {
    let BenchOutcome { times, failed, unsent } = outcome;
    let per_second = times.len() as f64 / took;
    let at = |quantile: f64| times.value_at_quantile(quantile);
    if args.json {
        let result = json!({
            "clients": args.clients,
            "rate": args.rate,
            "workspaces": args.workspaces,
            "zipf": args.zipf,
            "records": args.records,
            "seconds": took,
            "done": times.len(),
            "perSecond": per_second,
            "micros": {
                "mean": times.mean(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": times.max(),
            },
            "failed": failed,
            "unsent": unsent,
        });
        return print(&format!("{result:#}\n"));
    }
    let mut text = format!(
        "{} commands in {took:.1} s: {per_second:.0}/s\np50 {} µs, p90 {} µs, p99 {} µs, p99.9 {} µs, longest {} µs\n",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        times.max()
    );
    for (why, count) in failed {
        text += &format!("{count} times: {why}\n");
    }
    if *unsent > 0 {
        text += &format!(
            "{unsent} commands were due and not sent: {} clients do not reach this rate\n",
            args.clients
        );
    }
    print(&text)
}
