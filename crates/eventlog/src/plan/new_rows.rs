//! The rows that events make.

use hashbrown::HashSet;

use crate::{AppRow, PreparedEvent};

/// The rows that events make, each of which must be made once: entries in logs of workspaces, and
/// new records.
#[derive(Debug, Default)]
pub(crate) struct NewRows(HashSet<AppRow>);

impl NewRows {
    /// Adds the rows that an event makes. Returns the first of them that an earlier event makes,
    /// too.
    pub(crate) fn add(&mut self, event: &PreparedEvent) -> Option<AppRow> {
        let (ws, wlog) = (event.place.ws, event.place.wlog);
        let records = event.records.iter().filter(|record| record.replaces.is_none());
        let rows = records.map(|record| AppRow::Record(ws, record.id));
        std::iter::once(AppRow::Wlog(ws, wlog)).chain(rows).find(|row| !self.0.insert(*row))
    }

    /// Returns the first row that several events of a group make.
    pub(crate) fn first_repeated(mut self, group: &[PreparedEvent]) -> Option<AppRow> {
        match group {
            // Most groups of a client that waits for its answers. Nothing else makes its rows.
            [event] if event.records.len() < 2 => None,
            _ => group.iter().find_map(|event| self.add(event)),
        }
    }
}
