//! The storage of the model: rows with their kinds, orders and lifetimes.

use std::{collections::BTreeMap, fmt};

use crate::{
    decide::{Place, Progress},
    rows::{Equal, IndexList, Key, LogEntry, Record, RecordId, Value, Version},
};

/// The order of a row: an epoch and a number. Later epochs win.
pub(crate) type RowOrder = (u32, u64);

/// How long an empty entry stays, in days.
pub(crate) const EMPTY_DAYS: u64 = 7;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) value: Value,
    pub(crate) order: RowOrder,
    /// A row that was written under a condition, or by another program. It hides ordered writes.
    pub(crate) hides_ordered: bool,
    expires: Option<u64>,
}

/// An ordered or a plain write of a row.
#[derive(Clone, PartialEq)]
pub(crate) struct Put {
    pub(crate) key: Key,
    pub(crate) value: Value,
    /// `None` is a plain write, which the later one wins.
    pub(crate) order: Option<RowOrder>,
    pub(crate) days: Option<u64>,
}

impl Put {
    pub(crate) fn ordered(key: Key, value: Value, order: RowOrder) -> Put {
        Put { key, value, order: Some(order), days: None }
    }
}

/// A call that writes.
#[derive(Clone, PartialEq)]
pub(crate) struct Write {
    /// The entries of the log.
    pub(crate) entries: Vec<LogEntry>,
    /// Whether an entry is inserted if no row exists. Otherwise it is put with its order.
    pub(crate) inserts: bool,
    /// The strays that an insert may replace.
    pub(crate) over: Vec<LogEntry>,
    pub(crate) puts: Vec<Put>,
    /// The writes that a leader sends after this one without asking for its lease.
    pub(crate) unchecked: Vec<Put>,
}

impl Write {
    pub(crate) fn of(puts: Vec<Put>) -> Write {
        Write { entries: Vec::new(), inserts: false, over: Vec::new(), puts, unchecked: Vec::new() }
    }

