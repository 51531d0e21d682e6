//! The plan of a group: the writes of its rows at a trust level, and the writes that are sent
//! together.
//!
//! The module does no I/O.

mod chunks;
mod group_writes;
mod new_rows;
mod row_write;

use std::time::Duration;

use bytes::BytesMut;
use clock::WallTime;
use hashbrown::HashMap;
use istorage::{FoundRow, Order, Result, TTL_MAX};

pub(crate) use self::{
    chunks::in_chunks,
    group_writes::GroupWrites,
    new_rows::NewRows,
    row_write::{RecordBasis, RowKind, RowWrite, WriteMode},
};
use crate::{
    AppRow, Offset, PreparedEvent, RecordId, TrustLevel, Version, WsId, app_row::LONGEST_KEY,
    layout::NEIGHBOUR_KEY, prepared::RecordWrite,
};

/// The rules for writing the rows of an application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) partition: u16,
    pub(crate) level: TrustLevel,
    /// Whether level 2 may have written rows, so that a row may be in the place of a new one.
    pub(crate) level_2_wrote: bool,
    /// The offset of the first event after the last replay.
    pub(crate) first: Offset,
    /// Whether the checked rows beside those of the log are put and read back: the storage cannot
    /// write all rows of a group atomically. Other storages write these rows under conditions, even
    /// if a group does not fit into one atomic write.
    pub(crate) reads_back: bool,
    /// How long an answer is kept after its event. The age of an event is measured against
    /// `age_at`, and is zero if the event is later.
    pub(crate) answers_kept: Duration,
    pub(crate) age_at: WallTime,
}

impl Rules {
    /// Plans the writes of a group.
    ///
    /// Invariant: where records are read back, a record that the group makes and changes is written
    /// twice, once in each band. A simpler version writes only its last bytes, with an order of the
    /// band *last*. A number is given twice; event 7 makes a record with it; events 9 and 10, of
    /// one group, make and change another record with the same number. So the write of the group
    /// replaces the record of event 7, and nobody notices. Level 1 accepts this, and writes the
    /// record once.
    ///
    /// # Errors
    /// Fails with `Invalid` if an epoch or an offset has too many bits for an order.
    pub(crate) fn plan(self, group: &[PreparedEvent]) -> Result<GroupWrites> {
        let records: usize = group.iter().map(|event| event.records.len()).sum();
        let answers = group.iter().filter(|event| event.answer.is_some()).count();
        let rest = group.len() + records + answers;
        let mut planned = PlannedGroup {
            rules: self,
            writes: GroupWrites {
                plog: Vec::with_capacity(group.len()),
                rest: Vec::with_capacity(rest),
                changes: Vec::new(),
            },
            keys: BytesMut::with_capacity(
                (2 * group.len() + records) * NEIGHBOUR_KEY + answers * LONGEST_KEY,
            ),
            written: HashMap::new(),
            plog_mode: self.plog_mode(group),
            may_write_twice: group
                .iter()
                .flat_map(|event| &event.records)
                .any(|record| record.replaces.is_some()),
        };
        for event in group {
            planned.add(event)?;
        }
        Ok(planned.writes)
    }

    /// How the events of a group are written into the log of the partition.
    ///
    /// Invariant: a leader inserts its first group at every level. A simpler version puts each
    /// group at level 2. At level 0 leader A stands still before it inserts event 7; the level
    /// becomes 2; leader B replays the log up to event 6; the insert of A lands; B puts its own
    /// event 7 and acknowledges it. The insert lies above the put, so the event of B would be lost.
    /// The first group of B is enough: A inserts its events at the end of the log that A knew,
    /// which is not past the end that B knows. If another event is there, the insert of A is
    /// refused.
    fn plog_mode(self, group: &[PreparedEvent]) -> WriteMode {
        let is_first = group.first().is_some_and(|event| event.plog == self.first);
        match self.level {
            TrustLevel::Two if !is_first => WriteMode::Ordered(None),
            _ => WriteMode::Conditional(None),
        }
    }

    /// How an event is written into the log of its workspace.
    fn wlog_mode(self, is_marker: bool) -> WriteMode {
        match self.level {
            // A marker must not replace an event that is whole.
            _ if is_marker => WriteMode::Conditional(None),
            TrustLevel::Two => WriteMode::Ordered(None),
            _ if self.reads_back => WriteMode::ReadBack(None),
            _ => WriteMode::Conditional(None),
        }
    }

    /// How a record is written. `before` is the row that was read before an update.
    ///
    /// Invariant: a record that hides ordered writes is written conditionally at every level. A
    /// simpler version puts it at levels 1 and 2. At level 0 the record was written in an atomic
    /// write, under a condition; the level becomes 1; a command updates the record. So the update
    /// would be hidden, and acknowledged.
    fn record_mode(self, before: Option<FoundRow>) -> WriteMode {
        let hides_ordered = before.as_ref().is_some_and(|before| before.hides_ordered);
        match self.level {
            TrustLevel::One | TrustLevel::Two if !hides_ordered => WriteMode::Ordered(None),
            TrustLevel::Zero if self.reads_back && !hides_ordered => {
                WriteMode::ReadBack(before.map(|before| before.value))
            }
            _ => WriteMode::Conditional(before.map(|before| before.value)),
        }
    }

