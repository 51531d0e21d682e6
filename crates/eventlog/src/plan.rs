//! Which rows a group of events comes to, how each is written at a trust level, and what is sent together. Nothing is written here.

use std::{collections::HashMap, time::Duration};

use bytes::{Bytes, BytesMut};
use clock::WallTime;
use istorage::{
    AtomicBatch, BatchLimits, Capabilities, Conditional, Key, Order, OrderedPut, Result, TTL_MAX,
};

use crate::{
    Change, Corrupted, Entry, Epoch, Event, Place, RecordId, Row, StoredAnswer, TrustLevel,
    Version, WsId, layout::NEIGHBOUR_KEY, row::LONGEST_KEY, wire::Pages,
};

/// An event that is ready to be written: its bytes, and those of what it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    pub(crate) place: Place,
    pub(crate) time: Option<WallTime>,
    pub(crate) entry: Bytes,
    /// Of who marked it, if that is what it is.
    pub(crate) marked: Option<Epoch>,
    pub(crate) records: Vec<RecordWrite>,
    /// By the hash of the command's key.
    pub(crate) answer: Option<([u8; 32], Bytes)>,
}

/// A record that an event writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordWrite {
    pub(crate) id: RecordId,
    /// `None` if it is new.
    pub(crate) replaces: Option<Version>,
    /// What was read there.
    pub(crate) before: Option<Bytes>,
    pub(crate) after: Bytes,
}

impl Prepared {
    /// An event, and for each record that it does not make what was read before: of several events in a group that write one, the first says it.
    pub fn new(event: &Event, mut before: impl FnMut(RecordId) -> Option<Bytes>) -> Prepared {
        let Place { epoch, plog, ws, .. } = event.place;
        let version = Version { epoch, plog };
        // All of it is kept for as long as any of it, so it may as well lie in one place.
        let mut pages = Pages::with_capacity(1_024, 1 + event.changes.len());
        pages.event(event);
        event.changes.iter().for_each(|change| pages.record(ws, version, &change.record));
        let mut parts = pages.into_parts();
        let entry = parts.next().unwrap_or_default();
        let record = |(change, after): (&Change, Bytes)| RecordWrite {
            id: change.record.id,
            replaces: change.replaces,
            before: change.replaces.and_then(|_| before(change.record.id)),
            after,
        };
        let records = event.changes.iter().zip(parts).map(record).collect();
        let answer = event.idempotency.as_ref().map(|repeatable| {
            let answer = StoredAnswer {
                place: event.place,
                key: repeatable.key,
                body: repeatable.body,
                answer: repeatable.answer.clone(),
            };
            (repeatable.key, answer.to_bytes())
        });
        Prepared {
            place: event.place,
            time: Some(event.time),
            entry,
            marked: None,
            records,
            answer,
        }
    }

    /// An entry that is in the log of its partition, in these bytes.
    pub(crate) fn again(entry: &Entry, bytes: Bytes) -> Prepared {
        match entry {
            Entry::Event(event) => Prepared { entry: bytes, ..Prepared::new(event, |_| None) },
            Entry::Corrupted(Corrupted { place, marked, .. }) => Prepared {
                place: *place,
                time: None,
                entry: bytes,
                marked: Some(*marked),
                records: Vec::new(),
                answer: None,
            },
        }
    }

    /// Where it goes.
    pub fn place(&self) -> Place {
        self.place
    }

    /// How much it writes.
    pub fn bytes(&self) -> usize {
        let records = self.records.iter().map(|record| record.after.len()).sum::<usize>();
        2 * self.entry.len() + records + self.answer.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }

    /// How large its largest row is.
    pub fn largest_row(&self) -> usize {
        let records = self.records.iter().map(|record| record.after.len()).max().unwrap_or(0);
        let answer = self.answer.as_ref().map_or(0, |(_, bytes)| bytes.len());
        self.entry.len().max(records).max(answer)
    }
}

/// What is written in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowWrite {
    pub(crate) row: Row,
    pub(crate) key: Key,
    pub(crate) what: What,
    /// Of the event, or of who marked it.
    pub(crate) order: Order,
    pub(crate) after: Bytes,
    pub(crate) how: How,
}

/// What a row is, as far as it decides what may be there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Nothing else.
    Entry,
    /// The event that it marks may be whole here.
    Marker,
    /// What the first event that writes it here replaced, or nothing, and then what others wrote here.
    Record { replaces: Option<Version>, first: Version, last: Version },
    /// Anything.
    Answer,
}

/// How a row is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// If this is there, or nothing.
    If(Option<Bytes>),
    /// Unless a later event wrote it.
    Later(Option<Duration>),
}

impl RowWrite {
    pub(crate) fn bytes(&self) -> usize {
        let before = match &self.how {
            How::If(Some(before)) => before.len(),
            _ => 0,
        };
        self.key.pkey.len() + self.key.ccols.len() + self.after.len() + before
    }

    pub(crate) fn is_conditional(&self) -> bool {
        matches!(self.how, How::If(_))
    }

    /// Of a conditional row.
    pub(crate) fn conditional(&self) -> Conditional {
        let (ccols, value) = (self.key.ccols.clone(), self.after.clone());
        match &self.how {
            How::If(Some(old)) => {
                Conditional::Swap { ccols, old: old.clone(), new: value, ttl: None }
            }
            _ => Conditional::Insert { ccols, value, ttl: None },
        }
    }

