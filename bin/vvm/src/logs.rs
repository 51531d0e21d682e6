//! Logs, and lines for the person at the terminal.
//!
//! Logging never blocks. A reader of stderr that stands still must not keep a leader from renewing
//! its lease, nor the killer from ending the process.

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

use tracing_subscriber::{fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{command_error::CommandError, log_filter::log_filter};

/// The maximum number of lines that wait to be written. Further lines are dropped and counted.
const LINES: usize = 10_000;

/// The most time to write the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

enum LogJob {
    Write(Vec<u8>),
    /// Asks for a notice when all lines before this job are written.
    Done(SyncSender<()>),
}

/// The queue of the only thread that writes to stderr.
static STDERR: OnceLock<SyncSender<LogJob>> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

fn stderr() -> &'static SyncSender<LogJob> {
    STDERR.get_or_init(|| {
        let (sender, jobs) = sync_channel(LINES);
        #[expect(clippy::disallowed_methods, reason = "it ends with the process: see `finish`")]
        thread::spawn(move || write(&jobs));
        sender
    })
}

fn write(jobs: &Receiver<LogJob>) {
    let mut stderr = io::stderr();
    while let Ok(job) = jobs.recv() {
        // Errors are ignored: the reader of stderr may be gone.
        match job {
            LogJob::Write(line) => drop(stderr.write_all(&line)),
            LogJob::Done(done) => drop(done.send(())),
        }
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            writeln!(
                stderr,
                "{lost} lines of the log were dropped, because stderr was not read fast enough"
            )
            .ok();
        }
    }
}

fn send(line: Vec<u8>) {
    if stderr().try_send(LogJob::Write(line)).is_err() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Begins to log to stderr, as text or as JSON. The filter in `RUST_LOG` replaces `filter`.
pub(crate) fn install(filter: &str, as_json: bool) -> Result<(), CommandError> {
    #[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
    let wanted = std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty());
    let filter = log_filter(wanted.as_deref().unwrap_or(filter)).map_err(|why| {
        CommandError::config(format!(
            "RUST_LOG: {why}; set it to a filter such as `info` or `warn,vvm=debug`"
        ))
    })?;
    let lines = fmt::layer().with_writer(|| LogLine(Vec::new()));
    let logs = tracing_subscriber::registry().with(filter);
    if as_json {
        logs.with(lines.json()).init();
    } else {
        logs.with(lines.with_ansi(io::stderr().is_terminal())).init();
    }
    Ok(())
}

/// Writes a line for the person at the terminal.
pub(crate) fn say(line: impl Display) {
    send(format!("{line}\n").into_bytes());
}

/// The most time for the last lines of a process that is to be killed: its lease is nearly over.
const KILL_FLUSH_TIMEOUT: Duration = Duration::from_millis(50);

/// Waits until all lines are written, but not longer than `FLUSH_TIMEOUT`.
pub(crate) fn finish() {
    finish_within(FLUSH_TIMEOUT);
}

/// Like [`finish`], for a process that must not live on. The wait is much shorter.
pub(crate) fn finish_at_once() {
    finish_within(KILL_FLUSH_TIMEOUT);
}

fn finish_within(time: Duration) {
    let (done, written) = sync_channel(1);
    // If the queue is full, the reader of stderr stands still, and waiting is useless.
    if stderr().try_send(LogJob::Done(done)).is_ok() {
        written.recv_timeout(time).ok();
    }
}

/// A line of the log. The line is sent when it is complete.
struct LogLine(Vec<u8>);

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            send(std::mem::take(&mut self.0));
        }
    }
}
