//! The log of a partition, for its leader, and the rows that follow from it.
//!
//! Invariant: an event in the log is not undone. All other rows follow from the events.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base::locks::lock;
use clock::{Clock, WallTime};
use istorage::SharedStorage;

use crate::{
    AcknowledgedVersions, AppRow, Epoch, Error, EventPlace, Fence, FencingEntry, LogFence,
    LogSettings, Offset, PreparedEvent, Reader, Result, TrustLevel, Violation, WsId,
    apply::Applier,
    calls::{Calls, Parts},
    plan::{GroupWrites, Rules},
    strays::Strays,
};

/// The largest size of a marker without the bytes of its event: the place of the event, and up to a
/// hundred numbers.
const MAX_MARKER_OVERHEAD: usize = 2_048;

/// The outcome of writing a group of events.
#[derive(Debug)]
#[must_use]
pub struct WriteOutcome {
    /// The number of events in the log of the partition, counted from the first of the group.
    pub committed: usize,
    /// Whether the events in the log are applied.
    pub applied: Result<()>,
    /// Why the other events are not in the log. After [`Error::Unknown`] they may be in the log.
    pub commit_error: Option<Error>,
    /// The time until the outcome of the log was known. Unless the storage writes everything in one
    /// call, the other rows were written after that.
    pub log_time: Duration,
}

/// The end of a log, and the values of the last entry that bind later entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The offset of the next entry.
    pub next: Offset,
    /// The epoch of the last entry.
    pub epoch: Epoch,
    /// The time of the last entry. No later entry may have an earlier time.
    pub time: WallTime,
}

impl Tail {
    /// The tail of an empty log.
    pub(crate) const NONE: Tail =
        Tail { next: Offset::FIRST, epoch: Epoch(0), time: WallTime::from_nanos(0) };
}

/// The log of a partition, under one leadership.
#[derive(Debug)]
pub struct LogWriter {
    pub(crate) calls: Arc<Calls>,
    pub(crate) strays: Strays,
    tail: Mutex<Tail>,
    pub(crate) applier: Applier,
}

impl LogWriter {
    /// Makes a log. This neither reads nor writes.
    pub fn new(
        storage: SharedStorage,
        clock: Clock,
        fence: Arc<dyn Fence>,
        partition: u16,
        settings: LogSettings,
    ) -> LogWriter {
        let timeout = settings.timeout;
        let calls = Arc::new(Calls {
            reader: Reader::new(storage, clock.clone(), timeout, settings.partitions),
            fence: LogFence::new(fence, clock.clone(), timeout),
            clock,
            partition,
            settings,
            parts: Parts::default(),
            last_error: Mutex::default(),
        });
        let strays = Strays { calls: Arc::clone(&calls) };
        let applier = Applier::new(Arc::clone(&calls), strays.clone());
        LogWriter { calls, strays, applier, tail: Mutex::new(Tail::NONE) }
    }

    /// Returns the number of the partition.
    pub fn partition(&self) -> u16 {
        self.calls.partition
    }

    /// Returns the clock of the log.
    pub fn clock(&self) -> &Clock {
        &self.calls.clock
    }

    /// Returns the leadership under which the log is written. The log checks it before every write.
    /// A caller checks it before it reports a success, and before a write of its own.
    pub fn fence(&self) -> &LogFence {
        &self.calls.fence
    }

    /// Returns the versions of records that the storage has acknowledged to this leader.
    pub fn acknowledged(&self) -> &AcknowledgedVersions {
        &self.applier.acknowledged
    }

    /// Returns a reader of the application's rows.
    pub fn reader(&self) -> &Reader {
        &self.calls.reader
    }

    /// Returns the largest size of an event or a record. The storage allows rows that are larger,
    /// so that a marker around an event fits, too.
    pub fn largest_row(&self) -> usize {
        self.calls.storage().capabilities().row.value.saturating_sub(MAX_MARKER_OVERHEAD)
    }

    /// Returns the end of the log as of the last [replay](LogWriter::replay). Before the first
    /// replay the end is not known.
    pub fn tail(&self) -> Tail {
        *lock(&self.tail)
    }

    pub(crate) fn set_tail(&self, tail: Tail) {
        *lock(&self.tail) = tail;
    }

