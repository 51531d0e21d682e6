//! The one thread that writes the storage file.
//!
//! It takes one table at a time from its [desk](crate::desk), and writes the rows in one durable
//! transaction. Between two tables it removes expired rows. It never waits for the writer.
//!
//! A try that fails leaves the file as it was before, or as it is after the commit. The file is
//! opened again, and tells which: it names its place in the log. The tables in memory still have
//! all rows, so nothing is repeated from the log.

use std::{cell::Cell, collections::HashMap, fmt, sync::Arc, time::Duration};

use base::with_causes;
use clock::Instant;
use istorage::KeyspaceName;
use redb::WriteTransaction;

use crate::{
    backup::BackupRun,
    desk::{Also, FilerWork, Filing},
    errors::{self, FileFailure},
    file::Contents,
    filing::{self, FilingOptions, FilingTransaction},
    layout::{Keyspace, KeyspaceChange},
    log::LogState,
    shared::Shared,
    tables::Tables,
    time::Moment,
};

/// The largest number of expired rows that one transaction removes, unless it writes more rows:
/// otherwise rows could come faster than they go.
const PURGE: usize = 4_096;

/// The state of the filer's thread.
#[derive(Debug)]
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
    /// Every keyspace, and when its first row expires.
    keyspaces: HashMap<KeyspaceName, Option<Moment>>,
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
        contents: Contents,
        keeps_index: bool,
    ) -> FilerThread {
        FilerThread {
            shared,
            tables,
            state: contents.log,
            next: None,
            is_unknown: false,
            not_opened: None,
            keyspaces: contents.keyspaces,
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
                    self.purge();
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
        let is_at_index = Cell::new(false);
        let tried = self.catch(|filer| filer.commit(filing, &is_at_index));
        match tried {
            Err(failure) if failure.is_damage() && is_at_index.get() && self.keeps_index => {
                self.give_up_index(&failure);
                self.catch(|filer| filer.commit(filing, &is_at_index))
            }
            tried => tried,
        }
    }

    /// Runs a part of a transaction. If redb panics, it leaves an unfinished state.
    fn catch(
        &mut self,
        run: impl FnOnce(&mut FilerThread) -> Result<(), FileFailure>,
    ) -> Result<(), FileFailure> {
        errors::catch_page_error(|| run(self))
            .unwrap_or_else(|page_error| Err(FileFailure::damaged(page_error)))
    }

    fn commit(&mut self, filing: &Filing, is_at_index: &Cell<bool>) -> Result<(), FileFailure> {
        let txn = self.shared.file.begin_write()?;
        let keeps_index = self.keeps_index;
        let rows = FilingTransaction::new(&txn, &FilingOptions { is_at_index, keeps_index });
        rows.write(&filing.rows)?;
        let changed = filing.rows.keyspaces().map(|(name, _)| Keyspace::new(name.clone()));
        let portion = PURGE.max(filing.rows.len());
        let next = self.purge_in(&rows, changed.collect(), portion)?;
        if let Also::Change(change) = &filing.also {
            rows.change(change)?;
        }
        self.end(txn, filing.state, next)?;
        // A file that lost its name meanwhile may be replaced by one without these rows.
        self.shared.file.check_in_place().map_err(FileFailure::with_unknown_outcome)
    }

    /// Removes expired rows. Returns when the first row of each changed keyspace expires.
    fn purge_in(
        &self,
        rows: &FilingTransaction<'_>,
        mut changed: Vec<Keyspace>,
        mut portion: usize,
    ) -> Result<Vec<(KeyspaceName, Option<Moment>)>, FileFailure> {
        if !self.keeps_index {
            return Ok(Vec::new());
        }
        let now = self.shared.time.now();
        for name in self.due(now) {
            if changed.iter().all(|keyspace| keyspace.name != *name) {
                changed.push(Keyspace::new(name.clone()));
            }
        }
        let mut next = Vec::new();
        for keyspace in changed {
            portion -= rows.purge(&keyspace, now, portion)?;
            let first = rows.first_expiry(&keyspace)?;
            next.push((keyspace.name, first));
        }
        Ok(next)
    }

    /// The keyspaces with rows that have expired.
    fn due(&self, now: Moment) -> impl Iterator<Item = &KeyspaceName> {
        let keyspaces = self.keyspaces.iter();
        keyspaces
            .filter(move |(_, next)| next.is_some_and(|at| at <= now))
            .map(|(keyspace, _)| keyspace)
    }

    fn end(
        &mut self,
        txn: WriteTransaction,
        state: LogState,
        next: Vec<(KeyspaceName, Option<Moment>)>,
    ) -> Result<(), FileFailure> {
        self.shared.file.check_in_place()?;
        filing::commit(txn, state, self.shared.time.now())?;
        self.state = Some(state);
        self.keyspaces.extend(next);
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
        match filing.also {
            Also::Change(KeyspaceChange::Make(keyspace)) => {
                self.keyspaces.insert(keyspace.name.clone(), None);
            }
            Also::Change(KeyspaceChange::Drop(keyspace)) => {
                self.keyspaces.remove(&keyspace.name);
            }
            Also::Backup(reply) => {
                drop(reply.send(BackupRun::begin(&self.shared.file, self.shared.time.now())));
            }
            Also::Nothing => {}
        }
        // Freeing the rows takes long, so they are kept until the writer may go on.
        let filed = self.tables.unlink();
        self.shared.desk.done(took);
        drop((filed, filing.rows));
    }

    /// Removes expired rows in transactions of their own, until none is left or a filing waits.
    /// After a failure the rest waits for the next pause: on a full disk each try would fail, too.
    fn purge(&mut self) {
        while self.keeps_index
            && self.shared.file.is_open()
            && self.due(self.shared.time.now()).next().is_some()
            && !self.shared.desk.has_work()
        {
            let is_at_index = Cell::new(false);
            match self.purge_once(&is_at_index) {
                Ok(()) => self.note_success(),
                Err(failure) if failure.is_damage() && is_at_index.get() => {
                    self.give_up_index(&failure);
                }
                Err(failure) => return self.recover(&failure),
            }
        }
    }

    fn purge_once(&mut self, is_at_index: &Cell<bool>) -> Result<(), FileFailure> {
        let Some(state) = self.state else { return Ok(()) };
        self.catch(|filer| {
            let txn = filer.shared.file.begin_write()?;
            let options = FilingOptions { is_at_index, keeps_index: true };
            let rows = FilingTransaction::new(&txn, &options);
            let next = filer.purge_in(&rows, Vec::new(), PURGE)?;
            filer.end(txn, state, next)
        })
    }

    /// Stops removing expired rows. Readers do not see expired rows, whether the file has them or
    /// not.
    fn give_up_index(&mut self, failure: &FileFailure) {
        let file = self.shared.file.path().display();
        tracing::error!(%file, error = %failure, "expired rows are no longer removed from the storage file");
        self.keeps_index = false;
        self.reopen();
    }

    /// Opens the file again if a transaction cannot begin.
    fn check(&mut self) {
        let checked = self.catch(|filer| Ok(filer.shared.file.begin_write()?.abort()?));
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
        // A file that has lost its name must stay open: after closing, nobody could bring the file
        // back.
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
                (self.state, self.keyspaces) = (contents.log, contents.keyspaces);
                (self.is_unknown, self.not_opened) = (false, None);
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
