//! The draft of an event: what a command has drawn and changed so far.

use clock::WallTime;
use eventlog::{
    BrokenRule, Fields, Offset, QName, Record, RecordChange, RecordId, StoredRecord, Table,
    Version, WsId, istorage::FoundRow,
};
use hashbrown::HashMap;
use isequencer::{DrawError, SeqId, WsKind};

use crate::{
    Declarations, HandlerError, Rejection, RejectionKind,
    state::{GroupView, ReadRecord},
};

/// The largest number of rows that a command can write, and of records that it can refer to.
pub const MOST_ROWS: usize = 4_096;

/// The largest total size, in bytes, of the rows that a command replaces or refers to. The replaced
/// rows are in memory, several times, until the event of the command is packed. The others take
/// time to be read.
const MOST_BYTES: usize = 32 << 20;

/// Gives numbers. The trait hides the lifetimes of the [command](isequencer::JoinedCommand) that
/// has joined a transaction, so that handlers need not name them.
pub(crate) trait Numbers: Send + Sync {
    fn next(&mut self, seq: SeqId) -> Result<u64, DrawError>;
}

impl Numbers for isequencer::JoinedCommand<'_, '_> {
    fn next(&mut self, seq: SeqId) -> Result<u64, DrawError> {
        isequencer::JoinedCommand::next(self, seq)
    }
}

/// The place and the time of an event, if its command makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventHead {
    pub(crate) kind: WsKind,
    pub(crate) ws: WsId,
    /// The offset in the log of the workspace.
    pub(crate) wlog: Offset,
    pub(crate) time: WallTime,
}

/// The event that a command makes, as its handler has built it so far.
pub(crate) struct EventDraft<'g> {
    pub(super) declarations: &'g Declarations,
    pub(super) head: EventHead,
    pub(super) state: &'g GroupView<'g>,
    numbers: &'g mut dyn Numbers,
    rows: DraftedRows,
    /// The position in the changes of each record among them.
    places: HashMap<RecordId, usize>,
    /// The fields that the changed records of tables with rules had before the command, by the
    /// position of the change.
    former: HashMap<usize, Fields>,
    /// The real ids of the new rows, by raw id.
    real_ids: HashMap<RecordId, RecordId>,
    /// The number of bytes in all rows that the command replaces.
    bytes: usize,
}

/// The rows that a command writes.
pub(crate) struct DraftedRows {
    /// The changes that the command writes.
    pub(crate) changes: Vec<RecordChange>,
    /// The stored rows of the records that the command replaces.
    pub(crate) before: Vec<(RecordId, FoundRow)>,
    /// The raw ids of the new rows, each with its real id.
    pub(crate) ids: Vec<(RecordId, RecordId)>,
}