    /// Returns the last error of the write under way, while a part of the write is sent again. An
    /// answer to one part also clears the errors of the other parts, until their next error.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.calls.last_error).clone()
    }

    /// Returns whether rows of events in the log may still be written: a call had no answer, and
    /// the log was not [replayed](LogWriter::replay) to its end since.
    ///
    /// A later error, such as a violation, does not settle the outcome of that call.
    pub fn has_unsettled_writes(&self) -> bool {
        self.applier.has_unsettled_writes()
    }

    /// Returns whether a write of a record notices what another program did to the row.
    pub fn checks_records(&self) -> bool {
        self.calls.settings.level == TrustLevel::Zero
    }

    fn rules(&self, age_at: WallTime) -> Rules {
        Rules {
            partition: self.calls.partition,
            level: self.calls.settings.level,
            level_2_wrote: self.strays.level_2_wrote(),
            first: self.tail().next,
            reads_back: self.calls.reads_back(),
            answers_kept: self.calls.settings.answers_kept,
            age_at,
        }
    }

    /// Plans the writes of new events. No event is earlier than the last one of the log, so their
    /// age is zero, and no step of the clock counts.
    pub(crate) fn plan_writes(&self, group: &[PreparedEvent]) -> Result<GroupWrites> {
        if let Some(event) = group.iter().find(|event| event.plog > Offset::LAST) {
            let (Offset(offset), Offset(last)) = (event.plog, Offset::LAST);
            let what = format!("the log of a partition ends at offset {last}, before {offset}");
            return Err(istorage::Error::invalid(what).into());
        }
        self.plan_at(group, self.tail().time)
    }

    /// Plans the writes of events. Their age is measured against this time.
    pub(crate) fn plan_at(&self, group: &[PreparedEvent], age_at: WallTime) -> Result<GroupWrites> {
        let mut workspaces = group.iter().filter_map(|event| event.in_ws);
        if let Some((ws, _)) = workspaces.find(|(ws, _)| !self.has_workspace(*ws)) {
            let what = format!("workspace {} is not in partition {}", ws.0, self.calls.partition);
            return Err(istorage::Error::invalid(what).into());
        }
        Ok(self.rules(age_at).plan(group)?)
    }

    /// Returns whether a workspace is in the partition of this log.
    pub fn has_workspace(&self, ws: WsId) -> bool {
        self.calls.reader.partition_of(ws) == self.calls.partition
    }

    /// Returns whether a statement about the log stays true after this node has lost the
    /// leadership. At level 2 another leader may replace events of this one.
    pub fn events_are_final(&self) -> bool {
        self.calls.settings.level != TrustLevel::Two
    }

    /// Returns whether the end of the log is *fenced*: no write of a former leader can put an event
    /// there any more. `last` is the epoch of the last entry of the log.
    ///
    /// The end is fenced if the last entry is of this leadership. A former leader writes its event
    /// at the end of the log that it knew, which is not after this entry. An insert is refused
    /// there, however late it lands, and an inserted entry hides a put of level 2. Where no write
    /// lands late, every end is fenced.
    ///
    /// The trust level does not matter. At level 2 the lease waits for late writes, but a server
    /// that stood still may let one land even later.
    pub fn is_fenced(&self, last: Epoch) -> bool {
        self.calls.storage().capabilities().late_write.is_zero() || last == self.calls.fence.epoch()
    }

    /// Returns a fencing entry of this leadership, ready to be [written](LogWriter::write) at the
    /// end of the log. `time` is not lower than that of the last entry.
    pub fn fencing_entry(&self, plog: Offset, time: WallTime) -> PreparedEvent {
        let (epoch, partition) = (self.calls.fence.epoch(), self.calls.partition);
        PreparedEvent::fencing(&FencingEntry { epoch, partition, plog, time })
    }

    /// Returns whether an event is in the log, for a caller that has found another row of the
    /// event. Where the log is written conditionally, such an event is in the log. An event of
    /// level 2 may have been replaced by another one.
    ///
    /// # Errors
    /// Fails with the errors of the storage. Also fails if the event cannot be read, because it is
    /// then not known whether the event is this one.
    pub async fn has_event(&self, place: EventPlace) -> Result<bool> {
        if !self.strays.may_be_stray(place.epoch) {
            return Ok(true);
        }
        let row = AppRow::Plog(self.calls.partition, place.plog);
        let Some(there) = self.calls.get(row).await? else { return Ok(false) };
        Ok(self.calls.reader.entry(row, &there)?.place() == Some(place))
    }

    /// Returns whether the row of a violation still holds the foreign bytes.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn is_unchanged(&self, violation: &Violation) -> Result<bool> {
        if violation.is_retryable {
            return Ok(false);
        }
        Ok(self.calls.get(violation.row).await? == violation.found)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{DrawnNumber, Entry, EventPlace, Marker};

    #[test]
    fn the_largest_event_has_room_to_be_marked() {
        let most = u64::MAX;
        let place = EventPlace {
            epoch: Epoch(most),
            plog: Offset(most),
            ws: WsId(most),
            wlog: Offset(most),
        };
        let drawn = (0..100).map(|n| DrawnNumber { seq: u16::MAX - n, last: most }).collect();
        let bytes = Bytes::from(vec![7; 100_000]);
        let size = bytes.len();
        let marker = Entry::Marker(Marker { place, marked: Epoch(most), drawn, bytes });
        assert!(marker.to_bytes().len() - size <= MAX_MARKER_OVERHEAD);
    }
}
