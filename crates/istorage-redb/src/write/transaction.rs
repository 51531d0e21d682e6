//! The transaction of a group of requests.

use istorage::{Error, ErrorKind, Outcome, Result};
use redb::WriteTransaction;

use super::WriterThread;
use crate::{
    errors::{self, FileFailure},
    group::GroupTransaction,
    log::{Committed, Effects},
    progress::{TxnProgress, TxnStep},
    request::{RequestError, WriteRequest},
};

/// The reason why a transaction was given up.
pub(super) enum Abort {
    /// The request with this index cannot be written, and nothing of it may be written. The other
    /// requests run again without it.
    Spoiled(usize, Error),
    /// Expired rows cannot be removed. The requests can be written without removing them.
    Expiry(FileFailure),
    /// The file failed.
    Failed(FileFailure),
}

impl WriterThread {
    /// Runs the requests in one transaction and commits it. The answers that it returns are final.
    ///
    /// If redb panics, its state and the transaction are left unfinished. So the file is opened
    /// again, and holds the rows of the last commit. After a panic in a request or in the removal
    /// of expired rows, this function opens the file again. After any other panic, the caller does
    /// so.
    pub(super) fn try_group(
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
        let effects = Effects::default();
        let mut group = GroupTransaction::new(&txn, progress, &effects);
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
                self.commit(txn, effects)?;
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

    /// Makes a transaction durable: by a frame of the log, or together with all transactions
    /// before it that only the log has.
    fn commit(
        &mut self,
        txn: WriteTransaction,
        effects: Effects,
    ) -> std::result::Result<(), FileFailure> {
        let Some(log) = &mut self.log else { return Err(self.file.not_open()) };
        let started = self.clock.now();
        if log.commit(txn, effects)? == Committed::WithNewSegment {
            self.durable_commits.record(self.clock.now() - started);
        }
        Ok(())
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
