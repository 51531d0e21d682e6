//! Which writes a group of events comes to, in which order, for a trust level and what a storage can. Nothing is written here.
//!
//! First the log of the partition: chunks in the order of offsets, each of which must be confirmed before the next is sent. Then, side by side, what the events
//! say: rows of the logs of workspaces, and records. Where the storage writes all of it at once, it is one write.

use std::collections::BTreeMap;

use bytes::Bytes;
use istorage::{
    AtomicBatch, BatchLimits, Capabilities, Conditional, Key, Order, OrderedPut, Result,
};

use crate::{Epoch, Offset, TrustLevel};

/// An event that is ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The epoch of the leader.
    pub epoch: Epoch,
    /// Its offset in the log of the partition.
    pub offset: Offset,
    /// Where it goes in the log of the partition.
    pub plog: Key,
    /// Where it goes in the log of its workspace.
    pub wlog: Key,
    /// What is written in both.
    pub entry: Bytes,
    /// The records that it writes.
    pub records: Vec<RecordWrite>,
}

/// A record that an event writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    /// Where it is.
    pub key: Key,
    /// What was read there; `None` if it is new.
    pub before: Option<Bytes>,
    /// What it is after the event.
    pub after: Bytes,
}

/// Writes of one partition of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// All or nothing, if the conditions hold.
    Conditional {
        /// The partition.
        pkey: Bytes,
        /// What is written there.
        ops: Vec<Conditional>,
    },
    /// The later event wins.
    Ordered(Vec<OrderedPut>),
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// All of it at once.
    AtOnce(AtomicBatch),
    /// One after another, and then side by side.
    InSteps {
        /// The log of the partition: each is confirmed before the next is sent.
        plog: Vec<Write>,
        /// Everything else, when the log is written. In any order.
        rest: Vec<Write>,
    },
}

/// What is written for a group of events, which follow one another in the log of a partition.
///
/// # Errors
/// `Invalid` if an epoch or an offset has too many bits to be an order.
pub fn plan(group: &[Prepared], level: TrustLevel, can: Capabilities) -> Result<Plan> {
    let rows = Rows::of(group, level)?;
    if let Some(limits) = can.atomic
        && rows.fit(limits)
    {
        return Ok(Plan::AtOnce(rows.at_once()));
    }
    let plog = in_chunks(rows.plog, can);
    let (ordered, conditional): (Vec<_>, Vec<_>) =
        rows.rest.into_values().partition(|row| matches!(row.what, What::Later { .. }));
    let mut rest = in_chunks(conditional, can);
    // Nothing of this need be atomic, so the storage splits it as it likes.
    if !ordered.is_empty() {
        rest.push(Write::Ordered(batch(ordered).ordered));
    }
    Ok(Plan::InSteps { plog, rest })
}

/// What is written in a row.
#[derive(Clone, Debug)]
struct RowWrite {
    key: Key,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// If this is there, or nothing.
    If { before: Option<Bytes>, after: Bytes },
    /// Unless a later event wrote it.
    Later { after: Bytes, order: Order },
}

impl RowWrite {
    fn bytes(&self) -> usize {
        let keys = self.key.pkey.len() + self.key.ccols.len();
        keys + match &self.what {
            What::If { before, after } => after.len() + before.as_ref().map_or(0, Bytes::len),
            What::Later { after, .. } => after.len(),
        }
    }

    /// How much of its kind is written atomically.
    fn limits(&self, can: Capabilities) -> BatchLimits {
        match self.what {
            What::If { .. } => can.conditional,
            What::Later { .. } => can.ordered.unwrap_or(BatchLimits { rows: 1, bytes: usize::MAX }),
        }
    }
}

fn conditional(ccols: Bytes, before: Option<Bytes>, after: Bytes) -> Conditional {
    match before {
        None => Conditional::Insert { ccols, value: after, ttl: None },
        Some(old) => Conditional::Swap { ccols, old, new: after, ttl: None },
    }
}

/// All rows of a group, each once.
struct Rows {
    /// In the order of offsets.
    plog: Vec<RowWrite>,
    /// By key, so that neighbours come together.
    rest: BTreeMap<Key, RowWrite>,
}

impl Rows {
    fn of(group: &[Prepared], level: TrustLevel) -> Result<Rows> {
        let mut rows = Rows { plog: Vec::with_capacity(group.len()), rest: BTreeMap::new() };
        for event in group {
            let order = Order::of_two(event.epoch.0, event.offset.0)?;
            let logged = |key: &Key| {
                let after = event.entry.clone();
                let what = match level {
                    TrustLevel::Zero | TrustLevel::One => What::If { before: None, after },
                    TrustLevel::Two => What::Later { after, order },
                };
                RowWrite { key: key.clone(), what }
            };
            rows.plog.push(logged(&event.plog));
            rows.rest.insert(event.wlog.clone(), logged(&event.wlog));
            for record in &event.records {
                rows.record(record, level, order);
            }
        }
        Ok(rows)
    }

