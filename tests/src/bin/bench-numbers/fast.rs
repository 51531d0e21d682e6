//! Numbers of a fast series: how many one caller draws, and how long a draw takes at a steady rate.

use std::{hint::black_box, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use docnumbers::{Definition, DocNumberRows, FastSeries, FastSettings, Series, WsId};
use istorage::{KeyspaceName, StorageDriver};
use tck::storage::KeyspaceTracker;
use vvm_tests::bench::{BenchError, median, millis};

use crate::Args;

/// The figures of one round.
struct Round {
    /// The numbers that one caller draws in a second, one after another without a pause, from
    /// ranges that hold all of them.
    per_second: f64,
    /// The durations of draws at the steady rate.
    p50: Duration,
    p99: Duration,
    p999: Duration,
    most: Duration,
    /// The refills during the steady rate.
    refills: u64,
}

pub(crate) async fn bench(
    args: &Args,
    clock: &Clock,
    driver: &Arc<dyn StorageDriver>,
) -> Result<(), BenchError> {
    println!("| numbers/s of one caller | p50 | p99 | p99.9 | longest | refills |");
    println!("|---:|---:|---:|---:|---:|---:|");
    let keyspaces = KeyspaceTracker::default();
    let tracked = keyspaces.track(Arc::clone(driver));
    let name = KeyspaceName::new(format!("bench_{:016x}", clock.random()))?;
    tracked.create(&name, Instant::FAR_FUTURE).await?;
    let opened = tracked.open(&name, Instant::FAR_FUTURE).await?;
    let storage = opened.ok_or("the keyspace that was just made is missing")?;
    let rows = DocNumberRows::new(storage, clock.clone(), "n", Duration::from_secs(10));
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        rounds.push(measure(args, clock, &rows, round).await?);
        eprintln!("{}, round {round} of {}", driver.name(), args.rounds);
    }
    show(&rounds);
    if let Some((name, error)) = keyspaces.drop_all(&*tracked, clock).await.into_iter().next() {
        return Err(format!("the keyspace {name} was not dropped: {error}").into());
    }
    Ok(())
}

async fn measure(
    args: &Args,
    clock: &Clock,
    rows: &DocNumberRows,
    round: usize,
) -> Result<Round, BenchError> {
    let open = async |what: &str, range| -> Result<FastSeries, BenchError> {
        let definition = Definition::daily(&format!("{what}{round}"), "ORDER");
        let (series, settings) = (Series::new(definition)?, FastSettings::with_range(range));
        let far = Instant::FAR_FUTURE;
        Ok(FastSeries::open(series, rows.clone(), "bench", settings, far).await?)
    };
    const UNPACED: u64 = 3_000_000;
    let (ws, far) = (WsId(1), Instant::FAR_FUTURE);
    let one_range = open("all", UNPACED).await?;
    let _ = one_range.next(ws, far).await?;
    let start = clock.now();
    for _ in 1..UNPACED {
        let _ = black_box(one_range.next(ws, far).await?);
    }
    let per_second = UNPACED as f64 / (clock.now() - start).as_secs_f64();
    one_range.close(clock.now() + Duration::from_secs(10)).await;

    let series = open("steady", args.range).await?;
    let _ = series.next(ws, far).await?;
    let start = clock.now();
    let span = args.span();
    let mut times = Vec::with_capacity((args.rate * args.span_ms / 1_000) as usize);
    loop {
        let since = clock.now() - start;
        if since >= span {
            break;
        }
        let due = (since.as_secs_f64() * args.rate as f64) as usize;
        while times.len() < due {
            let before = clock.now();
            let _ = black_box(series.next(ws, far).await?);
            times.push(clock.now() - before);
        }
        clock.sleep(Duration::from_millis(1)).await;
    }
    series.close(clock.now() + Duration::from_secs(10)).await;
    let refills = times.len() as u64 / args.range;
    times.sort_unstable();
    let at = |per_mille: usize| times.get(times.len() * per_mille / 1_000).copied();
    let most = times.last().copied();
    let missing = "no number was drawn";
    let (p50, p99) = at(500).zip(at(990)).ok_or(missing)?;
    let (p999, most) = at(999).zip(most).ok_or(missing)?;
    Ok(Round { per_second, p50, p99, p999, most, refills })
}

fn show(rounds: &[Round]) {
    let middle = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let rate = middle(|round| round.per_second).unwrap_or_default();
    let time = |figure: fn(&Round) -> f64| {
        middle(figure).map_or_else(String::new, |time| millis(Duration::from_secs_f64(time)))
    };
    let [p50, p99, p999, most] = [
        time(|round| round.p50.as_secs_f64()),
        time(|round| round.p99.as_secs_f64()),
        time(|round| round.p999.as_secs_f64()),
        time(|round| round.most.as_secs_f64()),
    ];
    let refills = middle(|round| round.refills as f64).unwrap_or_default();
    println!("| {rate:.0} | {p50} | {p99} | {p999} | {most} | {refills:.0} |\n");
}
