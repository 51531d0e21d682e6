//! The writer's own work besides the writes of callers: keyspaces, expired rows, and opening the
//! file again after a failure.

use std::{fmt, sync::Arc};

use base::with_causes;
use istorage::{KeyspaceName, Result};
use redb::{TableError, WriteTransaction};

use super::WriterThread;
use crate::{
    errors::{self, FileFailure},
    file::Contents,
    group::{self, GroupTransaction},
    layout::Keyspace,
    log::WriteLog,
    request::{Abort, RequestResult},
    time::Moment,
};

/// The largest number of expired rows that one transaction removes.
const PURGE: usize = 256;

impl WriterThread {
    /// Removes a portion of the expired rows. Writes the time into the file if the transaction
    /// touched rows that expire.
    pub(super) fn finish(
        &self,
        group: &mut GroupTransaction<'_>,
    ) -> RequestResult<Vec<(KeyspaceName, Option<Moment>)>> {
        let now = self.time.now();
        if self.keeps_expired {
            group.write_time(now)?;
            return Ok(Vec::new());
        }
        let mut portion = PURGE;
        for keyspace in self.keyspaces_to_purge(now) {
            portion -= group.open(keyspace)?.purge(now, portion)?;
        }
        let expiries = group.next_expiries()?;
        if !expiries.is_empty() {
            group.write_time(now)?;
        }
        Ok(expiries)
    }

    /// The keyspaces with rows that have expired.
    fn keyspaces_to_purge(&self, now: Moment) -> impl Iterator<Item = &Arc<Keyspace>> {
        let keyspaces = self.keyspaces.values();
        keyspaces
            .filter(move |(_, next)| next.is_some_and(|at| at <= now))
            .map(|(keyspace, _)| keyspace)
    }

    /// Removes a portion of the expired rows in a transaction of its own. Returns `false` if
    /// nothing has expired, or if nothing can be removed now.
    pub(super) fn purge_in_own_transaction(&mut self) -> bool {
        let is_due = self.keyspaces_to_purge(self.time.now()).next().is_some();
        if !is_due || self.keeps_expired || self.failing.is_some() {
            return false;
        }
        match self.try_group(&mut Vec::new()) {
            Ok(()) => return true,
            Err(Abort::Failed(failure)) => self.recover(&failure),
            Err(Abort::Expiry(failure)) => self.keep_expired(&failure),
            Err(Abort::Spoiled(..)) => {}
        }
        false
    }

    /// Stops removing expired rows. Readers do not see expired rows, whether the file holds them or
    /// not.
    pub(super) fn keep_expired(&mut self, failure: &FileFailure) {
        let file = self.file.path().display();
        tracing::error!(%file, error = %failure, "expired rows are no longer removed from the storage file");
        self.keeps_expired = true;
    }

    pub(super) fn note_expiries(&mut self, expiries: Vec<(KeyspaceName, Option<Moment>)>) {
        for (name, next) in expiries {
            if let Some((_, first)) = self.keyspaces.get_mut(&name) {
                *first = next;
            }
        }
    }

    pub(super) fn create(&mut self, keyspace: Arc<Keyspace>) -> Result<()> {
        if self.keyspaces.contains_key(&keyspace.name) {
            return Ok(());
        }
        self.in_own_transaction(|txn| {
            txn.open_table(keyspace.rows())?;
            txn.open_table(keyspace.expiry())?;
            Ok(())
        })?;
        self.keyspaces.insert(keyspace.name.clone(), (keyspace, None));
        Ok(())
    }

    pub(super) fn drop_keyspace(&mut self, keyspace: &Keyspace) -> Result<()> {
        if !self.keyspaces.contains_key(&keyspace.name) {
            return Ok(());
        }
        self.in_own_transaction(|txn| {
            txn.delete_table(keyspace.rows())?;
            txn.delete_table(keyspace.expiry())?;
            Ok(())
        })?;
        self.keyspaces.remove(&keyspace.name);
        self.damaged.forget(keyspace);
        Ok(())
    }

