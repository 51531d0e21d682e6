//! The plan of a group: its rows, the way in which each row is written at a trust level, and the
//! rows that are sent together.
//!
//! The module does no I/O.

use std::{collections::HashMap, time::Duration};

use bytes::{Bytes, BytesMut};
use clock::WallTime;
use istorage::{
    AtomicBatch, BatchLimits, Capabilities, Conditional, Key, Order, OrderedPut, Result, TTL_MAX,
};

use crate::{
    AppRow, EventPlace, PreparedEvent, RecordId, TrustLevel, Version, WsId, app_row::LONGEST_KEY,
    layout::NEIGHBOUR_KEY, prepared::RecordWrite,
};

/// The write of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowWrite {
    pub(crate) row: AppRow,
    pub(crate) key: Key,
    pub(crate) kind: RowKind,
    /// The order of the event. The order of a marker has the epoch of the leader that marked the
    /// event.
    pub(crate) order: Order,
    pub(crate) after: Bytes,
    pub(crate) mode: WriteMode,
}

/// The kind of a row. The kind decides which bytes the row may hold before the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// An event in a log. The row may hold no other entry.
    Entry,
    /// A marker in a log. The row may hold the marked event, if it is whole here.
    Marker,
    /// A record. The row may be missing, may hold the version that the first event of the group
    /// replaced (`replaces`), or a version that events of the group wrote (from `first` to `last`).
    Record { replaces: Option<Version>, first: Version, last: Version },
    /// An answer. The row may hold any bytes.
    Answer,
}

/// The way in which a row is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// Write the row if it holds exactly these bytes; with `None`, if it does not exist.
    Conditional(Option<Bytes>),
    /// Write the row unless a later event wrote it. The duration is the TTL.
    Ordered(Option<Duration>),
}

impl RowWrite {
    pub(crate) fn bytes(&self) -> usize {
        let before = match &self.mode {
            WriteMode::Conditional(Some(before)) => before.len(),
            _ => 0,
        };
        self.key.pkey.len() + self.key.ccols.len() + self.after.len() + before
    }

    pub(crate) fn is_conditional(&self) -> bool {
        matches!(self.mode, WriteMode::Conditional(_))
    }

    /// Returns the write of a conditional row.
    pub(crate) fn conditional(&self) -> Conditional {
        let (ccols, value) = (self.key.ccols.clone(), self.after.clone());
        match &self.mode {
            WriteMode::Conditional(Some(old)) => {
                Conditional::Swap { ccols, old: old.clone(), new: value, ttl: None }
            }
            _ => Conditional::Insert { ccols, value, ttl: None },
        }
    }

    /// Returns the write of an ordered row.
    pub(crate) fn ordered(&self) -> OrderedPut {
        let ttl = match self.mode {
            WriteMode::Ordered(ttl) => ttl,
            WriteMode::Conditional(_) => None,
        };
        OrderedPut { key: self.key.clone(), value: self.after.clone(), order: self.order, ttl }
    }
}

/// All rows of a group, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupRows {
    /// The rows of the log, in the order of offsets.
    pub(crate) plog: Vec<RowWrite>,
    /// The other rows, in any order.
    pub(crate) rest: Vec<RowWrite>,
}

/// The rules by which the rows of an application are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) partition: u16,
    pub(crate) level: TrustLevel,
    /// The time for which an answer is kept after its event. The age of an event is measured
    /// against `now`.
    pub(crate) answers: Duration,
    pub(crate) now: WallTime,
}

