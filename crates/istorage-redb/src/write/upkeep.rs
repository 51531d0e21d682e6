//! What the writer does besides the callers' writes: keyspaces, expired rows, and the file after a failure.

use std::{fmt, sync::Arc};

use istorage::{KeyspaceName, Result};
use redb::{TableError, WriteTransaction};

use super::{Abort, Writer};
use crate::{
    errors::{self, Failure},
    file::Contents,
    group::{self, Group, Step},
    layout::Keyspace,
    time::Moment,
};

/// How many expired rows a transaction removes at most.
const PURGE: usize = 256;

impl Writer {
    /// Removes a portion of what has expired and remembers the time, if the transaction writes at all.
    pub(super) fn finish(
        &self,
        group: &mut Group<'_>,
    ) -> Step<Vec<(KeyspaceName, Option<Moment>)>> {
        let now = self.time.now();
        if self.keeps_expired {
            group.remember(now)?;
            return Ok(Vec::new());
        }
        let mut portion = PURGE;
        for keyspace in self.due(now) {
            portion -= group.open(keyspace)?.purge(now, portion)?;
        }
        let expiries = group.next_expiries()?;
        if !expiries.is_empty() {
            group.remember(now)?;
        }
        Ok(expiries)
    }

    /// The keyspaces with rows that have expired.
    fn due(&self, now: Moment) -> impl Iterator<Item = &Arc<Keyspace>> {
        let keyspaces = self.keyspaces.values();
        keyspaces
            .filter(move |(_, next)| next.is_some_and(|at| at <= now))
            .map(|(keyspace, _)| keyspace)
    }

    /// Removes a portion of what has expired; `false` if there was nothing.
    pub(super) fn purge_alone(&mut self) -> bool {
        let is_due = self.due(self.time.now()).next().is_some();
        if !is_due || self.keeps_expired || self.failing.is_some() {
            return false;
        }
        match self.attempt(&[]) {
            Ok(_) => return true,
            Err(Abort::Failed(failure)) => self.recover(&failure),
            Err(Abort::Expiry(failure)) => self.keep_expired(&failure),
            Err(Abort::Spoiled(..)) => {}
        }
        false
    }

    /// Rows that have expired are not served, whether they are in the file or not.
    pub(super) fn keep_expired(&mut self, failure: &Failure) {
        let file = self.file.path().display();
        tracing::error!(%file, cause = %failure, "expired rows are no longer removed from the storage file");
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
        self.alone(|txn| {
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
        self.alone(|txn| {
            txn.delete_table(keyspace.rows())?;
            txn.delete_table(keyspace.expiry())?;
            Ok(())
        })?;
        self.keyspaces.remove(&keyspace.name);
        self.damaged.forget(keyspace);
        Ok(())
    }

    /// One change in a transaction of its own.
    fn alone(
        &mut self,
        change: impl FnOnce(&WriteTransaction) -> std::result::Result<(), TableError>,
    ) -> Result<()> {
        if !self.file.is_open() {
            self.reopen();
        }
        let done = errors::caught(|| {
            let txn = self.file.begin_write()?;
            change(&txn)?;
            txn.commit().map_err(|error| Failure::outcome_unknown(error.into()))
        });
        match done.unwrap_or_else(|unwound| Err(Failure::damaged(unwound))) {
            Ok(()) => {
                self.wrote();
                Ok(())
            }
            Err(failure) => {
                self.recover(&failure);
                Err(failure.into())
            }
        }
    }

    /// The rows that are still there must not live longer because the calendar steps back while the file is closed.
    pub(super) fn remember_time(&mut self) {
        let now = self.time.now();
        if self.keyspaces.values().all(|(_, next)| next.is_none()) {
            return;
        }
        if let Err(error) = self.alone(|txn| group::remember(txn, now)) {
            tracing::warn!(file = %self.file.path().display(), %error, "the time of closing was not written");
        }
    }

    /// Opens the file again if it has failed.
    pub(super) fn check(&mut self) {
        let checked = errors::caught(|| Ok(self.file.begin_write()?.abort()?));
        let checked = checked.unwrap_or_else(|unwound| Err(Failure::damaged(unwound)));
        if let Err(failure) = checked {
            self.recover(&failure);
        }
    }

    /// A write is on the disk.
    pub(super) fn wrote(&mut self) {
        if let Some(since) = self.failing.take() {
            let failed_for = self.clock.now() - since;
            let file = self.file.path().display();
            tracing::warn!(%file, ?failed_for, "the storage file works again: a write succeeded");
        }
    }

    /// Opens the file again. The log has one line when it begins to fail, and one when a write succeeds again.
    pub(super) fn recover(&mut self, failure: &Failure) {
        if self.file.is_lost() {
            self.end(failure);
        } else if self.failing.is_none() {
            self.failing = Some(self.clock.now());
            let file = self.file.path().display();
            tracing::error!(%file, cause = %failure, "the storage file failed; every write tries it again");
        }
        // If it is closed while it has no name, nobody can bring it back any more.
        if !self.file.is_away() {
            self.reopen();
        }
    }

    pub(super) fn reopen(&mut self) {
        let was_open = self.file.is_open();
        match self.file.reopen() {
            Ok(contents) => self.adopt(contents),
            Err(error) if self.file.is_lost() => self.end(&error),
            Err(error) if was_open => {
                let file = self.file.path().display();
                tracing::error!(%file, ?error, "the storage file cannot be opened again; every write tries it");
            }
            Err(_) => {}
        }
    }

    /// A sync failed: the driver cannot go on, and says so once.
    fn end(&self, cause: &dyn fmt::Display) {
        if self.failed.borrow().is_none() {
            let file = self.file.path();
            tracing::error!(file = %file.display(), %cause, "a sync of the storage file failed: the node must be restarted");
            self.failed.send_replace(Some(Failure::lost(file)));
        }
    }

    /// Starts from what the file holds.
    pub(super) fn adopt(&mut self, contents: Contents) {
        if let Some(seen) = contents.time {
            self.time.raise(seen);
        }
        let known =
            |(name, next): (KeyspaceName, _)| (name.clone(), (Arc::new(Keyspace::new(name)), next));
        self.keyspaces = contents.keyspaces.into_iter().map(known).collect();
    }
}