    /// The order of a new entry of a log. Of two events that make the entry, the first one stays.
    /// At level 2 the last one stays, so that the row of a leader that had lost its leadership can
    /// be replaced.
    fn order_of_new_entry(self, order: Order) -> Order {
        if self.level == TrustLevel::Two { order } else { order.first_wins() }
    }

    /// The order of a new record. Level 1 does not check the record, so it must replace what level
    /// 2 may have left in its place.
    fn order_of_new_record(self, order: Order) -> Order {
        match self.level {
            TrustLevel::Zero => order.first_wins(),
            TrustLevel::One if !self.level_2_wrote => order.first_wins(),
            TrustLevel::One | TrustLevel::Two => order,
        }
    }

    /// Plans the write of the stored answer to the command, if the sender may still ask for it.
    fn answer(self, event: &PreparedEvent, order: Order, keys: &mut BytesMut) -> Option<RowWrite> {
        let ((hash, after), time) = (event.answer.as_ref()?, event.time?);
        let age = Duration::from_micros(self.age_at.as_micros().saturating_sub(time.as_micros()));
        let ttl = self.answers_kept.checked_sub(age).filter(|left| !left.is_zero())?;
        let row = AppRow::Answer(event.in_ws?.0, *hash);
        Some(RowWrite {
            row,
            key: row.key_in(keys),
            kind: RowKind::Answer,
            order,
            after: after.clone(),
            mode: WriteMode::Ordered(Some(ttl.min(TTL_MAX))),
        })
    }
}

/// The plan of a group so far.
struct PlannedGroup {
    rules: Rules,
    writes: GroupWrites,
    keys: BytesMut,
    /// The write of each record that a later event of the group may write again.
    written: HashMap<(WsId, RecordId), PlannedRecord>,
    plog_mode: WriteMode,
    may_write_twice: bool,
}

/// The place of the last write of a record.
#[derive(Clone, Copy)]
enum PlannedRecord {
    InRest(usize),
    InChanges(usize),
}

impl PlannedGroup {
    fn add(&mut self, event: &PreparedEvent) -> Result<()> {
        let order = Order::from_parts(event.marked.unwrap_or(event.epoch).0, event.plog.0)?;
        let row = AppRow::Plog(self.rules.partition, event.plog);
        let plog = self.logged(row, event, order, self.plog_mode.clone());
        self.writes.plog.push(plog);
        let Some((ws, wlog)) = event.in_ws else { return Ok(()) };
        let order_of_new = self.rules.order_of_new_entry(order);
        let mode = self.rules.wlog_mode(event.marked.is_some());
        let wlog = self.logged(AppRow::Wlog(ws, wlog), event, order_of_new, mode);
        self.writes.rest.push(wlog);
        for record in &event.records {
            self.add_record(event, ws, record, order);
        }
        self.writes.rest.extend(self.rules.answer(event, order, &mut self.keys));
        Ok(())
    }

    fn logged(
        &mut self,
        row: AppRow,
        event: &PreparedEvent,
        order: Order,
        mode: WriteMode,
    ) -> RowWrite {
        let is_marker = event.marked.is_some();
        RowWrite {
            row,
            key: row.key_in(&mut self.keys),
            kind: if is_marker { RowKind::Marker } else { RowKind::Entry },
            order,
            after: event.entry.clone(),
            mode,
        }
    }

    fn add_record(&mut self, event: &PreparedEvent, ws: WsId, record: &RecordWrite, order: Order) {
        let RecordWrite { id, replaces, before, after } = record;
        let version = Version { epoch: event.epoch, plog: event.plog };
        let written = self.written.get(&(ws, *id)).copied();
        let basis = match written {
            _ if event.in_log => RecordBasis::InLog,
            Some(_) => RecordBasis::Made,
            None => RecordBasis::Read,
        };
        let earlier = match written {
            None => None,
            Some(PlannedRecord::InChanges(at)) => Some(&mut self.writes.changes[at]),
            Some(PlannedRecord::InRest(at)) => Some(&mut self.writes.rest[at]),
        };
        let mode = match earlier {
            Some(write) if write.takes_changes() => {
                // The record is written once. The write expects the bytes that the first event
                // found, and writes the record that the last event leaves.
                (write.order, write.after) = (order, after.clone());
                if let RowKind::Record { last, .. } = &mut write.kind {
                    *last = version;
                }
                return;
            }
            Some(made) => WriteMode::ReadBack(Some(made.after.clone())),
            None => self.rules.record_mode(before.clone()),
        };
        let row = AppRow::Record(ws, *id);
        let write = RowWrite {
            row,
            key: row.key_in(&mut self.keys),
            kind: RowKind::Record { replaces: *replaces, first: version, last: version, basis },
            order: match replaces {
                Some(_) => order,
                None => self.rules.order_of_new_record(order),
            },
            after: after.clone(),
            mode,
        };
        let is_made_here = written.is_some();
        if self.may_write_twice {
            let at = match is_made_here {
                true => PlannedRecord::InChanges(self.writes.changes.len()),
                false => PlannedRecord::InRest(self.writes.rest.len()),
            };
            self.written.insert((ws, *id), at);
        }
        let writes = if is_made_here { &mut self.writes.changes } else { &mut self.writes.rest };
        writes.push(write);
    }
}

#[cfg(test)]
mod tests;
