//! The one thread that writes the storage file.
//!
//! It takes one table at a time from its [desk](crate::desk), and writes the rows in one durable
//! transaction. Between two tables it removes expired rows. It never waits for the writer.
//!
//! A try that fails leaves the file as it was before, or as it is after the commit. The file is
//! opened again, and tells which: it names its place in the log. The tables in memory still have
//! all rows, so nothing is repeated from the log.

use std::{cell::Cell, collections::HashMap, fmt, sync::Arc, time::Duration};

use async_channel::WeakSender;
use base::with_causes;
use clock::{Clock, Instant};
use istorage::KeyspaceName;
use metrics::Histogram;
use redb::WriteTransaction;
use tokio::sync::watch;

use crate::{
    backup::BackupRun,
    desk::{Also, Desk, FilerWork, Filing},
    errors::{self, FileFailure},
    file::{Contents, StorageFile},
    filing::{self, FilingOptions, FilingTransaction},
    layout::Keyspace,
    log::LogState,
    request::WriteJob,
    time::{Moment, SteadyTime},
};

/// How long the filer rests after a try that failed, and between two looks for expired rows.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest number of expired rows that one transaction removes.
const PURGE: usize = 4_096;

/// The state of the filer's thread.
#[derive(Debug)]
pub(crate) struct FilerThread {
    pub(crate) file: Arc<StorageFile>,
    pub(crate) desk: Arc<Desk>,
    /// Wakes the writer when a filing is done.
    pub(crate) writer: WeakSender<WriteJob>,
    pub(crate) clock: Clock,
    pub(crate) time: Arc<SteadyTime>,
    /// Set when the driver cannot go on.
    pub(crate) failed: Arc<watch::Sender<Option<FileFailure>>>,
    /// What the file names in the log.
    pub(crate) state: Option<LogState>,
    /// Every keyspace, and when its first row expires.
    pub(crate) keyspaces: HashMap<KeyspaceName, Option<Moment>>,
    /// Whether expired rows are removed: not if the index of them is damaged, or the file is only
    /// read.
    pub(crate) keeps_index: bool,
    /// The time of the first failure since the last commit that succeeded. `None` while the file
    /// works.
    pub(crate) failing: Option<Instant>,
    pub(crate) commits: Histogram,
}

impl FilerThread {
    /// Works until the desk ends.
    pub(crate) fn run(mut self) {
        while let Some(work) = self.desk.next(PAUSE) {
            match work {
                FilerWork::File(filing) => self.file(filing),
                FilerWork::Check => {
                    self.check();
                    self.desk.checked();
                }
                FilerWork::Idle => self.purge(),
            }
        }
    }

    /// Tries once to bring a table into the file.
    fn file(&mut self, filing: Filing) {
        let started = self.clock.now();
        let tried = self.try_filing(&filing).or_else(|failure| {
            self.recover(&failure);
            // The file tells whether it has the commit.
            match self.state == Some(filing.state) {
                true => Ok(()),
                false if self.file.is_open() => Err(failure.with_known_outcome()),
                false => Err(failure),
            }
        });
        let failure = match tried {
            Ok(()) => {
                self.commits.record(self.clock.now() - started);
                return self.note_commit(filing);
            }
            Err(failure) => failure,
        };
        self.desk.tried(Some(filing), Some(failure));
    }

