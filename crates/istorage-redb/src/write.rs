//! The one thread that writes.
//!
//! The writer takes all requests that wait, runs them in one transaction, and answers them when the
//! commit is on the disk. Invariant: no request is answered with success before its commit is
//! durable, and no request runs twice.

mod damaged;
mod upkeep;

use std::{collections::HashMap, sync::Arc, thread, time::Duration};

use async_channel::Receiver;
use clock::{Clock, Instant};
use istorage::{Error, ErrorKind, KeyspaceName, Outcome, Result};
use tokio::sync::{oneshot, watch};

use self::damaged::DamagedRows;
use crate::{
    errors::{self, FileFailure},
    file::StorageFile,
    group::{GroupTransaction, RequestError, TxnProgress, TxnStep, WriteRequest},
    layout::Keyspace,
    time::{Moment, SteadyTime},
};

/// Limits of a group: a transaction that reached one of them takes no further request.
const GROUP_REQUESTS: usize = 1_024;
const GROUP_BYTES: usize = 16 << 20;
/// Limits of waiting for a full group: how often, and for how long, the writer lets other threads
/// run until as many jobs wait as the last group had.
///
/// Callers that were just answered send their next requests at once. Without this wait, the writer
/// would start with the first of these requests, and the rest would wait for a second commit. If
/// the last group had only one request, the writer does not wait.
const GATHER_YIELDS: usize = 100;
const GATHER_TIME: Duration = Duration::from_micros(300);

/// A job for the writer.
#[derive(Debug)]
pub(crate) enum WriteJob {
    Write(WriteRequest),
    Create {
        keyspace: Arc<Keyspace>,
        reply: oneshot::Sender<Result<()>>,
    },
    Drop {
        keyspace: Arc<Keyspace>,
        reply: oneshot::Sender<Result<()>>,
    },
    /// A read failed: open the file again if it has failed.
    Recover,
}

/// The reason why a transaction was given up.
enum Abort {
    /// The request with this index cannot be written, and nothing of it may be written. The other
    /// requests run again without it.
    Spoiled(usize, Error),
    /// Expired rows cannot be removed. The requests can be written without removing them.
    Expiry(FileFailure),
    /// The file failed.
    Failed(FileFailure),
}

