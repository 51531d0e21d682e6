//! Logs, and what is said to the person who started us. Nobody waits for whoever reads them: a reader that stands still must not keep a leader from
//! renewing its lease, nor from being killed.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// How many lines wait for a reader; those after them are lost, and counted.
const LINES: usize = 10_000;

/// How long the last lines may take.
const PATIENCE: Duration = Duration::from_secs(1);

enum Job {
    Line(Vec<u8>),
    /// All before it is written.
    Done(SyncSender<()>),
}

/// To the one thread that writes to stderr.
static STDERR: OnceLock<SyncSender<Job>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

fn stderr() -> &'static SyncSender<Job> {
    STDERR.get_or_init(|| {
        let (sender, jobs) = sync_channel(LINES);
        #[expect(clippy::disallowed_methods, reason = "it ends with the process: see `finish`")]
        thread::spawn(move || write(&jobs));
        sender
    })
}

fn write(jobs: &Receiver<Job>) {
    let mut stderr = io::stderr();
    while let Ok(job) = jobs.recv() {
        // Nobody may be there to read it any more.
        match job {
            Job::Line(line) => drop(stderr.write_all(&line)),
            Job::Done(done) => drop(done.send(())),
        }
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            writeln!(stderr, "{lost} lines of the log are lost: nobody read them").ok();
        }
    }
}

fn send(line: Vec<u8>) {
    if stderr().try_send(Job::Line(line)).is_err() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Logs go to stderr, as text or as JSON. What `RUST_LOG` asks for comes first.
pub(crate) fn install(filter: &str, as_json: bool) -> Result<(), Failure> {
    #[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
    let wanted = std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty());
    let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(filter));
    let filter = filter.map_err(|error| {
        Failure::config(format!("RUST_LOG: {error}; say `info`, or `warn,vvm=debug`"))
    })?;
    let logs = tracing_subscriber::fmt().with_writer(|| Line(Vec::new())).with_env_filter(filter);
    if as_json {
        logs.json().init();
    } else {
        logs.with_ansi(io::stderr().is_terminal()).init();
    }
    Ok(())
}

/// A line for the person who started us.
pub(crate) fn say(line: impl Display) {
    send(format!("{line}\n").into_bytes());
}

/// How long a process that is to be killed may take for them: its lease is nearly over.
const HASTE: Duration = Duration::from_millis(50);

/// Waits until all is written, if that takes no longer than a moment.
pub(crate) fn finish() {
    finish_within(PATIENCE);
}

/// As [`finish`], for who must not live on.
pub(crate) fn finish_at_once() {
    finish_within(HASTE);
}

fn finish_within(time: Duration) {
    let (done, written) = sync_channel(1);
    // If there is no room nobody reads.
    if stderr().try_send(Job::Done(done)).is_ok() {
        written.recv_timeout(time).ok();
    }
}

/// A line of the log, sent when it is whole.
struct Line(Vec<u8>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            send(std::mem::take(&mut self.0));
        }
    }
}