    /// Several events of the group may write one record: it is written once, from what the first found to what the last leaves.
    fn record(&mut self, record: &RecordWrite, level: TrustLevel, order: Order) {
        let RecordWrite { key, before, after } = record.clone();
        let merged = match self.rest.remove(&key).map(|row| row.what) {
            Some(What::If { before, .. }) => before,
            _ => before,
        };
        let what = match level {
            TrustLevel::Zero => What::If { before: merged, after },
            TrustLevel::One | TrustLevel::Two => What::Later { after, order },
        };
        self.rest.insert(key.clone(), RowWrite { key, what });
    }

    fn all(&self) -> impl Iterator<Item = &RowWrite> {
        self.plog.iter().chain(self.rest.values())
    }

    fn fit(&self, limits: BatchLimits) -> bool {
        self.all().count() <= limits.rows
            && self.all().map(RowWrite::bytes).sum::<usize>() <= limits.bytes
    }

    fn at_once(self) -> AtomicBatch {
        batch(self.plog.into_iter().chain(self.rest.into_values()))
    }
}

fn batch(rows: impl IntoIterator<Item = RowWrite>) -> AtomicBatch {
    let mut batch = AtomicBatch::default();
    for RowWrite { key, what } in rows {
        match what {
            What::If { before, after } => {
                let Key { pkey, ccols } = key;
                batch.conditionals.push((pkey, conditional(ccols, before, after)));
            }
            What::Later { after, order } => {
                batch.ordered.push(OrderedPut { key, value: after, order, ttl: None });
            }
        }
    }
    batch
}

