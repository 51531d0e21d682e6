//! Rows that cannot be written, because redb cannot read their page.

use std::{collections::HashMap, time::Duration};

use clock::Instant;
use istorage::{Error, KeyspaceName};

use crate::{
    errors::{self, PageError},
    layout::Keyspace,
    request::WriteRequest,
};

/// The largest number of remembered rows. Each write of a damaged row beyond that number opens the
/// file again.
const REMEMBERED: usize = 1_024;

/// How long remembered rows are refused after a write of one of them failed.
const PAUSE: Duration = Duration::from_secs(10);

/// The rows whose last write failed because redb could not go on.
///
/// After such a failure the file is opened again, and all writes wait meanwhile. So later writes of
/// these rows are refused without a call to redb. The disk may have recovered, so one request that
/// writes such rows is tried every [`PAUSE`]. If the request succeeds, its rows are forgotten, and
/// the next request is tried at once.
///
/// A request may write two damaged rows, succeed at the first and fail at the second. So the rows
/// of a tried request are forgotten only when its group is written. If only the second row were
/// remembered, the next write of the first row would open the file again before the time.
#[derive(Debug, Default)]
pub(super) struct DamagedRows {
    rows: HashMap<Row, String>,
    /// When the next request may be tried. `None` means at once.
    next_trial: Option<Instant>,
    /// The rows of the request that is being tried. Meanwhile they are not in `rows`.
    trying: Vec<(Row, String)>,
}

type Row = (KeyspaceName, Vec<u8>);

impl DamagedRows {
    /// Remembers the row, logs the damage, and returns the answer for the caller.
    pub(super) fn add(
        &mut self,
        keyspace: &Keyspace,
        key: Vec<u8>,
        why: &PageError,
        now: Instant,
    ) -> Error {
        self.next_trial = Some(now + PAUSE);
        self.rows.extend(self.trying.drain(..));
        if key.is_empty() {
            return errors::damaged_row(keyspace.table_label(), why);
        }
        let row = keyspace.row_name(&key);
        tracing::error!(%row, error = %why, "a page of the storage file is damaged");
        let answer = errors::damaged_row(row, why);
        if self.rows.len() < REMEMBERED {
            self.rows.insert((keyspace.name.clone(), key), why.to_string());
        }
        answer
    }

    /// Returns the answer to a request that writes some of the rows. Returns `None` if the request
    /// may run: it writes none of the rows, or it is the request to be tried.
    pub(super) fn refuse(&mut self, request: &WriteRequest, now: Instant) -> Option<Error> {
        if self.rows.is_empty() {
            return None;
        }
        let keyspace = &request.keyspace;
        let named = request.keys().map(|key| (keyspace.name.clone(), key));
        let damaged: Vec<_> = named.filter(|row| self.rows.contains_key(row)).collect();
        let (row, why) = self.rows.get_key_value(damaged.first()?)?;
        if self.next_trial.is_some_and(|at| now < at) {
            return Some(errors::damaged_row(keyspace.row_name(&row.1), why));
        }
        self.next_trial = Some(now + PAUSE);
        self.trying = damaged.iter().filter_map(|row| self.rows.remove_entry(row)).collect();
        None
    }

    /// Notes that a group was written. The rows of a tried request are forgotten.
    pub(super) fn written(&mut self) {
        if !self.trying.is_empty() {
            self.trying.clear();
            self.next_trial = None;
        }
    }

    /// Forgets the rows of a keyspace that was dropped.
    pub(super) fn forget(&mut self, keyspace: &Keyspace) {
        self.rows.retain(|(name, _), _| *name != keyspace.name);
    }
}