/// The state of the writer's thread.
#[derive(Debug)]
pub(crate) struct WriterThread {
    file: Arc<StorageFile>,
    jobs: Receiver<WriteJob>,
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
    /// Whether expired rows stay in the file, because the index of them is damaged.
    keeps_expired: bool,
    damaged: DamagedRows,
    /// Every keyspace, with the moment at which its first row expires.
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
            readers,
            clock,
            time,
            last_group: 0,
            failing: None,
            failed,
            keeps_expired: false,
            damaged: DamagedRows::default(),
            keyspaces: HashMap::new(),
        }
    }

    /// Opens the file, and makes it if it does not exist.
    pub(crate) fn open(&mut self) -> Result<()> {
        let contents = self.file.open(self.clock.random())?;
        self.adopt(contents);
        Ok(())
    }

    /// Writes until the queue is closed and empty, then closes the file.
    pub(crate) fn run(mut self) {
        let mut next = None;
        while let Some(job) = next.take().or_else(|| self.jobs.recv_blocking().ok()) {
            match job {
                WriteJob::Write(first) => {
                    let (group, left) = self.gather(first);
                    next = left;
                    self.write(group);
                }
                WriteJob::Create { keyspace, reply } => drop(reply.send(self.create(keyspace))),
                WriteJob::Drop { keyspace, reply } => {
                    drop(reply.send(self.drop_keyspace(&keyspace)))
                }
                WriteJob::Recover => self.check_file(),
            }
            // Expired rows are removed in small portions while no job waits.
            while next.is_none() && self.jobs.is_empty() && self.purge_in_own_transaction() {}
        }
        self.write_closing_time();
        // `recv_blocking` ends with an error when the last reader has ended: no reader ever sends.
        let _ = self.readers.recv_blocking();
        self.file.close();
    }

    /// Takes all requests that wait, up to the first job of another kind. Returns that job too.
    fn gather(&mut self, first: WriteRequest) -> (Vec<WriteRequest>, Option<WriteJob>) {
        let end = self.clock.now() + GATHER_TIME;
        for _ in 0..GATHER_YIELDS {
            if self.jobs.len() + 1 >= self.last_group || self.clock.now() >= end {
                break;
            }
            thread::yield_now();
        }
        let (group, next) = self.take(first);
        self.last_group = group.len();
        (group, next)
    }

    fn take(&self, first: WriteRequest) -> (Vec<WriteRequest>, Option<WriteJob>) {
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < GROUP_REQUESTS && bytes < GROUP_BYTES {
            match self.jobs.try_recv() {
                Ok(WriteJob::Write(request)) => {
                    bytes += request.bytes();
                    group.push(request);
                }
                Ok(job) => return (group, Some(job)),
                Err(_) => break,
            }
        }
        (group, None)
    }

    fn write(&mut self, mut group: Vec<WriteRequest>) {
        // Opening the file may take long, so it comes before `remove_unwritable` compares deadlines with the
        // time. In the other order a request would pass `remove_unwritable`, its deadline would pass while
        // the file is opened, and the late request would be written.
        if !self.file.is_open() {
            self.reopen();
        }
        loop {
            self.remove_unwritable(&mut group);
            if group.is_empty() {
                return;
            }
            match self.try_group(&group) {
                Ok(answers) => {
                    self.damaged.written();
                    group
                        .drain(..)
                        .zip(answers)
                        .for_each(|(request, answer)| request.answer(answer));
                }
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

    /// Runs the requests in one transaction and commits it. The answers that it returns are final.
    ///
    /// If redb panics, its state and the transaction are left unfinished. So the file is opened
    /// again, and holds the rows of the last commit. After a panic in a request or in the removal
    /// of expired rows, this function opens the file again. After any other panic, the caller does
    /// so.
    fn try_group(
        &mut self,
        requests: &[WriteRequest],
    ) -> std::result::Result<Vec<Result<Outcome>>, Abort> {
        let progress = TxnProgress::default();
        let page_error = match errors::catch_page_error(|| self.transact(requests, &progress)) {
            Ok(done) => return done,
            Err(page_error) => page_error,
        };
        Err(match progress.step.get() {
            TxnStep::Request(at) => {
                self.reopen();
                let (keyspace, now) = (&requests[at].keyspace, self.clock.now());
                Abort::Spoiled(at, self.damaged.add(keyspace, progress.key(), &page_error, now))
            }
            TxnStep::Expiry => {
                self.reopen();
                Abort::Expiry(FileFailure::damaged(page_error))
            }
            TxnStep::Commit => Abort::Failed(FileFailure::new(
                ErrorKind::OutcomeUnknown,
                format!("the commit failed: {page_error}"),
            )),
            TxnStep::Begin => Abort::Failed(FileFailure::damaged(page_error)),
        })
    }

    fn transact(
        &mut self,
        requests: &[WriteRequest],
        progress: &TxnProgress,
    ) -> std::result::Result<Vec<Result<Outcome>>, Abort> {
        let txn = self.file.begin_write()?;
        let mut group = GroupTransaction::new(&txn, progress);
        let ran = self.run_group(&mut group, requests, progress).and_then(|answers| {
            if !group.has_written() && !requests.is_empty() {
                return Ok((answers, None));
            }
            progress.step.set(TxnStep::Expiry);
            match self.finish(&mut group) {
                Ok(expiries) => Ok((answers, Some(expiries))),
                Err(RequestError::Failed(failure)) if !failure.is_damage() => Err(failure.into()),
                Err(damage) => Err(Abort::Expiry(damage.into())),
            }
        });
        drop(group);
        progress.step.set(TxnStep::Begin);
        match ran {
            Ok((answers, Some(expiries))) => {
                progress.step.set(TxnStep::Commit);
                txn.commit().map_err(|error| FileFailure::outcome_unknown(error.into()))?;
                self.note_durable_write();
                self.note_expiries(expiries);
                Ok(answers)
            }
            // No request wrote anything, for example because every condition failed. There is
            // nothing to commit.
            Ok((answers, None)) => {
                txn.abort().map_err(FileFailure::from)?;
                Ok(answers)
            }
            Err(abort) => {
                txn.abort().map_err(FileFailure::from)?;
                Err(abort)
            }
        }
    }

    fn run_group(
        &self,
        group: &mut GroupTransaction<'_>,
        requests: &[WriteRequest],
        progress: &TxnProgress,
    ) -> std::result::Result<Vec<Result<Outcome>>, Abort> {
        let mut answers = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate() {
            let name = &request.keyspace.name;
            progress.begin(at);
            let ran = match self.keyspaces.get(name) {
                Some((keyspace, _)) => group
                    .open(keyspace)
                    .and_then(|open| open.apply(&request.batch, self.time.now())),
                None => Err(RequestError::Refused(errors::no_keyspace(name))),
            };
            answers.push(match ran {
                Ok(outcome) => Ok(outcome),
                Err(RequestError::Refused(error)) => Err(error),
                Err(RequestError::Spoiled(error)) => return Err(Abort::Spoiled(at, error)),
                Err(RequestError::Failed(failure)) if failure.is_damage() => {
                    let row = request.keyspace.row_name(&progress.key()).to_string();
                    return Err(Abort::Spoiled(at, errors::damaged_row(row, failure)));
                }
                Err(RequestError::Failed(failure)) => return Err(failure.into()),
            });
        }
        Ok(answers)
    }
}

impl From<FileFailure> for Abort {
    fn from(failure: FileFailure) -> Abort {
        Abort::Failed(failure)
    }
}

impl From<RequestError> for FileFailure {
    fn from(fault: RequestError) -> FileFailure {
        match fault {
            RequestError::Failed(failure) => failure,
            RequestError::Refused(error) | RequestError::Spoiled(error) => {
                FileFailure::damaged(error)
            }
        }
    }
}
