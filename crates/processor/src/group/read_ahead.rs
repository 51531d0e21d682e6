//! Reads the rows and numbers that commands need before the commands run, and keeps the rows that
//! the next group can use.
//!
//! One call reads many rows, and the numbers of many workspaces are read side by side. A command by
//! itself makes one call for each row.

use std::collections::VecDeque;

use bytes::Bytes;
use clock::Instant;
use eventlog::{AppRow, PreparedEvent, RecordId, Table, WsId};
use hashbrown::{HashMap, HashSet};
use isequencer::{Transaction, WsKind};
use lru::LruCache;

use super::CommandGroup;
use crate::{
    Command, Declarations, MOST_ROWS, RowChange, builtin::CREATE_WORKSPACE, known_rows::ROWS,
    partition_context::PartitionContext, queue::QueuedCommand, system_tables::DESCRIPTOR_ID,
};

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
        let max_rows = self.known_rows.rows_of_a_call();
        for QueuedCommand { command, .. } in waiting {
            let (rows, numbers) = (missing.rows.len(), missing.numbers.len());
            self.note_missing(partition, transaction, command, &mut missing);
            let is_first = commands == 0 && self.waiting() == 0;
            if !is_first && (missing.rows.len() > max_rows || missing.numbers.len() > ROWS) {
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
        for row in rows_of(partition.application.declarations(), command, kind) {
            if self.known_rows.get(&row).is_none() && missing.seen_rows.insert(row) {
                missing.rows.push(row);
            }
        }
        let is_cached = |kind| transaction.is_cached(kind, ws);
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
            (now, rows) = rows.split_at(self.known_rows.rows_of_a_call().min(rows.len()));
            if now.is_empty() {
                return;
            }
            let found = partition.log.reader().found_rows(now).await;
            self.known_rows.note_call(found.is_ok());
            match found {
                Ok(found) => self.known_rows.add(now, found),
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
                || self.known_rows.get(&AppRow::Record(ws, DESCRIPTOR_ID)).is_some();
            if is_known && let Ok(kind) = self.kind(partition, command).await {
                workspaces.push((kind, ws));
            }
        }
        transaction.read_ahead(workspaces).await;
    }

    /// Drops all rows that are known. Callers do so when no command waits.
    pub(crate) fn forget_rows(&mut self) {
        self.known_rows.clear();
    }

    /// Updates the known rows after the write of this group. Keeps the counter records that the
    /// group wrote, and the rows that were read for a waiting command and that the group did not
    /// write.
    ///
    /// If the write failed, the content of its rows is unknown. So no row is kept. The caller must
    /// then have refused all waiting commands.
    pub(crate) fn update_rows(
        &mut self,
        declarations: &Declarations,
        kinds: &mut LruCache<WsId, WsKind>,
        waiting: &VecDeque<QueuedCommand>,
        is_written: bool,
    ) {
        if !is_written {
            return self.forget_rows();
        }
        // The bytes that the last of the events left. Only the first of the events has read the
        // row.
        let mut counters: HashMap<AppRow, (&Bytes, bool)> = HashMap::new();
        for (row, bytes, hides_ordered) in self.events.iter().flat_map(PreparedEvent::records) {
            if declarations.is_counter(row) {
                let counter = counters.entry(row).or_insert((bytes, false));
                *counter = (bytes, counter.1 || hides_ordered);
            } else {
                self.known_rows.remove_read_ahead(&row);
            }
        }
        for (row, (bytes, hides_ordered)) in counters {
            self.known_rows.keep_counter(row, bytes, hides_ordered);
        }
        for (ws, key) in self.keys_in_group.keys() {
            self.known_rows.remove_read_ahead(&AppRow::Answer(*ws, *key));
        }
        let read_for = waiting.iter().filter(|queued| queued.was_read_ahead);
        self.known_rows.keep_read_ahead(read_for.flat_map(|QueuedCommand { command, .. }| {
            let kind = kinds.get(&command.ws).copied();
            rows_of(declarations, command, kind)
        }));
        self.known_rows.forget_unkept_counters(|row| declarations.is_counter(row));
    }
}

/// The rows that a command names itself: its stored answer, the descriptor, the rows that it
/// changes, refers to or uses as parents, and the counter records of its new rows. The descriptor
/// is needed only while the kind of the workspace is not known.
fn rows_of(
    declarations: &Declarations,
    command: &Command,
    kind: Option<WsKind>,
) -> impl Iterator<Item = AppRow> {
    let ws = command.ws;
    // Smaller ids are raw ids of rows that the command creates.
    let is_real = |id: &RecordId| id.0 > u64::from(u16::MAX);
    let answer = command.idempotency_key.as_ref().map(|own| AppRow::Answer(ws, own.key));
    let descriptor = kind.is_none().then_some(AppRow::Record(ws, DESCRIPTOR_ID));
    let named = command.rows.iter().flat_map(move |change| {
        let (id, new_in) = match change {
            RowChange::Update { id, .. } => (Some(*id), None),
            RowChange::Create { table, parent, .. } => {
                let table = declarations.schema().table(table);
                let singleton = table.and_then(Table::singleton_id);
                (parent.as_ref().map_or(singleton, |parent| Some(parent.id)), table)
            }
        };
        let counters = new_in.into_iter().flat_map(|table| declarations.counters_of(table));
        id.into_iter().filter(is_real).chain(counters).map(move |id| AppRow::Record(ws, id))
    });
    // A command that refers to more records is refused.
    let references = command.rows.iter().flat_map(RowChange::references).filter(is_real);
    let references = references.map(move |id| AppRow::Record(ws, id)).take(MOST_ROWS);
    answer.into_iter().chain(descriptor).chain(named).chain(references)
}

#[cfg(test)]
mod tests {
    use eventlog::istorage::FoundRow;

    use super::*;
    use crate::{queue::Reply, spans::CommandSpan};

    /// Rows of finished commands stayed in memory. When these rows had 32 MiB, nothing was read
    /// ahead any more. After each group all rows of all waiting commands were looked up, even if
    /// nothing was read for these commands.
    #[test]
    fn only_rows_that_were_read_for_waiting_commands_stay() {
        let schema = "[tables.\"shop.Bill\"]\nkind = \"CDoc\"".parse().unwrap();
        let declarations = Declarations::new(schema).unwrap();
        let mut kinds = LruCache::unbounded();
        kinds.put(WsId(1), WsKind(1));
        let command = |ids: &[u64], was_read_ahead| {
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
            let command = Box::new(command);
            let (reply, ..) = Reply::new(CommandSpan::default());
            QueuedCommand { command, reply, since: Instant::FAR_FUTURE, was_read_ahead }
        };
        let row = |id| AppRow::Record(WsId(1), RecordId(id));
        let (done, waits, not_read) = (100_000, 200_000, 300_000);
        let mut group = CommandGroup::new(true);
        for id in [done, waits, not_read] {
            let found = FoundRow { value: Bytes::from(vec![0; 1_000]), hides_ordered: false };
            group.known_rows.add(&[row(id)], vec![Some(found)]);
        }
        let waiting = [command(&[waits], true), command(&[not_read], false)].into();
        group.update_rows(&declarations, &mut kinds, &waiting, true);
        let is_kept = [done, waits, not_read].map(|id| group.known_rows.get(&row(id)).is_some());
        assert_eq!(is_kept, [false, true, false]);
    }
}
