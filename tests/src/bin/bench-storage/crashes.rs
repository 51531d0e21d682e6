//! The time in which redb opens after a crash.
//!
//! A child process writes rows and is killed, again and again, in the midst of its writes. After
//! each kill the driver opens the file: it repeats the writes of the log.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use clock::{Clock, Instant};
use istorage::{KeyspaceName, StorageDriver};
use istorage_redb::{RedbConfig, RedbDriver};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};
use vvm_tests::bench::{BenchError, millis, scratch};

use crate::work::{Driver, Op, Side};

/// The number of rows that the child writes at the same time before the first crash.
const AT_ONCE: u64 = 1_000;

/// The crashes that are measured, and the work of the child.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Crashes {
    /// The number of times that a process with a redb file is killed. After each kill the time is
    /// measured in which the file opens. 0 measures none.
    #[arg(long, default_value_t = 9)]
    crashes: u32,
    /// The number of rows in this file.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Writes into this file until the process is killed. The bench starts itself so.
    #[arg(long, hide = true)]
    pub(crate) write_to: Option<PathBuf>,
}

impl Crashes {
    /// Kills children and measures openings. Prints a table.
    pub(crate) async fn measure(&self, clock: &Clock) -> Result<(), BenchError> {
        if self.crashes == 0 {
            return Ok(());
        }
        let folder = tempfile::tempdir_in(scratch()?)?;
        let path = folder.path().join("crashes.redb");
        let mut times = Vec::new();
        for crash in 0..self.crashes {
            let rows = if crash == 0 { self.rows } else { 0 };
            kill_writer(&path, rows, clock).await?;
            let start = clock.now();
            let driver = RedbDriver::open(RedbConfig::new(&path), clock.clone()).await?;
            times.push(clock.now() - start);
            driver.close().await;
        }
        times.sort_unstable();
        let longest = times.last().ok_or("no crash was measured")?;
        println!("| rows | size of the file | crashes | opens in, median | longest |");
        println!("|---:|---:|---:|---:|---:|");
        println!(
            "| {} | {} MiB | {} | {} | {} |\n",
            self.rows,
            std::fs::metadata(&path)?.len() >> 20,
            self.crashes,
            millis(times[times.len() / 2]),
            millis(*longest)
        );
        Ok(())
    }

    /// Writes rows, says so, and goes on one row at a time until the process is killed.
    pub(crate) async fn write(&self, path: &Path, clock: &Clock) -> Result<(), BenchError> {
        let driver = RedbDriver::open(RedbConfig::new(path), clock.clone()).await?;
        let (name, far) = (KeyspaceName::new("crashes")?, Instant::FAR_FUTURE);
        driver.create(&name, far).await?;
        let storage = driver.open(&name, far).await?.ok_or("the keyspace was just created")?;
        let side: Arc<dyn Side> = Arc::new(Driver { storage, clock: clock.clone() });
        let first = clock.random();
        for start in (0..self.rows).step_by(AT_ONCE as usize) {
            let puts = start..self.rows.min(start + AT_ONCE);
            let puts = puts.map(|n| side.run(Op::Put, first.wrapping_add(n)));
            futures::future::try_join_all(puts).await?;
        }
        println!("written");
        for n in self.rows.. {
            side.run(Op::Put, first.wrapping_add(n)).await?;
        }
        Ok(())
    }
}

/// Starts a child that writes, and kills it at a random moment of the next two seconds.
async fn kill_writer(path: &Path, rows: u64, clock: &Clock) -> Result<(), BenchError> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--rows", &rows.to_string(), "--write-to"])
        .arg(path)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = child.stdout.take().ok_or("the output of the child is a pipe")?;
    let said = BufReader::new(output).lines().next_line().await?;
    if said.as_deref() != Some("written") {
        return Err("the child ended before it had written its rows".into());
    }
    clock.sleep(Duration::from_millis(clock.random() % 2_000)).await;
    child.kill().await?;
    Ok(())
}
