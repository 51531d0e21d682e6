//! The versions of each record, from the final logs, and what operations say of them.

use std::collections::{BTreeMap, HashMap};

use crate::{
    history::{Event, History, Outcome, RecordKey, Request, Row, Version},
    real_time_order::{self, Ranked},
};

/// A record, its versions in the order of the log, and the operations that wrote or read it.
#[derive(Debug, Default)]
pub(super) struct RecordVersions<'h> {
    /// The version with the rank `n` is at `n - 1`. Rank 0 is the time before the record existed.
    pub(super) versions: Vec<(Version, &'h Row)>,
    ranks: HashMap<Version, usize>,
    pub(super) operations: Vec<Ranked>,
}

impl RecordVersions<'_> {
    pub(super) fn rank(&self, version: Version) -> Option<usize> {
        self.ranks.get(&version).copied()
    }
}

/// The time in which an event happened, as far as its clients know.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTime {
    /// When the first try was sent.
    pub(super) begin: u64,
    /// When the first answer came. [`u64::MAX`] if none came.
    pub(super) end: u64,
    /// The number of the operation that ended then, or of a try without an answer.
    pub(super) operation: u64,
}

/// The times of all events, by their request ids.
pub(super) fn event_times(history: &History) -> HashMap<&str, EventTime> {
    let mut times: HashMap<&str, EventTime> = HashMap::new();
    for operation in &history.operations {
        let Some((id, answer)) = operation.write() else { continue };
        let end = if answer.is_some() { operation.end } else { u64::MAX };
        let this = EventTime { begin: operation.begin, end, operation: operation.number };
        let time = times.entry(id).or_insert(this);
        time.begin = time.begin.min(operation.begin);
        if end < time.end {
            (time.end, time.operation) = (end, operation.number);
        }
    }
    times
}

/// All records that any event wrote, with the writes and the reads that are not eventual.
pub(super) fn records(history: &History) -> BTreeMap<RecordKey, RecordVersions<'_>> {
    let times = event_times(history);
    let mut records: BTreeMap<RecordKey, RecordVersions<'_>> = BTreeMap::new();
    for (ws, events) in &history.end.logs {
        for event in events {
            add_event(&mut records, *ws, event, &times);
        }
    }
    for operation in &history.operations {
        let Request::Read { id, eventual: false } = operation.request else { continue };
        let Outcome::Document { record, .. } = &operation.outcome else { continue };
        let Some(versions) = records.get_mut(&(operation.ws, id)) else { continue };
        let rank = match record {
            None => Some(0),
            Some(record) => versions.rank(record.version),
        };
        let Some(rank) = rank else { continue };
        versions.operations.push(Ranked {
            begin: operation.begin,
            end: operation.end,
            rank: real_time_order::of_read(rank),
            operation: operation.number,
        });
    }
    records
}

fn add_event<'h>(
    records: &mut BTreeMap<RecordKey, RecordVersions<'h>>,
    ws: u64,
    event: &'h Event,
    times: &HashMap<&str, EventTime>,
) {
    for row in &event.rows {
        let record = records.entry((ws, row.id)).or_default();
        record.versions.push((event.version, row));
        let rank = record.versions.len();
        record.ranks.insert(event.version, rank);
        if let Some(EventTime { begin, end, operation }) = times.get(&*event.request).copied() {
            let rank = real_time_order::of_write(rank);
            record.operations.push(Ranked { begin, end, rank, operation });
        }
    }
}
