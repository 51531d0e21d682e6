//! The versions of each record, from the final logs, and what operations say of them.

use std::collections::{BTreeMap, HashMap};

use super::facts::{EventTime, Facts, Known};
use crate::{
    history::{Event, Outcome, RecordKey, Request, Row, Version},
    real_time_order::{self, Ranked},
};

/// A record, its versions in the order of the log, and the operations that wrote or read it.
#[derive(Debug, Default)]
pub(super) struct RecordVersions<'h> {
    /// The version with the rank `n` is at `n - 1`. Rank 0 is the time before the record existed.
    pub(super) versions: Vec<(Version, &'h Row)>,
    /// For each version, when the first try of its command was sent, if a client sent it.
    begins: Vec<Option<u64>>,
    ranks: HashMap<Version, usize>,
    pub(super) operations: Vec<Ranked>,
}

impl<'h> RecordVersions<'h> {
    pub(super) fn rank(&self, version: Version) -> Option<usize> {
        self.ranks.get(&version).copied()
    }

    /// When the command of the version with this rank was sent.
    pub(super) fn begin(&self, rank: usize) -> Option<u64> {
        *self.begins.get(rank.checked_sub(1)?)?
    }

    /// The version that a version followed.
    pub(super) fn before(&self, version: Version) -> Option<(Version, &'h Row)> {
        let place = self.rank(version)?.checked_sub(2)?;
        self.versions.get(place).copied()
    }
}

/// All records that any event wrote, with the writes, and the reads that do not say that they may
/// be old.
pub(super) fn records<'h>(facts: &Facts<'h>) -> BTreeMap<RecordKey, RecordVersions<'h>> {
    let mut records: BTreeMap<RecordKey, RecordVersions<'h>> = BTreeMap::new();
    for (ws, events) in &facts.end.logs {
        for event in events {
            add_event(&mut records, *ws, event, facts);
        }
    }
    for operation in &facts.operations {
        let Request::Read { id, .. } = operation.request else { continue };
        // An answer is of the present version if it does not say that it may be old.
        let Outcome::Document { record, says_eventual: false } = &operation.outcome else {
            continue;
        };
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
    facts: &Facts<'h>,
) {
    let time = facts.time_of(ws, event);
    // A command without an answer ends when a client knows of its event in another way. The begin
    // is that of the command, and is not known here.
    let known = facts.known_by(ws, event).filter(|known| time.is_none_or(|of| known.at < of.end));
    for row in &event.rows {
        let record = records.entry((ws, row.id)).or_default();
        record.versions.push((event.version, row));
        let rank = record.versions.len();
        record.begins.push(time.map(|time| time.begin));
        record.ranks.insert(event.version, rank);
        let rank = real_time_order::of_write(rank);
        if let Some(EventTime { begin, end, operation }) = time {
            record.operations.push(Ranked { begin, end, rank, operation });
        }
        if let Some(Known { at: end, operation }) = known {
            record.operations.push(Ranked { begin: 0, end, rank, operation });
        }
    }
}
