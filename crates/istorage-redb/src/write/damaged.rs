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
/// without asking redb. The disk may have recovered, so every [`PAUSE`] one request that writes such rows is tried. If it
/// succeeds, its rows are forgotten, and the next request is tried at once.
#[derive(Debug, Default)]
pub(super) struct DamagedRows {
    rows: HashMap<Row, String>,
    /// From when on a request is tried; `None` is at once.
    next_trial: Option<Instant>,
    /// The rows of the request that is tried. Meanwhile they are not among the others.
    trying: Vec<(Row, String)>,
}

type Row = (KeyspaceName, Vec<u8>);

impl DamagedRows {
    /// Remembers the row, tells the log, and returns the answer to whoever wrote it.
    pub(super) fn add(
        &mut self,
        keyspace: &Keyspace,
        key: Vec<u8>,
        why: &Unwound,
        now: Instant,
    ) -> Error {
        self.next_trial = Some(now + PAUSE);
        self.rows.extend(self.trying.drain(..));
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

    /// The answer to a request that writes some of the rows, unless the request is tried.
    pub(super) fn refuse(&mut self, request: &Request, now: Instant) -> Option<Error> {
        if self.rows.is_empty() {
            return None;
        }
        let keyspace = &request.keyspace;
        let named = request.keys().map(|key| (keyspace.name.clone(), key));
        let damaged: Vec<_> = named.filter(|row| self.rows.contains_key(row)).collect();
        let (row, why) = self.rows.get_key_value(damaged.first()?)?;
        if self.next_trial.is_some_and(|at| now < at) {
            return Some(errors::damaged_row(keyspace.name_of(&row.1), why));
        }
        self.next_trial = Some(now + PAUSE);
        self.trying = damaged.iter().filter_map(|row| self.rows.remove_entry(row)).collect();
        None
    }

    /// Requests that were not refused are done.
    pub(super) fn written(&mut self) {
        if !self.trying.is_empty() {
            self.trying.clear();
            self.next_trial = None;
        }
    }

    /// A keyspace was dropped, and its rows with it.
    pub(super) fn forget(&mut self, keyspace: &Keyspace) {
        self.rows.retain(|(name, _), _| *name != keyspace.name);
    }
}
