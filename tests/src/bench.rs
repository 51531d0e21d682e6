//! Code that the benches share: measuring calls, and opening the databases.

mod kept_connection;
mod node;
mod shop_load;

use std::{path::PathBuf, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use istorage::{StorageDriver, mem::MemDriver};
use istorage_cassandra::{CassandraDriver, Replication};
use istorage_dynamodb::DynamoDbDriver;
use istorage_redb::{RedbConfig, RedbDriver};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub use self::{
    kept_connection::{KeptConnection, request_bytes},
    node::{BenchBinary, BenchFigures, BenchNode, BenchProcess},
    shop_load::{PARTITIONS, ShopLoad, bill},
};
use crate::servers::{CASSANDRA, CASSANDRA_CLUSTER, DYNAMODB, TestServer};

/// Any error. Every error ends a bench.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The number of calls in a second.
    pub per_second: f64,
    /// The median: half of the calls took no longer.
    pub p50: Duration,
    /// The 99th percentile: 99 of 100 calls took no longer.
    pub p99: Duration,
    /// The 99.9th percentile: 999 of 1,000 calls took no longer.
    pub p999: Duration,
    /// The duration of the slowest call.
    pub longest: Duration,
    /// The CPU time of this process for one call. The CPU time varies less than the times of a
    /// server.
    pub cpu: Duration,
}

impl Sample {
    /// Runs a number of tasks until the time is over. Each task calls again as soon as its call is
    /// answered. A call gets the number of its task.
    ///
    /// # Errors
    /// The error of the first call that fails, and an error if no call is finished in time.
    pub async fn measure<F>(
        clock: &Clock,
        tasks: usize,
        span: Duration,
        call: impl Fn(usize) -> F + Clone + Send + 'static,
    ) -> Result<Sample, BenchError>
    where
        F: Future<Output = Result<(), BenchError>> + Send,
    {
        let (start, cpu) = (clock.now(), cpu_time());
        let end = start + span;
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let (clock, call) = (clock.clone(), call.clone());
            running.spawn(async move {
                let mut times = Vec::new();
                let mut now = clock.now();
                while now < end {
                    call(task).await?;
                    let done = clock.now();
                    times.push(done - now);
                    now = done;
                }
                Ok::<_, BenchError>(times)
            });
        }
        let mut times = Vec::new();
        while let Some(task) = running.join_next().await {
            times.extend(task??);
        }
        let elapsed = clock.now() - start;
        let cpu = (cpu_time() - cpu).div_f64(times.len().max(1) as f64);
        Ok(Sample { cpu, ..Sample::of(times, elapsed)? })
    }

    /// The figures of calls with these durations, which another program measured. The CPU time is
    /// zero.
    ///
    /// # Errors
    /// If there are no calls.
    pub fn of(mut times: Vec<Duration>, elapsed: Duration) -> Result<Sample, BenchError> {
        times.sort_unstable();
        let longest = *times.last().ok_or("no call was finished in time")?;
        let at = |per_mille: usize| times[times.len() * per_mille / 1_000];
        Ok(Sample {
            per_second: times.len() as f64 / elapsed.as_secs_f64(),
            p50: at(500),
            p99: at(990),
            p999: at(999),
            longest,
            cpu: Duration::ZERO,
        })
    }

    /// The median of each figure by itself, and the longest call of all samples. `None` if there
    /// are no samples.
    pub fn medians(samples: &[Sample]) -> Option<Sample> {
        let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
        let time = |figure: fn(&Sample) -> f64| middle(figure).map(Duration::from_secs_f64);
        Some(Sample {
            per_second: middle(|sample| sample.per_second)?,
            p50: time(|sample| sample.p50.as_secs_f64())?,
            p99: time(|sample| sample.p99.as_secs_f64())?,
            p999: time(|sample| sample.p999.as_secs_f64())?,
            longest: samples.iter().map(|sample| sample.longest).max()?,
            cpu: time(|sample| sample.cpu.as_secs_f64())?,
        })
    }
}

/// The CPU time of all threads of this process so far.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// The middle value. `None` if there are no values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Formats a duration for tables.
pub fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1_000.0)
}

/// The address of a server.
///
/// # Errors
/// If the address was not given.
pub fn address(server: TestServer) -> Result<String, BenchError> {
    let TestServer { variable, .. } = server;
    let missing = || format!("{variable} is not set: run this as `cargo xtask bench`");
    Ok(server.address().ok_or_else(missing)?)
}

/// Makes a folder on a real disk. (`/tmp` may be in memory.)
///
/// # Errors
/// If the folder cannot be made.
pub fn scratch() -> Result<PathBuf, BenchError> {
    let folder =
        std::env::current_exe()?.parent().ok_or("the program lies in no folder")?.join("bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A database, and the folder of its file if it has one.
#[derive(Debug)]
pub struct BenchDatabase {
    /// The driver.
    pub driver: Arc<dyn StorageDriver>,
    _folder: Option<TempDir>,
}

impl BenchDatabase {
    /// Opens the database with this name.
    ///
    /// # Errors
    /// If there is no driver with this name, or the database cannot be reached.
    pub async fn connect(name: &str, clock: &Clock) -> Result<BenchDatabase, BenchError> {
        let (clock, far) = (clock.clone(), Instant::FAR_FUTURE);
        let mut folder = None;
        let driver: Arc<dyn StorageDriver> = match name {
            "mem" => Arc::new(MemDriver::new(clock)),
            "redb" => {
                let made = folder.insert(tempfile::tempdir_in(scratch()?)?);
                let config = RedbConfig::new(made.path().join("bench.redb"));
                Arc::new(RedbDriver::open(config, clock).await?)
            }
            "cassandra" | "cassandra_cluster" => {
                let is_cluster = name == "cassandra_cluster";
                let address = address(if is_cluster { CASSANDRA_CLUSTER } else { CASSANDRA })?;
                let mut config = istorage_cassandra::CassandraConfig::new(address.split(','));
                config.replication = Some(Replication::UpToThree);
                Arc::new(CassandraDriver::connect(config, clock, far).await?)
            }
            "dynamodb" => {
                let config = istorage_dynamodb::DynamoDbConfig::local(address(DYNAMODB)?);
                Arc::new(DynamoDbDriver::connect(config, clock, far).await?)
            }
            other => return Err(format!("there is no driver `{other}`").into()),
        };
        Ok(BenchDatabase { driver, _folder: folder })
    }
}
