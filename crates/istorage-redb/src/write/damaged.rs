//! Rows that cannot be written, because redb cannot read their page.

use std::{collections::HashMap, time::Duration};

use clock::Instant;
use istorage::{Error, KeyspaceName};

use crate::{
    errors::{self, Unwound},
    group::Request,
    layout::Keyspace,
};

/// How many rows are remembered. Each write of another one opens the file again.
const REMEMBERED: usize = 1_024;

/// How long the remembered rows are refused after a write of one of them failed.
const PAUSE: Duration = Duration::from_secs(10);

/// The rows whose last write failed because redb could not go on.
///
/// After such a failure the file is opened again, which holds up all writes. Therefore writes of these rows are refused
/// without asking redb. The disk may have recovered, so every [`PAUSE`] one request that writes such rows is tried:
/// its rows are forgotten, and the row at which it fails is added again. If it succeeds, the next request is tried at once.
#[derive(Debug, Default)]
pub(super) struct DamagedRows {
    rows: HashMap<(KeyspaceName, Vec<u8>), String>,
    /// From when on a row is tried; `None` is at once.
    next_trial: Option<Instant>,
    is_trying: bool,
}

impl DamagedRows {
    /// Remembers the row, tells the log, and returns the answer to whoever wrote it.
    pub(super) fn add(
        &mut self,
        keyspace: &Keyspace,
        key: Vec<u8>,
        why: &Unwound,
        now: Instant,
    ) -> Error {
        (self.next_trial, self.is_trying) = (Some(now + PAUSE), false);
        if key.is_empty() {
            return errors::damaged_row(keyspace.as_table(), why);
        }
        let row = keyspace.name_of(&key);
        tracing::error!(%row, cause = %why, "a page of the storage file is damaged");
        let answer = errors::damaged_row(row, why);
        if self.rows.len() < REMEMBERED {
            self.rows.insert((keyspace.name.clone(), key), why.to_string());
        }
        answer
    }

    /// The answer to a request that writes one of the rows, unless the row is tried.
    pub(super) fn refuse(&mut self, request: &Request, now: Instant) -> Option<Error> {
        if self.rows.is_empty() {
            return None;
        }
        let keyspace = &request.keyspace;
        let named = request.keys().map(|key| (keyspace.name.clone(), key));
        let damaged: Vec<_> = named.filter(|row| self.rows.contains_key(row)).collect();
        let (row, why) = damaged.first().and_then(|row| Some((row, self.rows.get(row)?)))?;
        if self.next_trial.is_none_or(|at| at <= now) {
            (self.next_trial, self.is_trying) = (Some(now + PAUSE), true);
            self.rows.retain(|row, _| !damaged.contains(row));
            return None;
        }
        Some(errors::damaged_row(keyspace.name_of(&row.1), why))
    }

    /// Requests that were not refused are done.
    pub(super) fn written(&mut self) {
        if std::mem::take(&mut self.is_trying) {
            self.next_trial = None;
        }
    }

    /// A keyspace was dropped, and its rows with it.
    pub(super) fn forget(&mut self, keyspace: &Keyspace) {
        self.rows.retain(|(name, _), _| *name != keyspace.name);
    }
}
