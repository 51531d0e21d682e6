//! Two sides in turn, so that a machine whose speed drifts is the same for both.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use rustix::time::{ClockId, clock_gettime};

use crate::work::{Failure, Op, PREFILLED, Side};

/// One measurement of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// What a call cost this process; it swings less than a server does.
    pub(crate) cpu: Duration,
}

/// What came out for an operation with a number of tasks: medians of the rounds.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) op: Op,
    pub(crate) tasks: usize,
    pub(crate) driver: Sample,
    pub(crate) floor: Option<Sample>,
    /// The median of the rounds' ratios, driver to floor.
    pub(crate) ratio: Option<f64>,
}

#[derive(Clone)]
pub(crate) struct Meter {
    pub(crate) clock: Clock,
    pub(crate) rounds: usize,
    pub(crate) span: Duration,
    /// New rows are numbered through, over all rounds.
    pub(crate) next: Arc<AtomicU64>,
}

impl Meter {
    pub(crate) async fn compare(
        &self,
        op: Op,
        tasks: usize,
        driver: &Arc<dyn Side>,
        floor: Option<&Arc<dyn Side>>,
    ) -> Result<Row, Failure> {
        let (mut drivers, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            // The first round warms up: a server compiles while it runs. Which side goes first alternates.
            let warm_up = round == 0;
            let span = if warm_up { 2 * self.span } else { self.span };
            let (mut one, mut other) = (None, None);
            for turn in [round, round + 1] {
                if turn % 2 == 0 {
                    one = Some(self.sample(op, tasks, span, driver).await?);
                } else if let Some(floor) = floor {
                    other = Some(self.sample(op, tasks, span, floor).await?);
                }
            }
            if warm_up {
                continue;
            }
            drivers.extend(one);
            floors.extend(other);
            if let (Some(one), Some(other)) = (one, other) {
                ratios.push(one.per_second / other.per_second);
            }
        }
        Ok(Row {
            op,
            tasks,
            driver: medians(&drivers).ok_or("no round was measured")?,
            floor: medians(&floors),
            ratio: median(ratios),
        })
    }

    async fn sample(
        &self,
        op: Op,
        tasks: usize,
        span: Duration,
        side: &Arc<dyn Side>,
    ) -> Result<Sample, Failure> {
        let (start, cpu) = (self.clock.now(), cpu_time());
        let end = start + span;
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..tasks {
            let (side, clock, next) =
                (Arc::clone(side), self.clock.clone(), Arc::clone(&self.next));
            running.spawn(async move {
                let mut times = Vec::new();
                let mut now = clock.now();
                while now < end {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let n = if op == Op::Get { n % PREFILLED } else { PREFILLED + n };
                    side.run(op, n).await?;
                    let done = clock.now();
                    times.push(done - now);
                    now = done;
                }
                Ok::<_, Failure>(times)
            });
        }
        let mut times = Vec::new();
        while let Some(task) = running.join_next().await {
            times.extend(task??);
        }
        let elapsed = (self.clock.now() - start).as_secs_f64();
        let cpu = (cpu_time() - cpu).div_f64(times.len().max(1) as f64);
        times.sort_unstable();
        let at = |per_mille: usize| times.get(times.len() * per_mille / 1_000).copied();
        let (p50, p99) = at(500).zip(at(990)).ok_or("no call was finished in time")?;
        Ok(Sample { per_second: times.len() as f64 / elapsed, p50, p99, cpu })
    }
}

/// The time that all threads of this process have run.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The median of each figure by itself.
fn medians(samples: &[Sample]) -> Option<Sample> {
    let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
    let time = |figure: fn(&Sample) -> f64| middle(figure).map(Duration::from_secs_f64);
    Some(Sample {
        per_second: middle(|sample| sample.per_second)?,
        p50: time(|sample| sample.p50.as_secs_f64())?,
        p99: time(|sample| sample.p99.as_secs_f64())?,
        cpu: time(|sample| sample.cpu.as_secs_f64())?,
    })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
