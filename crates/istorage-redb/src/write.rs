//! The one thread that writes.
//!
//! The writer takes all requests that wait, runs them in one transaction, and answers them when
//! their frame of the [log](crate::log), or their durable commit, is on the disk. Invariant: no
//! request is answered with success before its effects are durable, and no request runs twice.

mod damaged;
mod transaction;
mod upkeep;
mod waiting;

use std::{collections::HashMap, sync::Arc, thread, time::Duration};

use async_channel::Receiver;
use clock::{Clock, Instant};
use istorage::{Error, KeyspaceName, Result};
use metrics::Histogram;
use tokio::sync::watch;

use self::{damaged::DamagedRows, waiting::WaitingJobs};
use crate::{
    errors::FileFailure,
    file::{OpenedFile, StorageFile},
    layout::Keyspace,
    log::WriteLog,
    request::{Abort, WriteJob, WriteRequest},
    time::{Moment, SteadyTime},
};

/// Limits of waiting for a full group: how often, and for how long, the writer lets other threads
/// run until as many jobs wait as the last group had.
///
/// Callers that were just answered send their next requests at once. Without this wait, the writer
/// would start with the first of these requests, and the rest would wait for a second commit. If
/// the last group had only one request, the writer does not wait.
const GATHER_YIELDS: usize = 100;
const GATHER_TIME: Duration = Duration::from_micros(300);

/// The state of the writer's thread.
#[derive(Debug)]
pub(crate) struct WriterThread {
    file: Arc<StorageFile>,
    jobs: Receiver<WriteJob>,
    /// The jobs that were taken from the queue.
    waiting: WaitingJobs,
    readers: Receiver<()>,
    clock: Clock,
    time: Arc<SteadyTime>,
    /// The number of requests in the last group.
    last_group: usize,
    /// The time of the first failure since the last write that succeeded. `None` while the file
    /// works.
    failing: Option<Instant>,
    /// Set when the driver cannot go on.
    failed: Arc<watch::Sender<Option<FileFailure>>>,
    /// Whether expired rows stay in the file, because the index of them is damaged or the file is
    /// only read.
    keeps_expired: bool,
    damaged: DamagedRows,
    /// The log of the open file; `None` while the file is not open.
    log: Option<WriteLog>,
    /// The durations of durable commits. All requests wait while one is under way.
    durable_commits: Histogram,
    /// Every keyspace, and when its first row expires.
    keyspaces: HashMap<KeyspaceName, (Arc<Keyspace>, Option<Moment>)>,
}

impl WriterThread {
    /// Makes the writer. `readers` is a channel that ends when the last reader has ended.
    pub(crate) fn new(
        file: Arc<StorageFile>,
        jobs: Receiver<WriteJob>,
        readers: Receiver<()>,
        clock: Clock,
        time: Arc<SteadyTime>,
        failed: Arc<watch::Sender<Option<FileFailure>>>,
    ) -> WriterThread {
        WriterThread {
            file,
            jobs,
            waiting: WaitingJobs::default(),
            readers,
            clock,
            time,
            last_group: 0,
            failing: None,
            failed,
            keeps_expired: false,
            damaged: DamagedRows::default(),
            log: None,
            durable_commits: metrics::histogram!("istorage_redb_durable_commit_seconds"),
            keyspaces: HashMap::new(),
        }
    }

    /// Opens the file, and makes it if it does not exist. Returns the keyspaces that are to be
    /// checked.
    pub(crate) fn open(&mut self) -> Result<Vec<KeyspaceName>> {
        let OpenedFile { contents, log, is_to_check } = self.file.open(self.clock.random())?;
        self.keeps_expired = self.file.is_read_only();
        self.adopt(contents, log);
        Ok(if is_to_check { self.keyspaces.keys().cloned().collect() } else { Vec::new() })
    }

    /// Writes until the queue is closed and empty, then closes the file.
    pub(crate) fn run(mut self) {
        while let Some(job) = self.next_job() {
            match job {
                WriteJob::Write(first) => {
                    let group = self.gather(first);
                    self.write(group);
                }
                WriteJob::Create { keyspace, reply, place: _place } => {
                    drop(reply.send(self.create(keyspace)));
                }
                WriteJob::Drop { keyspace, reply, place: _place } => {
                    drop(reply.send(self.drop_keyspace(&keyspace)));
                }
                WriteJob::Recover => self.check_file(),
            }
            // Expired rows are removed in small portions while no job waits.
            while self.waiting.len() + self.jobs.len() == 0 && self.purge_in_own_transaction() {}
        }
        self.close_in_order();
        // `recv_blocking` ends with an error when the last reader has ended: no reader ever sends.
        let _ = self.readers.recv_blocking();
        self.file.close();
    }

    /// Waits for a job. Returns `None` when the queue is closed and empty.
    fn next_job(&mut self) -> Option<WriteJob> {
        self.take_waiting();
        self.waiting.next().or_else(|| self.jobs.recv_blocking().ok())
    }

    /// Takes all jobs of the queue. The [places](crate::queue) bound their number.
    fn take_waiting(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            self.waiting.add(job);
        }
    }

    /// Takes the requests to write together with `first`.
    fn gather(&mut self, first: WriteRequest) -> Vec<WriteRequest> {
        let end = self.clock.now() + GATHER_TIME;
        for _ in 0..GATHER_YIELDS {
            let waiting = self.waiting.len() + self.jobs.len();
            if waiting + 1 >= self.last_group || self.clock.now() >= end {
                break;
            }
            thread::yield_now();
        }
        self.take_waiting();
        let group = self.waiting.take_group(first);
        self.last_group = group.len();
        group
    }

    fn write(&mut self, mut group: Vec<WriteRequest>) {
        // Opening the file may take long, so it comes before `remove_unwritable` compares deadlines
        // with the time. In the other order a request would pass `remove_unwritable`, its deadline
        // would pass while the file is opened, and the late request would be written.
        if !self.file.is_open() {
            self.reopen();
        }
        loop {
            self.remove_unwritable(&mut group);
            if group.is_empty() {
                return;
            }
            match self.try_group(&mut group) {
                Ok(()) => self.damaged.written(),
                Err(Abort::Spoiled(at, error)) => group.remove(at).answer(Err(error)),
                Err(Abort::Expiry(failure)) => self.keep_expired(&failure),
                Err(Abort::Failed(failure)) => {
                    self.recover(&failure);
                    group.drain(..).for_each(|request| request.answer(Err(failure.clone().into())));
                }
            }
        }
    }

    /// Takes out of the group the requests that must not be written.
    ///
    /// These are requests of callers that no longer wait, requests after their deadline, and
    /// requests that write a damaged row.
    fn remove_unwritable(&mut self, group: &mut Vec<WriteRequest>) {
        let now = self.clock.now();
        group.retain(|request| !request.reply.is_closed());
        for request in group.extract_if(.., |request| now >= request.deadline) {
            request.answer(Err(Error::unavailable(
                "the deadline passed in the queue; nothing was written",
            )));
        }
        for at in (0..group.len()).rev() {
            if let Some(damage) = self.damaged.refuse(&group[at], now) {
                group.remove(at).answer(Err(damage));
            }
        }
    }
}