    /// Of an ordered row.
    pub(crate) fn ordered(&self) -> OrderedPut {
        let ttl = match self.how {
            How::Later(ttl) => ttl,
            How::If(_) => None,
        };
        OrderedPut { key: self.key.clone(), value: self.after.clone(), order: self.order, ttl }
    }
}

/// All rows of a group, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    /// In the order of offsets.
    pub(crate) plog: Vec<RowWrite>,
    /// In any order.
    pub(crate) rest: Vec<RowWrite>,
}

/// How the rows of an application are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) partition: u16,
    pub(crate) level: TrustLevel,
    /// For how long an answer is kept after its event, and what time it is.
    pub(crate) answers: Duration,
    pub(crate) now: WallTime,
}

impl Rows {
    /// # Errors
    /// `Invalid` if an epoch or an offset has too many bits to be an order.
    pub(crate) fn of(group: &[Prepared], rules: Rules) -> Result<Rows> {
        let records: usize = group.iter().map(|event| event.records.len()).sum();
        let answers = group.iter().filter(|event| event.answer.is_some()).count();
        let rest = group.len() + records + answers;
        let mut rows =
            Rows { plog: Vec::with_capacity(group.len()), rest: Vec::with_capacity(rest) };
        let mut keys = BytesMut::with_capacity(
            (2 * group.len() + records) * NEIGHBOUR_KEY + answers * LONGEST_KEY,
        );
        // Where records are that a later event of the group may write again.
        let mut written: HashMap<(WsId, RecordId), usize> = HashMap::new();
        let mut records = group.iter().flat_map(|event| &event.records);
        let may_write_twice = records.any(|record| record.replaces.is_some());
        for event in group {
            let Place { epoch, plog, ws, wlog } = event.place;
            let order = Order::from_parts(event.marked.unwrap_or(epoch).0, plog.0)?;
            let version = Version { epoch, plog };
            let logged = |row: Row, keys: &mut BytesMut| RowWrite {
                row,
                key: row.key_in(keys),
                what: if event.marked.is_some() { What::Marker } else { What::Entry },
                order,
                after: event.entry.clone(),
                how: match rules.level {
                    TrustLevel::Zero | TrustLevel::One => How::If(None),
                    TrustLevel::Two => How::Later(None),
                },
            };
            rows.plog.push(logged(Row::Plog(rules.partition, plog), &mut keys));
            rows.rest.push(logged(Row::Wlog(ws, wlog), &mut keys));
            for RecordWrite { id, replaces, before, after } in &event.records {
                if may_write_twice {
                    // It is written once, from what the first found to what the last leaves.
                    if let Some(at) = written.get(&(ws, *id)) {
                        let row = &mut rows.rest[*at];
                        (row.order, row.after) = (order, after.clone());
                        if let What::Record { last, .. } = &mut row.what {
                            *last = version;
                        }
                        continue;
                    }
                    written.insert((ws, *id), rows.rest.len());
                }
                let row = Row::Record(ws, *id);
                let how = match rules.level {
                    TrustLevel::Zero => How::If(before.clone()),
                    TrustLevel::One | TrustLevel::Two => How::Later(None),
                };
                let what = What::Record { replaces: *replaces, first: version, last: version };
                let (key, after) = (row.key_in(&mut keys), after.clone());
                rows.rest.push(RowWrite { row, key, what, order, after, how });
            }
            rows.answer(event, order, rules, &mut keys);
        }
        Ok(rows)
    }

    /// What the command was answered, if anybody can still ask.
    fn answer(&mut self, event: &Prepared, order: Order, rules: Rules, keys: &mut BytesMut) {
        let (Some((hash, after)), Some(time)) = (&event.answer, event.time) else { return };
        let age = Duration::from_micros(rules.now.as_micros().saturating_sub(time.as_micros()));
        let Some(ttl) = rules.answers.checked_sub(age).filter(|left| !left.is_zero()) else {
            return;
        };
        let row = Row::Answer(event.place.ws, *hash);
        self.rest.push(RowWrite {
            row,
            key: row.key_in(keys),
            what: What::Answer,
            order,
            after: after.clone(),
            how: How::Later(Some(ttl.min(TTL_MAX))),
        });
    }

    fn all(&self) -> impl Iterator<Item = &RowWrite> {
        self.plog.iter().chain(&self.rest)
    }

    /// Whether all of it can be written at once.
    pub(crate) fn fit(&self, limits: BatchLimits) -> bool {
        self.plog.len() + self.rest.len() <= limits.rows
            && self.all().map(RowWrite::bytes).sum::<usize>() <= limits.bytes
    }

    /// All of it at once. The rows with conditions come in the order of [`Rows::all`].
    pub(crate) fn at_once(&self) -> AtomicBatch {
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

    /// The row of a condition of [`Rows::at_once`].
    pub(crate) fn conditional(&self, op: usize) -> Option<&RowWrite> {
        self.all().filter(|row| row.is_conditional()).nth(op)
    }
}

/// Neighbours of a partition together, as many as the storage writes atomically, in the order that they are in.
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