    pub(crate) fn is_of_log(&self) -> bool {
        !self.entries.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Done,
    /// Another row is in the place of an entry. Nothing was written.
    Refused(LogEntry),
    /// A row is damaged. Nothing was written.
    Damaged(Key),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    rows: BTreeMap<Key, Row>,
    pub(crate) today: u64,
    /// Whether an ordered row that has expired still rejects writes with a lower order.
    pub(crate) expired_rows_reject: bool,
    /// The number of calls that wrote.
    pub(crate) writes: u64,
    /// What a caller did that the contract forbids.
    pub(crate) breach: Option<String>,
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Value> {
        self.row(key).map(|row| &row.value)
    }

    fn is_there(&self, row: &Row) -> bool {
        row.expires.is_none_or(|day| day > self.today)
    }

    pub(crate) fn row(&self, key: &Key) -> Option<&Row> {
        self.rows.get(key).filter(|row| self.is_there(row))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.rows.iter().filter(|(_, row)| self.is_there(row)).map(|(key, _)| key)
    }

    /// The ids of the live entries with a key, in their order.
    pub(crate) fn candidates(&self, number: u32, equal: Equal) -> Vec<(u8, u64)> {
        let from = Key::Entry(number, Place { equal, order: 0 }, 0);
        let to = Key::Entry(number, Place { equal, order: u8::MAX }, u64::MAX);
        let of_key = self.rows.range(from..=to).filter(|(_, row)| self.is_there(row));
        let live = of_key.filter_map(|(key, row)| match key {
            Key::Entry(_, place, id) if row.value == Value::Live => Some((place.order, *id)),
            _ => None,
        });
        live.collect()
    }

    pub(crate) fn entry(&self, offset: u64) -> Option<&LogEntry> {
        match self.get(&Key::Plog(offset)) {
            Some(Value::Log(entry)) => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn record(&self, id: RecordId) -> Option<(Record, Version)> {
        match self.get(&Key::Record(id)) {
            Some(Value::Record(record, version)) => Some((*record, *version)),
            _ => None,
        }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (RecordId, Record, Version)> + '_ {
        let from = Key::Record(RecordId { ws: 0, id: 0 });
        let to = Key::Record(RecordId { ws: u8::MAX, id: u64::MAX });
        self.rows.range(from..=to).filter_map(|(key, row)| match (key, &row.value) {
            (Key::Record(id), Value::Record(record, version)) => Some((*id, *record, *version)),
            _ => None,
        })
    }

    pub(crate) fn list(&self) -> IndexList {
        match self.get(&Key::Deployment) {
            Some(Value::List(list)) => list.clone(),
            _ => IndexList::new(),
        }
    }

    pub(crate) fn stored_offset(&self) -> u64 {
        match self.get(&Key::StoredOffset) {
            Some(Value::Offset(offset)) => *offset,
            _ => 1,
        }
    }

    pub(crate) fn progress(&self, number: u32) -> Progress {
        match self.get(&Key::Progress(number)) {
            Some(Value::Progress(progress)) => *progress,
            _ => Progress::BEGIN,
        }
    }

    /// The log from an offset on: up to the first place without an entry, or with one of an earlier
    /// epoch than the entry before, which is a stray.
    pub(crate) fn log(&self, from: u64) -> Vec<LogEntry> {
        let mut epoch = self.entry(from.saturating_sub(1)).map_or(0, |entry| entry.version.epoch);
        let mut found = Vec::new();
        for offset in from.. {
            match self.entry(offset) {
                Some(entry) if entry.version.epoch >= epoch => {
                    epoch = entry.version.epoch;
                    found.push(entry.clone());
                }
                _ => break,
            }
        }
        found
    }

    /// Writes a row whatever is there. Only faults and operators do so.
    pub(crate) fn force(&mut self, key: Key, value: Value) {
        self.writes += 1;
        self.rows
            .insert(key, Row { value, order: (u32::MAX, 0), hides_ordered: true, expires: None });
    }

    /// Replaces the value of a row, and keeps its kind.
    pub(crate) fn replace(&mut self, key: &Key, value: Value) {
        if let Some(row) = self.rows.get_mut(key) {
            row.value = value;
        }
    }

    /// An operator lowers the stored offset. Every later write of a leader replaces it.
    pub(crate) fn lower_offset(&mut self, offset: u64) {
        if let Some(row) = self.rows.get_mut(&Key::StoredOffset) {
            (row.value, row.order) = (Value::Offset(offset), (0, 0));
        }
    }

    /// Puts a row back as it was.
    pub(crate) fn restore(&mut self, key: Key, before: Option<Row>) {
        match before {
            Some(row) => _ = self.rows.insert(key, row),
            None => _ = self.rows.remove(&key),
        }
    }

    fn damaged(&self, put: &Put) -> bool {
        self.get(&put.key) == Some(&Value::Damaged)
    }

    fn put(&mut self, put: &Put) {
        let there = match self.expired_rows_reject {
            true => self.rows.get(&put.key),
            false => self.row(&put.key),
        };
        let breach = there.and_then(|there| breach(there, put));
        let is_needed = match (there, put.order) {
            (Some(there), Some(_)) if there.hides_ordered => false,
            // With the same order, the lifetime begins again.
            (Some(there), Some(order)) => order >= there.order,
            (None, _) | (_, None) => true,
        };
        if self.breach.is_none() {
            self.breach = breach;
        }
        if is_needed {
            let row = Row {
                value: put.value.clone(),
                order: put.order.unwrap_or((u32::MAX, 0)),
                hides_ordered: put.order.is_none(),
                expires: put.days.map(|days| self.today + days),
            };
            self.rows.insert(put.key, row);
        }
    }

    /// Does a call as a whole.
    pub(crate) fn apply(&mut self, write: &Write) -> Outcome {
        self.writes += 1;
        if write.inserts {
            for entry in &write.entries {
                match self.entry(entry.version.plog) {
                    Some(there) if !write.over.contains(there) => {
                        return Outcome::Refused(there.clone());
                    }
                    _ => {}
                }
            }
        }
        if let Some(put) = write.puts.iter().find(|put| self.damaged(put)) {
            return Outcome::Damaged(put.key);
        }
        for entry in &write.entries {
            let Version { epoch, plog } = entry.version;
            let (key, value) = (Key::Plog(plog), Value::Log(entry.clone()));
            if write.inserts {
                let row = Row { value, order: (epoch, plog), hides_ordered: true, expires: None };
                self.rows.insert(key, row);
            } else {
                self.put(&Put::ordered(key, value, (epoch, plog)));
            }
        }
        write.puts.iter().for_each(|put| self.put(put));
        Outcome::Done
    }
}

/// What the contract of a storage forbids to its callers.
fn breach(there: &Row, put: &Put) -> Option<String> {
    let Put { key, value, order, .. } = put;
    match order {
        _ if there.hides_ordered => None,
        None => Some(format!("{key:?}: a plain write of an ordered row")),
        Some(order) if *order == there.order && *value != there.value => {
            Some(format!("{key:?} was {:?} and is {value:?} with one order", there.value))
        }
        Some(_) => None,
    }
}

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Put { key, value, order, days } = self;
        write!(f, "{key:?} = {value:?}")?;
        match order {
            Some((epoch, number)) => write!(f, " @{epoch}.{number}")?,
            None => write!(f, " without an order")?,
        }
        days.map_or(Ok(()), |days| write!(f, " for {days} days"))
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Write { entries, inserts, over, puts, unchecked } = self;
        if !entries.is_empty() {
            write!(f, "{} {entries:?} ", if *inserts { "inserts" } else { "puts" })?;
        }
        if !over.is_empty() {
            write!(f, "over {over:?} ")?;
        }
        if !unchecked.is_empty() {
            write!(f, "and then {unchecked:?} ")?;
        }
        write!(f, "{puts:?}")
    }
}
