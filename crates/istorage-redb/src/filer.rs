//! The one thread that writes the storage file.
//!
//! It takes one table at a time from its [desk](crate::desk), and writes the rows in one durable
//! transaction. Between two tables it removes expired rows. It never waits for the writer.
//!
//! A try that fails leaves the file as it was before, or as it is after the commit. The file is
//! opened again, and tells which: it names its place in the log. The tables in memory still have
//! all rows, so nothing is repeated from the log.

use std::{fmt, sync::Arc, time::Duration};

use base::with_causes;
use clock::Instant;
use redb::WriteTransaction;

use crate::{
    backup::BackupRun,
    desk::{Also, FilerWork, Filing},
    errors::{self, FileFailure},
    file::Contents,
    filing::{self, AtIndex, FilingTransaction},
    layout::Keyspace,
    log::{LogNeed, LogState},
    shared::Shared,
    tables::Tables,
};

/// The largest number of expired rows that one transaction removes, unless it writes more rows:
/// otherwise rows could come faster than they go.
const PURGE: usize = 4_096;

/// The state of the filer's thread.
pub(crate) struct FilerThread {
    shared: Shared,
    tables: Arc<Tables>,
    /// What the file names in the log.
    state: Option<LogState>,
    /// What it names after the filing that is tried.
    next: Option<LogState>,
    /// Whether nobody knows if the file has that filing. The file tells when it is opened again.
    is_unknown: bool,
    /// Why the file could not be opened again, as the node log has it.
    not_opened: Option<String>,
    /// Whether expired rows are removed: not if the index of them is damaged, or the file is only
    /// read.
    keeps_index: bool,
    /// The time of the first failure since the last commit that succeeded. `None` while the file
    /// works.
    failing: Option<Instant>,
}

impl FilerThread {
    pub(crate) fn new(
        shared: Shared,
        tables: Arc<Tables>,
        state: Option<LogState>,
        keeps_index: bool,
    ) -> FilerThread {
        FilerThread {
            shared,
            tables,
            state,
            next: None,
            is_unknown: false,
            not_opened: None,
            keeps_index,
            failing: None,
        }
    }

    /// Works until the desk ends.
    pub(crate) fn run(mut self) {
        while let Some(work) = self.shared.desk.next() {
            match work {
                FilerWork::File(filing) => self.file(filing),
                FilerWork::Check => {
                    self.check();
                    self.shared.desk.checked();
                    if self.failing.is_none() {
                        self.purge();
                    }
                }
                FilerWork::Idle => self.purge(),
            }
        }
    }

    /// Tries once to bring a table into the file.
    fn file(&mut self, filing: Filing) {
        let started = self.shared.clock.now();
        self.next = Some(filing.state);
        let tried = self.try_filing(&filing).or_else(|failure| {
            self.is_unknown |= failure.is_unknown();
            self.recover(&failure);
            match (self.is_unknown, self.state == Some(filing.state)) {
                (true, _) => Err(failure.with_unknown_outcome()),
                (false, true) => Ok(()),
                (false, false) => Err(failure.with_known_outcome()),
            }
        });
        match tried {
            Ok(()) => {
                let took = self.shared.clock.now() - started;
                self.shared.meters.commits.record(took);
                self.note_commit(filing, took);
            }
            Err(failure) => {
                self.shared.meters.failed_commits.increment(1);
                self.shared.desk.failed(filing, failure);
            }
        }
    }

    fn try_filing(&mut self, filing: &Filing) -> Result<(), FileFailure> {
        if !self.shared.file.is_open() {
            self.reopen();
        }
        let at_index = AtIndex::default();
        let tried = errors::catch(|| self.commit(filing, &at_index));
        match tried {
            Err(failure) if failure.is_damage() && at_index.has_failed() && self.keeps_index => {
                self.give_up_index(&failure);
                errors::catch(|| self.commit(filing, &at_index))
            }
            tried => tried,
        }
    }

    fn commit(&mut self, filing: &Filing, at_index: &AtIndex) -> Result<(), FileFailure> {
        let txn = self.shared.file.begin_write()?;
        let index = self.keeps_index.then_some(at_index);
        let rows = FilingTransaction { txn: &txn, index };
        rows.write(&filing.rows)?;
        if self.keeps_index {
            self.remove_expired(&rows, self.due(at_index)?, PURGE.max(filing.rows.len()))?;
        }
        if let Also::Change(change) = &filing.also {
            rows.change(change)?;
        }
        self.end(txn, filing.state)?;
        // A file that lost its name meanwhile may be replaced by one without these rows.
        self.shared.file.check_in_place().map_err(FileFailure::with_unknown_outcome)
    }

    /// The keyspaces of the file with rows that have expired.
    fn due(&self, at_index: &AtIndex) -> Result<Vec<Keyspace>, FileFailure> {
        let snapshot = self.shared.file.begin_read()?;
        at_index.work(|| filing::due(&snapshot, self.shared.time.now()))
    }

    fn remove_expired(
        &self,
        rows: &FilingTransaction<'_>,
        due: Vec<Keyspace>,
        mut most: usize,
    ) -> Result<(), FileFailure> {
        for keyspace in due {
            most -= rows.purge(&keyspace, self.shared.time.now(), most)?;
        }
        Ok(())
    }

