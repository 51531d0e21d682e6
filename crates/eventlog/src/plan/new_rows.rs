//! The rows that events write, each of which is made once.

use hashbrown::HashSet;

use crate::{AppRow, PreparedEvent};

/// The rows that events write. Entries in logs of workspaces and new records must be made once, and
/// before any change.
#[derive(Debug, Default)]
pub(crate) struct NewRows(HashSet<AppRow>);

impl NewRows {
    /// Adds the rows that an event writes. Returns the first of them that the event makes although
    /// an earlier event writes it.
    ///
    /// A simpler version looks only at the rows that earlier events make. Event 3 makes a record,
    /// and event 6 changes it; its number is given twice, and event 8 makes a record with it.
    /// Events 6 and 8 are applied together, so the record of event 8 would replace that of event 6,
    /// and nobody would notice.
    pub(crate) fn add(&mut self, event: &PreparedEvent) -> Option<AppRow> {
        let (ws, wlog) = event.in_ws?;
        let records = event.records.iter();
        let rows = records.map(|it| (AppRow::Record(ws, it.id), it.replaces.is_none()));
        std::iter::once((AppRow::Wlog(ws, wlog), true))
            .chain(rows)
            .find_map(|(row, is_new)| (!self.0.insert(row) && is_new).then_some(row))
    }

    /// Returns the first row that an event of a group makes although an earlier one writes it.
    pub(crate) fn first_repeated(mut self, group: &[PreparedEvent]) -> Option<AppRow> {
        match group {
            // The usual group of a client that waits for its answers. No other event makes its
            // rows.
            [event] if event.records.len() < 2 => None,
            _ => group.iter().find_map(|event| self.add(event)),
        }
    }
}