impl<'g> EventDraft<'g> {
    /// Creates the draft of a command that names `rows` rows.
    pub(crate) fn new(
        declarations: &'g Declarations,
        head: EventHead,
        state: &'g GroupView<'g>,
        numbers: &'g mut dyn Numbers,
        rows: usize,
    ) -> EventDraft<'g> {
        EventDraft {
            declarations,
            head,
            state,
            numbers,
            rows: DraftedRows {
                changes: Vec::with_capacity(rows),
                before: Vec::new(),
                ids: Vec::with_capacity(rows),
            },
            places: HashMap::with_capacity(rows),
            former: HashMap::new(),
            real_ids: HashMap::with_capacity(rows),
            bytes: 0,
        }
    }

    /// Ends the draft.
    pub(crate) fn into_rows(self) -> DraftedRows {
        self.rows
    }

    /// Judges the rows that the command writes by the rules of their tables. What a row was in the
    /// middle of the command does not count.
    ///
    /// Each record that the command refers to is read once. A simpler version reads it for each
    /// reference: 4,096 lines of one large article would keep the partition for ten seconds.
    pub(crate) async fn judge(&self) -> Result<(), HandlerError> {
        let (mut targets, mut bytes) = (HashMap::new(), self.bytes);
        for (at, RecordChange { record, .. }) in self.changes().iter().enumerate() {
            let table = self.declarations.schema().table(&record.table);
            let Some(table) = table.filter(|table| table.can_refuse()) else { continue };
            let before = self.former.get(&at);
            table.judge(before, &record.fields).map_err(|rule| self.refuse(record, &rule))?;
            for (field, id) in table.new_references(before, &record.fields) {
                if !targets.contains_key(&id) {
                    if targets.len() == MOST_ROWS {
                        let what = format!("a command refers to more than {MOST_ROWS} records");
                        return Err(Rejection::new(RejectionKind::TooLarge, what).into());
                    }
                    targets.insert(id, self.find(id, &mut bytes).await?);
                }
                let found = targets.get(&id).and_then(Option::as_ref);
                let found = found.map(|(table, is_active)| (table, *is_active));
                let judged = table.judge_reference(field, id, found);
                judged.map_err(|rule| self.refuse(record, &rule))?;
            }
        }
        Ok(())
    }

    /// The table of a record as it is after this draft, and whether the record is active. Adds the
    /// bytes of a row that was read.
    async fn find(
        &self,
        id: RecordId,
        bytes: &mut usize,
    ) -> Result<Option<(QName, bool)>, HandlerError> {
        if let Some(at) = self.place(id) {
            let Record { table, is_active, .. } = &self.changes()[at].record;
            return Ok(Some((table.clone(), *is_active)));
        }
        let Some(ReadRecord { stored, row }) = self.state.read(self.head.ws, id).await? else {
            return Ok(None);
        };
        *bytes += row.map_or(0, |row| row.value.len());
        if *bytes > MOST_BYTES {
            return Err(too_many_bytes("changes and refers to").into());
        }
        Ok(Some((stored.record.table, stored.record.is_active)))
    }

    fn refuse(&self, record: &Record, rule: &BrokenRule) -> Rejection {
        let made = self.ids().iter().find(|(_, id)| *id == record.id);
        let which = match made {
            Some((raw, _)) => format!("the new record {}", raw.0),
            None => format!("record {}", record.id.0),
        };
        Rejection::new(RejectionKind::Rule, format!("{which}: {rule}"))
    }

    pub(super) fn changes(&self) -> &[RecordChange] {
        &self.rows.changes
    }

    /// The raw ids of the new rows, each with its real id.
    pub(super) fn ids(&self) -> &[(RecordId, RecordId)] {
        &self.rows.ids
    }

    pub(super) fn add_id(&mut self, raw: RecordId, id: RecordId) {
        self.rows.ids.push((raw, id));
        self.real_ids.insert(raw, id);
    }

    /// Adds a change of a record that no other change has. Returns its position.
    pub(super) fn add_change(&mut self, change: RecordChange) -> usize {
        let at = self.rows.changes.len();
        self.places.insert(change.record.id, at);
        self.rows.changes.push(change);
        at
    }

    /// The record of a change. Its id stays the same.
    pub(super) fn record_mut(&mut self, at: usize) -> &mut Record {
        &mut self.rows.changes[at].record
    }

    pub(super) fn table(&self, name: &QName) -> Result<&'g Table, Rejection> {
        let table = self.declarations.schema().table(name);
        table.ok_or_else(|| Rejection::invalid(format!("there is no table {name}")))
    }

    /// A record as it is after this draft. The version is `None` if the draft has the record.
    pub(super) async fn get(
        &self,
        id: RecordId,
    ) -> Result<Option<(Record, Option<Version>)>, HandlerError> {
        if let Some(at) = self.place(id) {
            return Ok(Some((self.changes()[at].record.clone(), None)));
        }
        let found = self.state.read(self.head.ws, id).await?;
        Ok(found.map(|ReadRecord { stored: StoredRecord { version, mut record, .. }, .. }| {
            self.widen(&mut record);
            (record, Some(version))
        }))
    }

    fn widen(&self, record: &mut Record) {
        if let Some(table) = self.declarations.schema().table(&record.table) {
            table.widen(&mut record.fields);
        }
    }

    pub(super) fn draw(&mut self, seq: SeqId) -> Result<u64, HandlerError> {
        Ok(self.numbers.next(seq).map_err(|no| match no {
            DrawError::UnknownSequence { .. } => Rejection::invalid(no.to_string()),
            DrawError::Exhausted { .. } => Rejection::new(RejectionKind::NoNumber, no.to_string()),
        })?)
    }

    /// The real id of a row: that of the new row if `id` is a raw id, else `id` itself.
    pub(super) fn real(&self, id: RecordId) -> Result<RecordId, Rejection> {
        if id.0 > u64::from(u16::MAX) {
            return Ok(id);
        }
        let real = self.called(id);
        real.ok_or_else(|| Rejection::invalid(format!("no new row has the raw id {}", id.0)))
    }

    /// The real id of the new row with this raw id.
    pub(super) fn called(&self, raw: RecordId) -> Option<RecordId> {
        self.real_ids.get(&raw).copied()
    }

    /// The position of a record among the changes.
    pub(super) fn place(&self, id: RecordId) -> Option<usize> {
        self.places.get(&id).copied()
    }

    /// Reads a record that the command replaces, and adds the record to the changes. Returns its
    /// position, or `None` if the record does not exist.
    pub(super) async fn take(
        &mut self,
        id: RecordId,
        expected: Option<Version>,
    ) -> Result<Option<usize>, HandlerError> {
        let Some(ReadRecord { stored: StoredRecord { version, mut record, .. }, row }) =
            self.state.read(self.head.ws, id).await?
        else {
            return Ok(None);
        };
        self.widen(&mut record);
        if expected.is_some_and(|expected| expected != version) {
            let what = format!(
                "record {} was written by event {}, and not by the one that the command expects",
                id.0, version.plog.0
            );
            return Err(Rejection::conflict(what).into());
        }
        self.bytes += row.as_ref().map_or(0, |row| row.value.len());
        if self.bytes > MOST_BYTES {
            return Err(too_many_bytes("changes").into());
        }
        // A record that an earlier command of the group wrote is not stored yet, so the record has
        // no row.
        self.rows.before.extend(row.map(|row| (id, row)));
        let table = self.declarations.schema().table(&record.table);
        if table.is_some_and(Table::can_refuse) {
            self.former.insert(self.changes().len(), record.fields.clone());
        }
        Ok(Some(self.add_change(RecordChange { replaces: Some(version), record })))
    }
}

fn too_many_bytes(does: &str) -> Rejection {
    let what = format!(
        "the rows that it {does} have more than {} MiB together: use several commands",
        MOST_BYTES >> 20
    );
    Rejection::new(RejectionKind::TooLarge, what)
}
