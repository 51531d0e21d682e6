//! Reads the rows and numbers that commands need before the commands run.
//!
//! One call reads many rows, and the numbers of many workspaces are read side by side. A command by
//! itself makes one call for each row.

use std::{collections::VecDeque, mem};

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, Schema, WsId};
use hashbrown::{HashMap, HashSet};
use isequencer::{Transaction, WsKind};

use super::CommandGroup;
use crate::{
    Command, RowChange, application::DESCRIPTOR_ID, builtin::CREATE_WORKSPACE,
    partition_context::PartitionContext, queue::QueuedCommand,
};

/// The largest number of rows in one call. The numbers of as many workspaces are read side by side.
const ROWS: usize = 32;

/// The number of rows in one call after many calls failed.
const FEW_ROWS: usize = 2;

/// The largest size of a row that an application stores. The real size of a row is known only after
/// the row is read.
const ROW: usize = 1 << 20;

/// The largest number of bytes that a partition keeps of rows that it read ahead, if no row has
/// more than 1 MiB.
pub const READ_AHEAD_BYTES: usize = ROWS * ROW;

/// The rows that were read ahead.
///
/// Invariant: a row here holds the bytes that the storage holds. Only the leader writes these rows,
/// so a row stays as it was read until a group of this partition writes the row.
///
/// So a group drops the rows that it wrote. Suppose that it kept them. Group 1 reads a record
/// ahead and changes it. A command of group 2 finds the bytes from before group 1, and replaces a
/// version that the storage no longer has. The write of group 2 finds another row than it expects.
#[derive(Debug)]
pub(crate) struct ReadAheadRows {
    /// The bytes of each row; `None` for a row that does not exist.
    rows: HashMap<AppRow, Option<Bytes>>,
    /// The number of bytes in all rows.
    bytes: usize,
    /// The largest number of rows in the next call. A call that fails halves this number. So a call
    /// that is too large for the storage, or a row that cannot be read, does not delay every group.
    most: usize,
}

impl Default for ReadAheadRows {
    fn default() -> ReadAheadRows {
        ReadAheadRows { rows: HashMap::new(), bytes: 0, most: ROWS }
    }
}

impl ReadAheadRows {
    /// The content of a row, if the row was read ahead.
    pub(crate) fn get(&self, row: &AppRow) -> Option<Option<Bytes>> {
        if self.rows.is_empty() { None } else { self.rows.get(row).cloned() }
    }

    pub(crate) fn remove(&mut self, row: &AppRow) {
        let removed = self.rows.remove(row).flatten();
        self.bytes -= removed.map_or(0, |bytes| bytes.len());
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }

    /// Drops all rows but these. The search ends as soon as all rows that are here were found.
    pub(crate) fn keep(&mut self, mut needed: impl Iterator<Item = AppRow>) {
        let mut all = mem::take(&mut self.rows);
        self.bytes = 0;
        while !all.is_empty()
            && let Some(row) = needed.next()
        {
            if let Some(found) = all.remove(&row) {
                self.add(&[row], vec![found]);
            }
        }
    }

    fn add(&mut self, rows: &[AppRow], found: Vec<Option<Bytes>>) {
        self.bytes += found.iter().flatten().map(Bytes::len).sum::<usize>();
        self.rows.extend(rows.iter().copied().zip(found));
    }

    /// The number of rows that the next call reads.
    fn rows_of_a_call(&self) -> usize {
        self.most.min(READ_AHEAD_BYTES.saturating_sub(self.bytes) / ROW)
    }

    fn note_call(&mut self, is_answered: bool) {
        self.most = match is_answered {
            true => (self.most + 1).min(ROWS),
            false => (self.most / 2).max(FEW_ROWS),
        };
    }
}

/// The rows and numbers that commands need and that are not in memory.
#[derive(Default)]
struct MissingReads<'q> {
    rows: Vec<AppRow>,
    /// The first command of each workspace with missing numbers.
    numbers: Vec<&'q Command>,
    seen_rows: HashSet<AppRow>,
    seen_workspaces: HashSet<WsId>,
}

