//! What the writer does besides the callers' writes: keyspaces, expired rows, and the file after a failure.

use std::{mem, sync::Arc};

use istorage::{KeyspaceName, Result};
use redb::{TableError, WriteTransaction};

use super::{Abort, Writer};
use crate::{
    errors::Failure,
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
        if self.due(self.time.now()).next().is_none() || !self.file.is_open() {
            return false;
        }
        match self.attempt(&[]) {
            Ok(_) => true,
            Err(Abort::Failed(failure)) => {
                self.recover(&failure);
                false
            }
            Err(Abort::Spoiled(..)) => false,
        }
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
        let done = self.begin().and_then(|txn| {
            change(&txn)?;
            txn.commit().map_err(|error| Failure::outcome_unknown(error.into()))
        });
        done.map_err(|failure| {
            self.recover(&failure);
            failure.into()
        })
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
        if let Err(failure) = self.begin().and_then(|txn| Ok(txn.abort()?)) {
            self.recover(&failure);
        }
    }

    pub(super) fn begin(&mut self) -> std::result::Result<WriteTransaction, Failure> {
        let txn = self.file.begin_write()?;
        if mem::take(&mut self.is_away) {
            tracing::warn!(file = %self.file.path().display(), "the storage file is back");
        }
        Ok(txn)
    }

    pub(super) fn recover(&mut self, failure: &Failure) {
        // If it is closed nobody can bring it back any more.
        if self.file.is_away() {
            if !mem::replace(&mut self.is_away, true) {
                tracing::error!(cause = %failure, "nothing can be written");
            }
            return;
        }
        // It says so once, not for every attempt.
        if self.file.is_open() {
            let file = self.file.path().display();
            tracing::error!(%file, cause = %failure, "the storage file failed; opening it again");
        }
        self.reopen();
    }

    pub(super) fn reopen(&mut self) {
        let was_open = self.file.is_open();
        let file = self.file.path().display().to_string();
        match self.file.reopen() {
            Ok(contents) => {
                self.adopt(contents);
                tracing::warn!(file, "the storage file works again");
            }
            Err(error) if was_open => {
                tracing::error!(
                    file,
                    ?error,
                    "the storage file cannot be opened again; every call tries"
                );
            }
            Err(_) => {}
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