    fn end(&mut self, txn: WriteTransaction, state: LogState) -> Result<(), FileFailure> {
        self.shared.file.check_in_place()?;
        // redb may meet a damaged page after the commit is on the disk.
        errors::catch(|| filing::commit(txn, state, self.shared.time.now()))
            .map_err(FileFailure::with_unknown_outcome)?;
        self.state = Some(state);
        Ok(())
    }

    /// Notes that a commit is in the file.
    fn note_success(&mut self) {
        if let Some(since) = self.failing.take() {
            let failed_for = self.shared.clock.now() - since;
            let file = self.shared.file.path().display();
            tracing::warn!(%file, ?failed_for, "the storage file works again: a write succeeded");
        }
    }

    /// Notes that the file has a filing.
    fn note_commit(&mut self, filing: Filing, took: Duration) {
        self.is_unknown = false;
        self.note_success();
        if let Also::Backup(reply) = filing.also {
            drop(reply.send(BackupRun::begin(&self.shared.file, self.shared.time.now())));
        }
        // Freeing the rows takes long, so they are kept until the writer may go on. Reads that are
        // under way at the close use them: the file then names no later segment, so a snapshot does
        // not tell whether it has the rows.
        let is_closing = filing.state.need == LogNeed::Closed;
        let filed = if is_closing { None } else { self.tables.unlink() };
        self.shared.desk.done(took);
        drop((filed, filing.rows));
    }

    /// Removes expired rows in transactions of their own, until none is left or a filing waits.
    /// After a failure the rest waits for the next pause: on a full disk each try would fail, too.
    fn purge(&mut self) {
        while self.keeps_index && self.shared.file.is_open() && !self.shared.desk.has_work() {
            let at_index = AtIndex::default();
            match errors::catch(|| self.purge_once(&at_index)) {
                Ok(true) => self.note_success(),
                Ok(false) => return,
                Err(failure) if failure.is_damage() && at_index.has_failed() => {
                    self.give_up_index(&failure);
                }
                Err(failure) => return self.recover(&failure),
            }
        }
    }

    /// Returns whether there was a row to remove.
    fn purge_once(&mut self, at_index: &AtIndex) -> Result<bool, FileFailure> {
        let (Some(state), due) = (self.state, self.due(at_index)?) else { return Ok(false) };
        if due.is_empty() {
            return Ok(false);
        }
        let txn = self.shared.file.begin_write()?;
        let rows = FilingTransaction { txn: &txn, index: Some(at_index) };
        self.remove_expired(&rows, due, PURGE)?;
        self.end(txn, state)?;
        Ok(true)
    }

    /// Stops removing expired rows. Readers do not see expired rows, whether the file has them or
    /// not.
    fn give_up_index(&mut self, failure: &FileFailure) {
        let file = self.shared.file.path().display();
        tracing::error!(%file, error = %failure, "expired rows are no longer removed from the storage file");
        self.keeps_index = false;
        self.reopen_if_in_place();
    }

    /// Opens the file again if a transaction cannot begin.
    fn check(&mut self) {
        let checked = errors::catch(|| Ok(self.shared.file.begin_write()?.abort()?));
        if let Err(failure) = checked {
            self.recover(&failure);
        }
    }

    /// Opens the file again after a failure. The node log gets one line when the file begins to
    /// fail, and one when a commit succeeds again.
    fn recover(&mut self, failure: &FileFailure) {
        if self.shared.file.has_failed_sync() {
            return self.fail_driver(failure);
        }
        if self.failing.is_none() {
            self.failing = Some(self.shared.clock.now());
            let file = self.shared.file.path().display();
            tracing::error!(%file, error = %failure, "the storage file failed; it is opened again");
        }
        self.reopen_if_in_place();
    }

    /// Opens the file again, unless it has lost its name: such a file must stay open, because after
    /// closing nobody could bring it back.
    fn reopen_if_in_place(&mut self) {
        if !self.shared.file.is_missing() {
            self.reopen();
        }
    }

    fn reopen(&mut self) {
        // Another file may be under the name by now, or another state of this one. The tables in
        // memory have what the file lacks only if it is as this filer left it.
        let is_known = |contents: &Contents| {
            contents.log == self.state || self.next.is_some() && contents.log == self.next
        };
        match self.shared.file.reopen(is_known) {
            Ok(contents) => {
                (self.state, self.is_unknown, self.not_opened) = (contents.log, false, None);
            }
            Err(error) if self.shared.file.has_failed_sync() => self.fail_driver(&error),
            Err(error) => {
                let error = with_causes(&error);
                if self.not_opened.as_ref() != Some(&error) {
                    let file = self.shared.file.path().display();
                    tracing::error!(%file, error, "the storage file cannot be opened again; it is tried again");
                    self.not_opened = Some(error);
                }
            }
        }
    }

    /// Ends the driver after a failed sync. The reason is reported and logged once.
    fn fail_driver(&self, error: &dyn fmt::Display) {
        self.shared.file.give_up(&self.shared.failed, error);
    }
}