    fn try_filing(&mut self, filing: &Filing) -> Result<(), FileFailure> {
        if !self.file.is_open() {
            self.reopen();
            if self.state == Some(filing.state) {
                return Ok(());
            }
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
        let txn = self.file.begin_write()?;
        let keeps_index = self.keeps_index;
        let rows = FilingTransaction::new(&txn, &FilingOptions { is_at_index, keeps_index });
        rows.write(&filing.rows)?;
        let changed = filing.rows.keyspaces().map(|(name, _)| Keyspace::new(name.clone()));
        let next = self.purge_in(&rows, changed.collect())?;
        match &filing.also {
            Also::Make(keyspace) => rows.make_keyspace(keyspace)?,
            Also::Drop(keyspace) => rows.drop_keyspace(keyspace)?,
            Also::Nothing | Also::Backup { .. } => {}
        }
        self.end(txn, filing.state, next)
    }

    /// Removes expired rows. Returns when the first row of each changed keyspace expires.
    fn purge_in(
        &self,
        rows: &FilingTransaction<'_>,
        mut changed: Vec<Keyspace>,
    ) -> Result<Vec<(KeyspaceName, Option<Moment>)>, FileFailure> {
        if !self.keeps_index {
            return Ok(Vec::new());
        }
        let (now, mut portion) = (self.time.now(), PURGE);
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
        filing::commit(txn, state, self.time.now())?;
        self.state = Some(state);
        self.keyspaces.extend(next);
        Ok(())
    }

    /// Notes that the file has a filing.
    fn note_commit(&mut self, filing: Filing) {
        if let Some(since) = self.failing.take() {
            let failed_for = self.clock.now() - since;
            let file = self.file.path().display();
            tracing::warn!(%file, ?failed_for, "the storage file works again: a write succeeded");
        }
        match filing.also {
            Also::Make(keyspace) => drop(self.keyspaces.insert(keyspace.name.clone(), None)),
            Also::Drop(keyspace) => drop(self.keyspaces.remove(&keyspace.name)),
            Also::Backup { now, reply } => drop(reply.send(BackupRun::begin(&self.file, now))),
            Also::Nothing => {}
        }
        self.desk.tried(None, None);
        if let Some(writer) = self.writer.upgrade() {
            // If the queue is full, the writer is awake.
            let _ = writer.try_send(WriteJob::Filed);
        }
    }

    /// Removes expired rows in a transaction of its own, if there are any.
    fn purge(&mut self) {
        let (Some(state), true) = (self.state, self.keeps_index) else { return };
        if self.failing.is_some() || self.due(self.time.now()).next().is_none() {
            return;
        }
        let is_at_index = Cell::new(false);
        let purged = self.catch(|filer| {
            let txn = filer.file.begin_write()?;
            let options = FilingOptions { is_at_index: &is_at_index, keeps_index: true };
            let rows = FilingTransaction::new(&txn, &options);
            let next = filer.purge_in(&rows, Vec::new())?;
            filer.end(txn, state, next)
        });
        match purged {
            Ok(()) => {}
            Err(failure) if failure.is_damage() && is_at_index.get() => {
                self.give_up_index(&failure);
            }
            Err(failure) => self.recover(&failure),
        }
    }

    /// Stops removing expired rows. Readers do not see expired rows, whether the file has them or
    /// not.
    fn give_up_index(&mut self, failure: &FileFailure) {
        let file = self.file.path().display();
        tracing::error!(%file, error = %failure, "expired rows are no longer removed from the storage file");
        self.keeps_index = false;
        self.reopen();
    }

    /// Opens the file again if a transaction cannot begin.
    fn check(&mut self) {
        let checked = self.catch(|filer| Ok(filer.file.begin_write()?.abort()?));
        if let Err(failure) = checked {
            self.recover(&failure);
        }
    }

    /// Opens the file again after a failure. The node log gets one line when the file begins to
    /// fail, and one when a commit succeeds again.
    fn recover(&mut self, failure: &FileFailure) {
        if self.file.has_failed_sync() {
            return self.fail_driver(failure);
        }
        if self.failing.is_none() {
            self.failing = Some(self.clock.now());
            let file = self.file.path().display();
            tracing::error!(%file, error = %failure, "the storage file failed; it is opened again");
        }
        // A file that has lost its name must stay open: after closing, nobody could bring the file
        // back.
        if !self.file.is_missing() {
            self.reopen();
        }
    }

    fn reopen(&mut self) {
        let was_open = self.file.is_open();
        match self.file.reopen() {
            Ok(contents) => self.adopt(contents),
            Err(error) if self.file.has_failed_sync() => self.fail_driver(&error),
            Err(error) if was_open => {
                let file = self.file.path().display();
                tracing::error!(%file, error = with_causes(&error), "the storage file cannot be opened again; it is tried again");
            }
            Err(_) => {}
        }
    }

    fn adopt(&mut self, contents: Contents) {
        self.state = contents.log;
        self.keyspaces = contents.keyspaces;
    }

    /// Ends the driver after a failed sync. The reason is reported and logged once.
    fn fail_driver(&self, error: &dyn fmt::Display) {
        self.file.give_up(&self.failed, error);
    }
}
