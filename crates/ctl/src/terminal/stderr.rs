//! The lines on stderr: of the log, and for the person at the terminal.
//!
//! Writing a line never blocks. A reader of stderr that stands still must not keep a leader from
//! renewing its lease, nor the killer from ending the process. If the reader is too slow, lines are
//! lost. Lines about actions of operators have places of their own, so others do not push them out.

use std::{
    fmt::Display,
    io::{self, Write},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

/// The maximum number of lines that wait to be written. Further lines are dropped and counted.
const LINES: usize = 10_000;

/// The number of further lines that may wait if they are about actions of operators.
const RESERVED_LINES: usize = 1_000;

enum LogJob {
    Write(Vec<u8>),
    /// Asks for a notice when all lines before this job are written.
    Done(SyncSender<()>),
}

/// The queue of the only thread that writes to stderr.
static STDERR: OnceLock<LogQueue> = OnceLock::new();
/// The number of lines that were lost since the last line about that.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The queue of the lines that wait to be written.
struct LogQueue {
    jobs: SyncSender<LogJob>,
    /// The number of lines that wait.
    waiting: Arc<AtomicUsize>,
}

impl LogQueue {
    fn new() -> (LogQueue, Receiver<LogJob>) {
        let (sender, jobs) = sync_channel(LINES + RESERVED_LINES);
        (LogQueue { jobs: sender, waiting: Arc::default() }, jobs)
    }

    /// Adds a line, if the queue has a place for such a line.
    fn add(&self, line: Vec<u8>, is_of_operator: bool) -> bool {
        let places = if is_of_operator { LINES + RESERVED_LINES } else { LINES };
        let has_place = self.waiting.fetch_add(1, Ordering::AcqRel) < places;
        let is_added = has_place && self.jobs.try_send(LogJob::Write(line)).is_ok();
        if !is_added {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        is_added
    }
}

fn stderr() -> &'static LogQueue {
    STDERR.get_or_init(|| {
        let (queue, jobs) = LogQueue::new();
        let waiting = Arc::clone(&queue.waiting);
        #[expect(clippy::disallowed_methods, reason = "it ends with the process: see `finish`")]
        thread::spawn(move || write(&jobs, &waiting));
        queue
    })
}

fn write(jobs: &Receiver<LogJob>, waiting: &AtomicUsize) {
    let mut stderr = io::stderr();
    while let Ok(job) = jobs.recv() {
        // Errors are ignored: the reader of stderr may be gone.
        match job {
            LogJob::Write(line) => {
                drop(stderr.write_all(&line));
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
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

/// Writes a line, which must end with a newline.
pub fn send(line: Vec<u8>, is_of_operator: bool) {
    if !stderr().add(line, is_of_operator) {
        LOST.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("vvm_log_lines_lost_total").increment(1);
    }
}

/// Writes a line for the person at the terminal.
pub fn say(line: impl Display) {
    send(format!("{line}\n").into_bytes(), false);
}

/// Waits until all lines are written, but not longer than this time.
pub fn finish(within: Duration) {
    let (done, written) = sync_channel(1);
    // If the queue is full, the reader of stderr stands still, and waiting is useless.
    if stderr().jobs.try_send(LogJob::Done(done)).is_ok() {
        written.recv_timeout(within).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reader of a log was slow, other lines filled the queue, and all lines about actions of
    /// operators were lost.
    #[test]
    fn a_full_queue_has_places_for_lines_about_operators() {
        let (queue, jobs) = LogQueue::new();
        let added = |of_operator| (0..20_000).filter(|_| queue.add(vec![0], of_operator)).count();
        assert_eq!(added(false), LINES);
        assert_eq!(added(true), RESERVED_LINES);
        assert_eq!(added(false), 0);
        drop(jobs);
        assert!(!queue.add(vec![0], true), "nobody writes");
    }
}
