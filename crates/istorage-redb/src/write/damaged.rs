//! Rows that cannot be written, because redb cannot read their page.

use std::collections::HashMap;

use istorage::{Error, KeyspaceName};

use crate::{
    errors::{self, Panicked},
    group::Request,
    layout::Keyspace,
};

/// How many rows are remembered. Each write of another one opens the file again.
const REMEMBERED: usize = 1_024;

/// The rows whose writes made redb panic since the file was opened first.
///
/// After a panic the file is opened again, which holds up all writes. A row that is written again and again is
/// therefore answered without asking redb.
#[derive(Debug, Default)]
pub(super) struct DamagedRows {
    rows: HashMap<(KeyspaceName, Vec<u8>), String>,
}

impl DamagedRows {
    /// Remembers the row, tells the log, and returns the answer to whoever wrote it.
    pub(super) fn add(&mut self, keyspace: &Keyspace, key: Vec<u8>, why: &Panicked) -> Error {
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

    /// The answer to a request that writes one of the rows.
    pub(super) fn refuse(&self, request: &Request) -> Option<Error> {
        if self.rows.is_empty() {
            return None;
        }
        let keyspace = &request.keyspace;
        request.keys().find_map(|key| {
            let row = (keyspace.name.clone(), key);
            let why = self.rows.get(&row)?;
            Some(errors::damaged_row(keyspace.name_of(&row.1), why))
        })
    }

    /// A keyspace was dropped, and its rows with it.
    pub(super) fn forget(&mut self, keyspace: &Keyspace) {
        self.rows.retain(|(name, _), _| *name != keyspace.name);
    }
}