impl GroupRows {
    /// Plans the rows of a group.
    ///
    /// # Errors
    /// Fails with `Invalid` if an epoch or an offset has too many bits for an order.
    pub(crate) fn plan(group: &[PreparedEvent], rules: Rules) -> Result<GroupRows> {
        let records: usize = group.iter().map(|event| event.records.len()).sum();
        let answers = group.iter().filter(|event| event.answer.is_some()).count();
        let rest = group.len() + records + answers;
        let mut rows =
            GroupRows { plog: Vec::with_capacity(group.len()), rest: Vec::with_capacity(rest) };
        let mut keys = BytesMut::with_capacity(
            (2 * group.len() + records) * NEIGHBOUR_KEY + answers * LONGEST_KEY,
        );
        // The index of each record row that a later event of the group may write again.
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
                mode: match rules.level {
                    TrustLevel::Zero | TrustLevel::One => WriteMode::Conditional(None),
                    TrustLevel::Two => WriteMode::Ordered(None),
                },
            };
            rows.plog.push(logged(AppRow::Plog(rules.partition, plog), &mut keys));
            rows.rest.push(logged(AppRow::Wlog(ws, wlog), &mut keys));
            for RecordWrite { id, replaces, before, after } in &event.records {
                if may_write_twice {
                    // The record is written once. The write expects the bytes that the first event
                    // found, and writes the record that the last event leaves.
                    if let Some(at) = written.get(&(ws, *id)) {
                        let row = &mut rows.rest[*at];
                        (row.order, row.after) = (order, after.clone());
                        if let RowKind::Record { last, .. } = &mut row.kind {
                            *last = version;
                        }
                        continue;
                    }
                    written.insert((ws, *id), rows.rest.len());
                }
                let row = AppRow::Record(ws, *id);
                let mode = match rules.level {
                    TrustLevel::Zero => WriteMode::Conditional(before.clone()),
                    TrustLevel::One | TrustLevel::Two => WriteMode::Ordered(None),
                };
                let kind = RowKind::Record { replaces: *replaces, first: version, last: version };
                let (key, after) = (row.key_in(&mut keys), after.clone());
                rows.rest.push(RowWrite { row, key, kind, order, after, mode });
            }
            rows.answer(event, order, rules, &mut keys);
        }
        Ok(rows)
    }

    /// Plans the stored answer to the command, if the sender may still ask for the answer.
    fn answer(&mut self, event: &PreparedEvent, order: Order, rules: Rules, keys: &mut BytesMut) {
        let (Some((hash, after)), Some(time)) = (&event.answer, event.time) else { return };
        let age = Duration::from_micros(rules.now.as_micros().saturating_sub(time.as_micros()));
        let Some(ttl) = rules.answers.checked_sub(age).filter(|left| !left.is_zero()) else {
            return;
        };
        let row = AppRow::Answer(event.place.ws, *hash);
        self.rest.push(RowWrite {
            row,
            key: row.key_in(keys),
            kind: RowKind::Answer,
            order,
            after: after.clone(),
            mode: WriteMode::Ordered(Some(ttl.min(TTL_MAX))),
        });
    }

    fn all(&self) -> impl Iterator<Item = &RowWrite> {
        self.plog.iter().chain(&self.rest)
    }

    /// Returns whether all rows fit into one atomic write.
    pub(crate) fn fits(&self, limits: BatchLimits) -> bool {
        self.plog.len() + self.rest.len() <= limits.rows
            && self.all().map(RowWrite::bytes).sum::<usize>() <= limits.bytes
    }

    /// Returns all rows as one atomic write. The conditional rows are in the order of
    /// [`GroupRows::all`].
    pub(crate) fn atomic_batch(&self) -> AtomicBatch {
        let rows = self.plog.len() + self.rest.len();
        let (mut conditionals, mut ordered) = (Vec::with_capacity(rows), Vec::new());
        for row in self.all() {
            if row.is_conditional() {
                conditionals.push((row.key.pkey.clone(), row.conditional()));
            } else {
                ordered.push(row.ordered());
            }
        }
        AtomicBatch { conditionals, ordered, puts: Vec::new() }
    }

    /// Returns the row of a condition of [`GroupRows::atomic_batch`].
    pub(crate) fn conditional(&self, op: usize) -> Option<&RowWrite> {
        self.all().filter(|row| row.is_conditional()).nth(op)
    }
}

/// Splits rows into chunks that the storage writes atomically. The rows of a chunk are neighbours
/// of one storage partition, and keep their order.
pub(crate) fn in_chunks(rows: Vec<RowWrite>, can: &Capabilities) -> Vec<Vec<RowWrite>> {
    const ONE: BatchLimits = BatchLimits { rows: 1, bytes: usize::MAX };
    let mut chunks: Vec<Vec<RowWrite>> = Vec::new();
    let mut size = 0;
    for row in rows {
        let limits =
            if row.is_conditional() { can.conditional } else { can.ordered.unwrap_or(ONE) };
        size += row.bytes();
        match chunks.last_mut() {
            Some(chunk)
                if chunk[0].key.pkey == row.key.pkey
                    && chunk.len() < limits.rows
                    && size <= limits.bytes =>
            {
                chunk.push(row);
            }
            _ => {
                size = row.bytes();
                chunks.push(vec![row]);
            }
        }
    }
    chunks
}

#[cfg(test)]
mod tests;