impl CommandGroup {
    /// Reads the missing rows and numbers for as many of the next commands as one call can serve.
    /// Returns the number of commands that can run now, or 0 if the group ends before the next
    /// command. A command that needs more than one call is the first of its group, so no other
    /// command waits for these calls.
    ///
    /// Rows that cannot be read here are left to the commands that need them.
    pub(crate) async fn read_ahead(
        &mut self,
        partition: &mut PartitionContext,
        transaction: &mut Transaction<'_>,
        waiting: &VecDeque<QueuedCommand>,
    ) -> usize {
        let (mut missing, mut commands) = (MissingReads::default(), 0);
        let most = self.ahead.rows_of_a_call();
        for QueuedCommand { command, .. } in waiting {
            let (rows, numbers) = (missing.rows.len(), missing.numbers.len());
            self.note_missing(partition, transaction, command, &mut missing);
            let is_first = commands == 0 && self.waiting() == 0;
            if !is_first && (missing.rows.len() > most || missing.numbers.len() > ROWS) {
                missing.rows.truncate(rows);
                missing.numbers.truncate(numbers);
                break;
            }
            commands += 1;
        }
        // A single row, or the numbers of a single workspace, are read as fast when the command
        // needs them.
        if missing.rows.len() > 1
            && let Some(first) = waiting.front()
        {
            self.read_rows(partition, &missing.rows, first.command.deadline).await;
        }
        if missing.numbers.len() > 1 {
            self.read_numbers(partition, transaction, &missing.numbers).await;
        }
        commands
    }

    fn note_missing<'q>(
        &self,
        partition: &mut PartitionContext,
        transaction: &Transaction<'_>,
        command: &'q Command,
        missing: &mut MissingReads<'q>,
    ) {
        let ws = command.ws;
        let kind = partition.kinds.get(&ws).copied();
        for row in rows_of(partition.application.schema(), command, kind) {
            if self.ahead.get(&row).is_none() && missing.seen_rows.insert(row) {
                missing.rows.push(row);
            }
        }
        let is_cached = |kind| transaction.is_cached(kind, isequencer::WsId(ws.0));
        if !kind.is_some_and(is_cached) && missing.seen_workspaces.insert(ws) {
            missing.numbers.push(command);
        }
    }

    async fn read_rows(
        &mut self,
        partition: &mut PartitionContext,
        mut rows: &[AppRow],
        deadline: Instant,
    ) {
        while partition.clock.now() < deadline {
            let now;
            (now, rows) = rows.split_at(self.ahead.rows_of_a_call().min(rows.len()));
            if now.is_empty() {
                return;
            }
            let found = partition.log.reader().rows(now).await;
            self.ahead.note_call(found.is_ok());
            match found {
                Ok(found) => self.ahead.add(now, found),
                Err(_) => return,
            }
        }
    }

    /// Reads the numbers of workspaces side by side. The kind of a workspace says which sequences
    /// the workspace has. If the descriptor of a workspace is not in memory, its command reads the
    /// numbers.
    async fn read_numbers(
        &self,
        partition: &mut PartitionContext,
        transaction: &mut Transaction<'_>,
        commands: &[&Command],
    ) {
        let mut workspaces = Vec::with_capacity(commands.len());
        for command in commands {
            let ws = command.ws;
            let is_known = command.name.as_str() == CREATE_WORKSPACE
                || partition.kinds.get(&ws).is_some()
                || self.ahead.get(&AppRow::Record(ws, DESCRIPTOR_ID)).is_some();
            if is_known && let Ok(kind) = self.kind(partition, command).await {
                workspaces.push((kind, isequencer::WsId(ws.0)));
            }
        }
        transaction.read_ahead(workspaces).await;
    }
}

/// The rows that a command names itself: its stored answer, the descriptor, and the rows that it
/// changes or uses as parents. The descriptor is needed only while the kind of the workspace is not
/// known.
pub(super) fn rows_of(
    schema: &Schema,
    command: &Command,
    kind: Option<WsKind>,
) -> impl Iterator<Item = AppRow> {
    let ws = command.ws;
    let answer = command.idempotency_key.as_ref().map(|own| AppRow::Answer(ws, own.key));
    let descriptor = kind.is_none().then_some(AppRow::Record(ws, DESCRIPTOR_ID));
    let named = command.rows.iter().filter_map(move |change| {
        let id = match change {
            RowChange::Update { id, .. } => Some(*id),
            RowChange::Create { parent: Some(parent), .. } => Some(parent.id),
            RowChange::Create { table, .. } => {
                schema.table(table).and_then(|table| table.singleton_id())
            }
        };
        // Smaller ids are raw ids of rows that the command creates.
        id.filter(|id| id.0 > u64::from(u16::MAX)).map(|id| AppRow::Record(ws, id))
    });
    answer.into_iter().chain(descriptor).chain(named)
}

