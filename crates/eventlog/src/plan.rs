//! The plan of a group: the writes of its rows at a trust level, and the writes that are sent
//! together.
//!
//! The module does no I/O.

mod chunks;
mod group_writes;
mod row_write;

use std::{collections::HashMap, time::Duration};

use bytes::BytesMut;
use clock::WallTime;
use istorage::{Order, Result, TTL_MAX};

pub(crate) use self::{
    chunks::in_chunks,
    group_writes::GroupWrites,
    row_write::{RowKind, RowWrite, WriteMode},
};
use crate::{
    AppRow, EventPlace, PreparedEvent, RecordId, TrustLevel, Version, WsId, app_row::LONGEST_KEY,
    layout::NEIGHBOUR_KEY, prepared::RecordWrite,
};

/// The rules by which the rows of an application are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) partition: u16,
    pub(crate) level: TrustLevel,
    /// The time for which an answer is kept after its event. The age of an event is measured
    /// against `now`.
    pub(crate) answers_kept: Duration,
    pub(crate) now: WallTime,
}

impl Rules {
    /// Plans the writes of a group.
    ///
    /// # Errors
    /// Fails with `Invalid` if an epoch or an offset has too many bits for an order.
    pub(crate) fn plan(self, group: &[PreparedEvent]) -> Result<GroupWrites> {
        let records: usize = group.iter().map(|event| event.records.len()).sum();
        let answers = group.iter().filter(|event| event.answer.is_some()).count();
        let rest = group.len() + records + answers;
        let mut writes =
            GroupWrites { plog: Vec::with_capacity(group.len()), rest: Vec::with_capacity(rest) };
        let mut keys = BytesMut::with_capacity(
            (2 * group.len() + records) * NEIGHBOUR_KEY + answers * LONGEST_KEY,
        );
        // The index of the write of each record that a later event of the group may write again.
        let mut written: HashMap<(WsId, RecordId), usize> = HashMap::new();
        let mut records = group.iter().flat_map(|event| &event.records);
        let may_write_twice = records.any(|record| record.replaces.is_some());
        for event in group {
            let EventPlace { epoch, plog, ws, wlog } = event.place;
            let order = Order::from_parts(event.marked.unwrap_or(epoch).0, plog.0)?;
            let version = Version { epoch, plog };
            let logged = |row: AppRow, keys: &mut BytesMut| RowWrite {
                row,
                key: row.key_in(keys),
                kind: if event.marked.is_some() { RowKind::Marker } else { RowKind::Entry },
                order,
                after: event.entry.clone(),
                mode: match self.level {
                    TrustLevel::Zero | TrustLevel::One => WriteMode::Conditional(None),
                    TrustLevel::Two => WriteMode::Ordered(None),
                },
            };
            writes.plog.push(logged(AppRow::Plog(self.partition, plog), &mut keys));
            writes.rest.push(logged(AppRow::Wlog(ws, wlog), &mut keys));
            for RecordWrite { id, replaces, before, after } in &event.records {
                if may_write_twice {
                    // The record is written once. The write expects the bytes that the first event
                    // found, and writes the record that the last event leaves.
                    if let Some(at) = written.get(&(ws, *id)) {
                        let write = &mut writes.rest[*at];
                        (write.order, write.after) = (order, after.clone());
                        if let RowKind::Record { last, .. } = &mut write.kind {
                            *last = version;
                        }
                        continue;
                    }
                    written.insert((ws, *id), writes.rest.len());
                }
                let row = AppRow::Record(ws, *id);
                let mode = match self.level {
                    TrustLevel::Zero => WriteMode::Conditional(before.clone()),
                    TrustLevel::One | TrustLevel::Two => WriteMode::Ordered(None),
                };
                let kind = RowKind::Record { replaces: *replaces, first: version, last: version };
                let (key, after) = (row.key_in(&mut keys), after.clone());
                writes.rest.push(RowWrite { row, key, kind, order, after, mode });
            }
            writes.rest.extend(self.answer(event, order, &mut keys));
        }
        Ok(writes)
    }

    /// Plans the write of the stored answer to the command, if the sender may still ask for it.
    fn answer(self, event: &PreparedEvent, order: Order, keys: &mut BytesMut) -> Option<RowWrite> {
        let ((hash, after), time) = (event.answer.as_ref()?, event.time?);
        let age = Duration::from_micros(self.now.as_micros().saturating_sub(time.as_micros()));
        let ttl = self.answers_kept.checked_sub(age).filter(|left| !left.is_zero())?;
        let row = AppRow::Answer(event.place.ws, *hash);
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

#[cfg(test)]
mod tests;
