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
const ROWS: usize = 100;

/// How many bytes are read ahead. What is beyond is read when it is needed.
const BYTES: usize = 32 << 20;

/// How large the next rows may be, judged by the rows that were read ahead lately. All rows of a call
/// are in memory together, and the size of a row is known when it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSize(usize);

impl Default for RowSize {
    /// A megabyte: an application may store rows of that size.
    fn default() -> RowSize {
        RowSize(1 << 20)
    }
}

impl RowSize {
    /// How many rows the next call reads, when so many bytes are in memory already.
    fn rows(self, bytes: usize) -> usize {
        (BYTES.saturating_sub(bytes) / self.0.max(1)).clamp(1, ROWS)
    }

    /// Rows were read. After a large one it takes some calls with small ones until a call reads many.
    fn learn(&mut self, found: &[Option<Bytes>]) {
        let largest = found.iter().flatten().map(Bytes::len).max().unwrap_or(0);
        self.0 = largest.max(self.0 / 4);
    }
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
        let (mut rows, mut commands, most) = (Vec::new(), 0, means.row_size.rows(0));
        for Queued { command, reply, .. } in waiting {
            let before = rows.len();
            if reply.is_awaited() {
                needs(means, command, &mut rows);
            }
            let is_first = commands == 0 && self.waiting() == 0;
            if rows.len() > most && !is_first {
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
        while !rows.is_empty() && bytes < BYTES && means.clock.now() < deadline {
            let now;
            (now, rows) = rows.split_at(means.row_size.rows(bytes).min(rows.len()));
            let Ok(found) = means.log.reader().rows(now).await else { return };
            means.row_size.learn(&found);
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
    fn a_call_reads_few_rows_where_rows_are_large() {
        let found = |sizes: &[usize]| -> Vec<Option<Bytes>> {
            let row = |size: &usize| Some(vec![0; *size].into());
            sizes.iter().map(row).chain([None]).collect()
        };
        let mut size = RowSize::default();
        assert_eq!((size.rows(0), size.rows(BYTES / 2), size.rows(BYTES)), (32, 16, 1));
        // Small rows are read many at a time, soon.
        size.learn(&found(&[100, 200]));
        assert_eq!(size.rows(0), ROWS);
        // One large row is enough.
        size.learn(&found(&[100, 4 << 20, 100]));
        assert_eq!((size.rows(0), size.rows(BYTES - (9 << 20))), (8, 2));
        size.learn(&found(&[BYTES + 1]));
        assert_eq!(size.rows(0), 1);
        for _ in 0..20 {
            size.learn(&found(&[0]));
        }
        assert_eq!(size.rows(0), ROWS);
    }
}