#[cfg(test)]
mod tests {
    use eventlog::RecordId;

    use super::*;
    use crate::recent::Recent;

    fn rows(from: u64, count: usize) -> Vec<AppRow> {
        (from..).take(count).map(|id| AppRow::Record(WsId(1), RecordId(id))).collect()
    }

    /// A call read 100 rows of any size. Where rows have a megabyte, that was 100 MiB for each
    /// partition.
    #[test]
    fn rows_that_are_read_ahead_have_a_bound_in_bytes() {
        for size in [1, 10_000, ROW - 1, ROW] {
            let row = Bytes::from(vec![0; size]);
            let (mut ahead, mut next) = (ReadAheadRows::default(), 0);
            for _ in 0..100 {
                let rows = rows(next, ahead.rows_of_a_call());
                next += rows.len() as u64;
                ahead.add(&rows, vec![Some(row.clone()); rows.len()]);
                assert!(
                    ahead.bytes <= READ_AHEAD_BYTES,
                    "{} bytes of rows with {size}",
                    ahead.bytes
                );
            }
            rows(0, next as usize).iter().for_each(|row| ahead.remove(row));
            assert_eq!((ahead.bytes, ahead.rows_of_a_call()), (0, ROWS));
        }
    }

    /// Rows of finished commands stayed in memory. When these rows had 32 MiB, nothing was read
    /// ahead any more. After each group all rows of all waiting commands were looked up, even if
    /// nothing was read for these commands.
    #[test]
    fn only_rows_that_were_read_for_waiting_commands_stay() {
        let schema: Schema = "[tables.\"shop.Bill\"]\nkind = \"CDoc\"".parse().unwrap();
        let mut kinds = Recent::new(1);
        kinds.insert(WsId(1), WsKind(1));
        let command = |ids: &[u64], is_read_for| {
            let update = |id: &u64| RowChange::Update {
                id: RecordId(*id),
                table: None,
                version: None,
                fields: [].into(),
                is_active: None,
            };
            let rows = ids.iter().map(update).collect();
            let name = "sys.CUD".parse().unwrap();
            let command = Command::new(WsId(1), name, Instant::FAR_FUTURE).with_rows(rows);
            QueuedCommand::of(command, is_read_for)
        };
        let (done, waits, not_read) = (100_000, 200_000, 300_000);
        let mut group = CommandGroup::default();
        for id in [done, waits, not_read] {
            group.ahead.add(&rows(id, 1), vec![Some(Bytes::from(vec![0; 1_000]))]);
        }
        let waiting = [command(&[waits], true), command(&[not_read], false)].into();
        group.forget_rows(&schema, &mut kinds, &waiting);
        let left: Vec<&AppRow> = group.ahead.rows.keys().collect();
        assert_eq!((left, group.ahead.bytes), (rows(waits, 1).iter().collect(), 1_000));
    }

    /// After each group the partition needed hundreds of milliseconds to look up the rows of 99
    /// waiting commands of 2,000 rows each.
    #[test]
    fn the_search_for_rows_ends_when_all_are_found() {
        let mut ahead = ReadAheadRows::default();
        ahead.add(&rows(100, 10), vec![Some(Bytes::from_static(b"row")); 10]);
        let mut looked_up = 0;
        ahead.keep(rows(95, 10_000).into_iter().inspect(|_| looked_up += 1));
        assert_eq!((looked_up, ahead.rows.len(), ahead.bytes), (15, 10, 30));
    }

    /// After a call failed, the partition repeated a call of the same size for every group. Each
    /// group waited for the time-out of that call, and then read row by row.
    #[test]
    fn calls_that_fail_become_small_and_grow_again_when_calls_are_answered() {
        let mut ahead = ReadAheadRows::default();
        let after = |ahead: &mut ReadAheadRows, is_answered| {
            ahead.note_call(is_answered);
            ahead.rows_of_a_call()
        };
        assert_eq!([false; 5].map(|failed| after(&mut ahead, failed)), [16, 8, 4, 2, 2]);
        assert_eq!([true; 3].map(|answered| after(&mut ahead, answered)), [3, 4, 5]);
        (0..100).for_each(|_| ahead.note_call(true));
        assert_eq!(ahead.rows_of_a_call(), ROWS);
    }
}