/// Neighbours of a partition together, as many as the storage writes atomically. All rows are written the same way.
fn in_chunks(rows: Vec<RowWrite>, can: Capabilities) -> Vec<Write> {
    let mut chunks: Vec<Vec<RowWrite>> = Vec::new();
    let mut size = 0;
    for row in rows {
        let limits = row.limits(can);
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
    chunks.into_iter().map(written).collect()
}

/// A chunk.
fn written(rows: Vec<RowWrite>) -> Write {
    let AtomicBatch { conditionals, ordered, .. } = batch(rows);
    match conditionals.first() {
        Some((pkey, _)) => {
            let pkey = pkey.clone();
            Write::Conditional { pkey, ops: conditionals.into_iter().map(|(_, op)| op).collect() }
        }
        None => Write::Ordered(ordered),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use istorage::RowLimits;

    use super::*;
    use crate::{RecordId, WsId, layout};

    const SMALL: BatchLimits = BatchLimits { rows: 3, bytes: 200 };

    /// What DynamoDB, Cassandra and redb are like, with small limits.
    fn can(atomic: Option<BatchLimits>, ordered: Option<BatchLimits>) -> Capabilities {
        Capabilities {
            row: RowLimits { pkey: 100, ccols: 100, value: 1_000 },
            conditional: SMALL,
            atomic,
            ordered,
            expiry_resolution: Duration::from_millis(1),
            late_write: Duration::ZERO,
        }
    }

    fn event(offset: u64, ws: u64, wlog: u64, records: Vec<RecordWrite>) -> Prepared {
        Prepared {
            epoch: Epoch(3),
            offset: Offset(offset),
            plog: layout::plog(1, Offset(offset)),
            wlog: layout::wlog(WsId(ws), Offset(wlog)),
            entry: format!("event {offset}").into(),
            records,
        }
    }

    fn record(id: u64, before: Option<&'static str>, after: &'static str) -> RecordWrite {
        RecordWrite {
            key: layout::record(WsId(1), RecordId(id)),
            before: before.map(Bytes::from),
            after: after.into(),
        }
    }

    /// What a write is, in short.
    fn short(write: &Write) -> String {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        match write {
            Write::Conditional { ops, .. } => {
                let ops = ops.iter().map(|op| match op {
                    Conditional::Insert { value, .. } => format!("+{}", text(value)),
                    Conditional::Swap { old, new, .. } => format!("{}>{}", text(old), text(new)),
                    Conditional::Delete { .. } => "?".to_owned(),
                });
                ops.collect::<Vec<_>>().join(" ")
            }
            Write::Ordered(rows) => {
                let row = |row: &OrderedPut| format!("{}@{}", text(&row.value), row.order.get());
                rows.iter().map(row).collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn steps(group: &[Prepared], level: TrustLevel, can: Capabilities) -> [Vec<String>; 2] {
        match plan(group, level, can).unwrap() {
            Plan::InSteps { plog, rest } => [plog, rest].map(|s| s.iter().map(short).collect()),
            Plan::AtOnce(batch) => panic!("{batch:?}"),
        }
    }

    fn at(offset: u64) -> u64 {
        3 << 40 | offset
    }

    #[test]
    fn each_level_writes_as_it_says() {
        let group =
            [event(1, 1, 1, vec![record(1, None, "new"), record(2, Some("old"), "updated")])];
        let can = can(None, Some(SMALL));
        let [plog, rest] = steps(&group, TrustLevel::Zero, can);
        assert_eq!(
            (plog, rest),
            (vec!["+event 1".into()], vec!["+new old>updated".into(), "+event 1".into()])
        );
        let [plog, rest] = steps(&group, TrustLevel::One, can);
        let order = at(1);
        let ordered = format!("new@{order} updated@{order}");
        assert_eq!(
            (plog, rest),
            (vec!["+event 1".into()], vec!["+event 1".into(), ordered.clone()])
        );
        let [plog, rest] = steps(&group, TrustLevel::Two, can);
        let event = format!("event 1@{order}");
        assert_eq!((plog, rest), (vec![event.clone()], vec![format!("{ordered} {event}")]));
    }

    #[test]
    fn a_chunk_ends_with_the_partition_of_the_storage_and_at_its_limits() {
        let events = |offsets: &[u64]| -> Vec<Prepared> {
            offsets.iter().map(|n| event(*n, 1, *n, Vec::new())).collect()
        };
        let one = can(None, None);
        let [plog, rest] =
            steps(&events(&[4_094, 4_095, 4_096, 4_097, 4_098, 4_099]), TrustLevel::Zero, one);
        let expected =
            ["+event 4094 +event 4095", "+event 4096 +event 4097 +event 4098", "+event 4099"];
        assert_eq!(plog, expected);
        assert_eq!(rest, expected, "the log of the workspace has the same offsets");
        let mut large = events(&[1, 2, 3]);
        large[1].entry = "x".repeat(180).into();
        let [plog, _] = steps(&large, TrustLevel::Zero, one);
        assert_eq!(plog.len(), 3, "{plog:?}");
        let [plog, rest] = steps(&events(&[1, 2]), TrustLevel::Two, one);
        assert_eq!(plog, [format!("event 1@{}", at(1)), format!("event 2@{}", at(2))]);
        assert_eq!(rest.len(), 1, "{rest:?}");
        let [plog, _] = steps(&events(&[1, 2]), TrustLevel::Two, can(None, Some(SMALL)));
        assert_eq!(plog.len(), 1, "{plog:?}");
    }

    #[test]
    fn a_record_that_several_events_write_is_written_once() {
        let group = [
            event(1, 1, 1, vec![record(1, None, "a"), record(2, Some("x"), "y")]),
            event(2, 1, 2, vec![record(1, Some("a"), "b"), record(2, Some("y"), "z")]),
        ];
        let [_, rest] = steps(&group, TrustLevel::Zero, can(None, None));
        assert_eq!(rest, ["+b x>z", "+event 1 +event 2"]);
        let [_, rest] = steps(&group, TrustLevel::One, can(None, None));
        let order = at(2);
        assert_eq!(rest, ["+event 1 +event 2".to_owned(), format!("b@{order} z@{order}")]);
    }

    #[test]
    fn what_can_be_written_at_once_is() {
        let group = [event(1, 1, 1, vec![record(1, None, "new")])];
        let enough = BatchLimits { rows: 3, bytes: 1_000 };
        let once = plan(&group, TrustLevel::One, can(Some(enough), None)).unwrap();
        let Plan::AtOnce(AtomicBatch { conditionals, ordered, puts }) = once else { panic!() };
        assert_eq!((conditionals.len(), ordered.len(), puts.len()), (2, 1, 0));
        for few in [BatchLimits { rows: 2, ..enough }, BatchLimits { bytes: 60, ..enough }] {
            let steps = plan(&group, TrustLevel::One, can(Some(few), None)).unwrap();
            assert!(matches!(steps, Plan::InSteps { .. }), "{steps:?}");
        }
    }

    #[test]
    fn an_epoch_that_is_no_order_is_refused() {
        let mut group = [event(1, 1, 1, Vec::new())];
        group[0].epoch = Epoch(1 << 23);
        assert!(plan(&group, TrustLevel::Two, can(None, None)).is_err());
    }
}
