//! Reading what commands need before they run: one call for many rows, where each command would
//! make one call a row.

use std::collections::VecDeque;

use bytes::Bytes;
use clock::Instant;
use eventlog::Row;
use hashbrown::HashSet;

use super::{Group, Means};
use crate::{Command, RowChange, application::DESCRIPTOR_ID, queue::Queued};

/// How many rows are read by one call at most.
const ROWS: usize = 32;

/// How large a row is at most, as applications store them: its size is known only when it is read.
const ROW: usize = 1 << 20;

/// How many bytes are read ahead at most. What is beyond is read when it is needed.
const BYTES: usize = ROWS * ROW;

/// How many rows the next call reads, when so many bytes are in memory already.
fn rows_of_a_call(bytes: usize) -> usize {
    BYTES.saturating_sub(bytes) / ROW
}

impl Group {
    /// Reads what the next commands need, for as many of them as one call can read for, and at
    /// least one; 0 if the group ends before the next one. A command that needs more is the first
    /// of its group: nobody else waits for that.
    ///
    /// What cannot be read is left to the commands that need it.
    pub(crate) async fn read_ahead(
        &mut self,
        means: &mut Means,
        waiting: &VecDeque<Queued>,
    ) -> usize {
        self.ahead.clear();
        let (mut rows, mut commands) = (Vec::new(), 0);
        for Queued { command, reply, .. } in waiting {
            let before = rows.len();
            if reply.is_awaited() {
                needs(means, command, &mut rows);
            }
            let is_first = commands == 0 && self.waiting() == 0;
            if rows.len() > ROWS && !is_first {
                rows.truncate(before);
                break;
            }
            commands += 1;
        }
        // A lone row is read as soon when it is needed.
        if rows.len() > 1
            && let Some(first) = waiting.front()
        {
            let mut seen = HashSet::new();
            rows.retain(|row| seen.insert(*row));
            self.read_rows(means, &rows, first.command.deadline).await;
        }
        commands
    }

    async fn read_rows(&mut self, means: &mut Means, mut rows: &[Row], deadline: Instant) {
        let mut bytes = 0;
        while means.clock.now() < deadline {
            let now;
            (now, rows) = rows.split_at(rows_of_a_call(bytes).min(rows.len()));
            if now.is_empty() {
                return;
            }
            let Ok(found) = means.log.reader().rows(now).await else { return };
            bytes += found.iter().flatten().map(Bytes::len).sum::<usize>();
            self.ahead.extend(now.iter().copied().zip(found));
        }
    }
}

/// The rows that a command needs, as far as it says so itself.
fn needs(means: &mut Means, command: &Command, rows: &mut Vec<Row>) {
    let ws = command.ws;
    if let Some(repeat) = &command.repeat {
        rows.push(Row::Answer(ws, repeat.key));
    }
    if means.kinds.get(&ws).is_none() {
        rows.push(Row::Record(ws, DESCRIPTOR_ID));
    }
    let schema = means.application.schema();
    for row in &command.rows {
        let id = match row {
            RowChange::Update { id, .. } => Some(*id),
            RowChange::Create { parent: Some(parent), .. } => Some(parent.id),
            RowChange::Create { table, .. } => {
                schema.table(table).and_then(|table| table.singleton_id())
            }
        };
        // Smaller ones are of rows that the command makes.
        let id = id.filter(|id| id.0 > u64::from(u16::MAX));
        rows.extend(id.map(|id| Row::Record(ws, id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call read 100 rows of whatever size: 100 MiB for each partition where rows have a megabyte.
    #[test]
    fn what_is_read_ahead_has_a_bound_in_bytes() {
        for row in [1, 10_000, ROW - 1, ROW] {
            let (mut bytes, mut calls) = (0, 0);
            while rows_of_a_call(bytes) > 0 && calls < 1_000 {
                bytes += rows_of_a_call(bytes) * row;
                calls += 1;
                assert!(bytes <= BYTES, "{bytes} bytes of rows with {row}");
            }
        }
        assert_eq!(rows_of_a_call(BYTES + 1), 0);
    }
}
