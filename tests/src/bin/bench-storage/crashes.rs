//! How long redb takes to open after a crash.
//!
//! A child process writes rows and is killed, again and again, in the midst of its writes. Many
//! writes run at once, so that the log is often full at the kill. After each kill the driver opens
//! the file: it repeats the writes of the log.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use clock::{Clock, Instant};
use futures::{StreamExt, TryStreamExt, future::ready, stream};
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

/// The number of writes, of ten rows each, that run at once until the child is killed. They fill
/// the log in less than the time until the kill.
const WRITES_AT_KILL: usize = 64;

/// The crashes that are measured, and the work of the child.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Crashes {
    /// The number of times that a process with a redb file is killed. After each kill the bench
    /// measures how long the file takes to open. 0 measures none.
    #[arg(long, default_value_t = 9)]
    crashes: u32,
    /// The number of rows in this file.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Writes into this file until the process is killed. The bench starts itself in this way.
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
        let (mut times, mut logs) = (Vec::new(), Vec::new());
        for crash in 0..self.crashes {
            let rows = if crash == 0 { self.rows } else { 0 };
            kill_writer(&path, rows, clock).await?;
            logs.push(logged_bytes(&path)?);
            let start = clock.now();
            let driver = RedbDriver::open(RedbConfig::new(&path), clock.clone()).await?;
            times.push(clock.now() - start);
            driver.close().await;
        }
        times.sort_unstable();
        logs.sort_unstable();
        let (longest, fullest) = times.last().zip(logs.last()).ok_or("no crash was measured")?;
        println!(
            "| rows, at least | size of the file | crashes | in the log, median | most | opens in, median | longest |"
        );
        println!("|---:|---:|---:|---:|---:|---:|---:|");
        println!(
            "| {} | {} MiB | {} | {} KiB | {} KiB | {} | {} |\n",
            self.rows,
            std::fs::metadata(&path)?.len() >> 20,
            self.crashes,
            logs[logs.len() / 2] >> 10,
            fullest >> 10,
            millis(times[times.len() / 2]),
            millis(*longest)
        );
        Ok(())
    }

    /// Writes rows, says so, and goes on until the process is killed.
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
        let writes = stream::iter(self.rows..)
            .map(|n| side.run(Op::PutBatch10, first.wrapping_add(n)))
            .buffer_unordered(WRITES_AT_KILL);
        writes.try_for_each(|()| ready(Ok(()))).await
    }
}

/// The number of bytes in the two segments of the log. The next opening reads both, and the storage
/// file may have the rows of the first.
fn logged_bytes(storage: &Path) -> Result<usize, BenchError> {
    let mut bytes = 0;
    for ending in [".log-0", ".log-1"] {
        let mut path = storage.as_os_str().to_owned();
        path.push(ending);
        let log = match std::fs::read(path) {
            Ok(log) => log,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let Some((segment, _)) = frame_at(&log, 0) else { continue };
        let mut end = 0;
        // After the last frame there are zeros, or frames of an earlier segment.
        while let Some((of, len)) = frame_at(&log, end)
            && of == segment
        {
            end += len;
        }
        bytes += end;
    }
    Ok(bytes)
}

/// The segment of the frame at a place of a log, and the length of the frame. The module
/// `log::frame` of `istorage-redb` says what a frame holds.
fn frame_at(log: &[u8], at: usize) -> Option<(u64, usize)> {
    const BESIDE_PAYLOAD: usize = 40;
    const SECTOR: usize = 512;
    let head = log.get(at..)?.strip_prefix(b"VVML")?;
    let (payload, rest) = head.split_first_chunk()?;
    let (_, rest) = rest.split_first_chunk::<8>()?;
    let (segment, _) = rest.split_first_chunk()?;
    let len = u32::from_be_bytes(*payload) as usize + BESIDE_PAYLOAD;
    Some((u64::from_be_bytes(*segment), len.next_multiple_of(SECTOR)))
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
