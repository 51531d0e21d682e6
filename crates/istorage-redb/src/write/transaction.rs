//! The transaction of a group of requests.

use istorage::{ErrorKind, Outcome, Result};
use redb::WriteTransaction;

use super::WriterThread;
use crate::{
    errors::{self, FileFailure},
    group::GroupTransaction,
    log::Effects,
    progress::{TxnProgress, TxnStep},
    request::{Abort, RequestError, WriteRequest},
};

impl WriterThread {
    /// Runs the requests in one transaction, commits it, and answers the requests. If the
    /// transaction is given up, the requests stay in the group, without an answer. If it is durable
    /// and redb fails to commit it, the group is empty and the error is [`Abort::Failed`].
    ///
    /// If redb panics, its state and the transaction are left unfinished. So the file is opened
    /// again, and holds the rows of the last commit. After a panic in a request or in the removal
    /// of expired rows, this function opens the file again. After any other panic, the caller does
    /// so.
    pub(super) fn try_group(
        &mut self,
        requests: &mut Vec<WriteRequest>,
    ) -> std::result::Result<(), Abort> {
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
        requests: &mut Vec<WriteRequest>,
        progress: &TxnProgress,
    ) -> std::result::Result<(), Abort> {
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
                self.commit(txn, effects, || answer_all(requests, answers))?;
                self.note_durable_write();
                self.note_expiries(expiries);
                Ok(())
            }
            // No request wrote anything, for example because every condition failed. There is
            // nothing to commit.
            Ok((answers, None)) => {
                txn.abort().map_err(FileFailure::from)?;
                answer_all(requests, answers);
                Ok(())
            }
            Err(abort) => {
                txn.abort().map_err(FileFailure::from)?;
                Err(abort)
            }
        }
    }

    /// Makes a transaction durable, answers its requests, and lets snapshots show it.
    ///
    /// The requests are answered as soon as the log has their effects: nothing that fails later
    /// takes them back. Snapshots wait from the first answer until redb has the effects, so they
    /// show every write that was answered before they began. Without this wait, a caller reads
    /// after its own write, and gets a snapshot that is older than the write.
    ///
    /// If redb then fails to commit, the open file lacks answered writes, and takes no calls until
    /// it is opened again. A simpler version leaves the file open while it has no name. An operator
    /// moves the file away and back, and the commit fails meanwhile; the next group begins a
    /// segment, and its durable commit names a place after the frame of the answered writes. So
    /// these writes would be lost.
    fn commit(
        &mut self,
        txn: WriteTransaction,
        effects: Effects,
        answer: impl FnOnce(),
    ) -> std::result::Result<(), FileFailure> {
        let Some(log) = &mut self.log else { return Err(self.file.not_open()) };
        let started = self.clock.now();
        match log.make_durable(txn, effects)? {
            Some(txn) => {
                let mut lacks_answered = self.file.hold_snapshots();
                *lacks_answered = true;
                answer();
                log.commit_logged(txn)?;
                *lacks_answered = false;
                Ok(())
            }
            None => {
                self.durable_commits.record(self.clock.now() - started);
                answer();
                Ok(())
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

fn answer_all(requests: &mut Vec<WriteRequest>, answers: Vec<Result<Outcome>>) {
    requests.drain(..).zip(answers).for_each(|(request, answer)| request.answer(answer));
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