    /// Makes one change in a transaction of its own, and commits it durably.
    fn in_own_transaction(
        &mut self,
        change: impl FnOnce(&WriteTransaction) -> std::result::Result<(), TableError>,
    ) -> Result<()> {
        if !self.file.is_open() {
            self.reopen();
        }
        let done = errors::catch_page_error(|| {
            let txn = self.file.begin_write()?;
            change(&txn)?;
            let Some(log) = &mut self.log else { return Err(self.file.not_open()) };
            let started = self.clock.now();
            log.commit_durably(txn)?;
            self.durable_commits.record(self.clock.now() - started);
            Ok(())
        });
        match done.unwrap_or_else(|page_error| Err(FileFailure::damaged(page_error))) {
            Ok(()) => {
                self.note_durable_write();
                Ok(())
            }
            Err(failure) => {
                self.recover(&failure);
                Err(failure.into())
            }
        }
    }

    /// Commits durably before the file is closed, so that the file needs no log.
    ///
    /// If the file still has rows that expire, the commit has the time. Otherwise the time would go
    /// back to that of the last write of such a row, and the rows would live longer.
    pub(super) fn close_in_order(&mut self) {
        let (now, has_expiring) =
            (self.time.now(), self.keyspaces.values().any(|(_, next)| next.is_some()));
        let Ok(txn) = self.file.begin_write() else { return };
        let Some(log) = self.log.take() else { return };
        let closed = errors::catch_page_error(|| {
            if has_expiring {
                group::write_time(&txn, now)?;
            }
            log.close(txn)
        });
        let closed = closed.unwrap_or_else(|page_error| Err(FileFailure::damaged(page_error)));
        if let Err(error) = closed {
            tracing::warn!(file = %self.file.path().display(), %error, "storage file closed without a last commit: the next opening replays its log");
        }
    }

    /// Opens the file again if a write transaction cannot begin.
    pub(super) fn check_file(&mut self) {
        let checked = errors::catch_page_error(|| Ok(self.file.begin_write()?.abort()?));
        let checked = checked.unwrap_or_else(|page_error| Err(FileFailure::damaged(page_error)));
        if let Err(failure) = checked {
            self.recover(&failure);
        }
    }

    /// Notes that a write is on the disk. Logs the end of a failure.
    pub(super) fn note_durable_write(&mut self) {
        if let Some(since) = self.failing.take() {
            let failed_for = self.clock.now() - since;
            let file = self.file.path().display();
            tracing::warn!(%file, ?failed_for, "the storage file works again: a write succeeded");
        }
    }

    /// Opens the file again after a failure. The node log gets one line when the file begins to
    /// fail, and one when a write succeeds again. [`Self::reopen`] and [`Self::fail_driver`] log
    /// lines of their own.
    pub(super) fn recover(&mut self, failure: &FileFailure) {
        if self.file.has_failed_sync() {
            self.fail_driver(failure);
        } else if self.failing.is_none() {
            self.failing = Some(self.clock.now());
            let file = self.file.path().display();
            tracing::error!(%file, error = %failure, "the storage file failed; each write opens it again");
        }
        // A file that has lost its name must stay open: after closing, nobody could bring the file
        // back.
        let is_log_missing = self.log.as_ref().is_some_and(|log| !log.is_in_place());
        if !self.file.is_missing() && !is_log_missing {
            self.reopen();
        }
    }

    pub(super) fn reopen(&mut self) {
        let was_open = self.file.is_open();
        self.log = None;
        match self.file.reopen() {
            Ok((contents, log)) => self.adopt(contents, log),
            Err(error) if self.file.has_failed_sync() => self.fail_driver(&error),
            Err(error) if was_open => {
                let file = self.file.path().display();
                tracing::error!(%file, error = with_causes(&error), "the storage file cannot be opened again; each write tries to open it");
            }
            Err(_) => {}
        }
    }

    /// Ends the driver after a failed sync. The reason is reported and logged once.
    fn fail_driver(&self, error: &dyn fmt::Display) {
        if self.failed.borrow().is_none() {
            let file = self.file.path();
            tracing::error!(file = %file.display(), %error, "a sync of the storage file or of its log failed: the node must be restarted");
            self.failed.send_replace(Some(FileFailure::failed_sync(file)));
        }
    }

    /// Takes over the time and the keyspaces that the file holds.
    pub(super) fn adopt(&mut self, contents: Contents, log: Option<WriteLog>) {
        self.log = log;
        if let Some(seen) = contents.time {
            self.time.raise(seen);
        }
        let known =
            |(name, next): (KeyspaceName, _)| (name.clone(), (Arc::new(Keyspace::new(name)), next));
        self.keyspaces = contents.keyspaces.into_iter().map(known).collect();
    }
}
