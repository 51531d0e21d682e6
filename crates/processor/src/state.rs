//! The state that a command sees: the stored rows, and the changes of earlier commands of its
//! group.

use std::sync::OnceLock;

use eventlog::{
    AppRow, DamagedRow, Epoch, EventPlace, LogWriter, Offset, Record, RecordChange, RecordId,
    StoredRecord, Version, WsId, istorage::FoundRow,
};
use hashbrown::HashMap;

use crate::{known_rows::KnownRows, lost_counters::LostCounters};

/// The changes of the commands of a group so far.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    events: Vec<(EventPlace, Vec<RecordChange>)>,
    /// The position of the last change of each record. The index is built at the first read,
    /// because most groups never read a changed record.
    index: OnceLock<ChangeIndex>,
}

type ChangeIndex = HashMap<(WsId, RecordId), (usize, usize)>;

impl Overlay {
    pub(crate) fn add(&mut self, place: EventPlace, changes: Vec<RecordChange>) {
        if let Some(index) = self.index.get_mut() {
            index_changes(index, self.events.len(), place, &changes);
        }
        self.events.push((place, changes));
    }

    pub(crate) fn get(&self, ws: WsId, id: RecordId) -> Option<(Version, &Record)> {
        if self.events.is_empty() {
            return None;
        }
        let index = self.index.get_or_init(|| {
            let mut index = ChangeIndex::new();
            for (event, (place, changes)) in self.events.iter().enumerate() {
                index_changes(&mut index, event, *place, changes);
            }
            index
        });
        let (event, change) = *index.get(&(ws, id))?;
        let (place, changes) = &self.events[event];
        Some((Version { epoch: place.epoch, plog: place.plog }, &changes[change].record))
    }

    /// The number of events of a workspace.
    pub(crate) fn events_of(&self, ws: WsId) -> u64 {
        self.events.iter().filter(|(place, _)| place.ws == ws).count() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.index.take();
    }
}

fn index_changes(
    index: &mut ChangeIndex,
    event: usize,
    place: EventPlace,
    changes: &[RecordChange],
) {
    for (change, RecordChange { record, .. }) in changes.iter().enumerate() {
        index.insert((place.ws, record.id), (event, change));
    }
}

/// The end of the log as this node knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    /// The offset of the next event.
    pub(crate) next: Offset,
    /// The epoch of the last event.
    pub(crate) epoch: Epoch,
    /// The last replay looked for events up to this offset, because rows named these events.
    pub(crate) searched_to: Offset,
}

impl LogEnd {
    /// Checks that the event which wrote a row is known to this node.
    ///
    /// Invariant: no command builds on a row whose event may be in the log, and was not replayed. A
    /// simpler version accepts every row. Leader A writes event 7 and its record, and dies; the
    /// servers lose their power, and with it event 7, but not the record; leader B replays the log
    /// up to event 6, and reads the record. So B's event 7 would follow from a record that no event
    /// of the log wrote.
    ///
    /// The check fails with `UnexpectedEvent`, and the log is read again. If the log then has no
    /// such event, the row is damaged. An event of an earlier epoch after an event of a later epoch
    /// does not count as an event of the log.
    pub(crate) fn check(self, row: AppRow, left: Version) -> Result<(), eventlog::Error> {
        if left.plog < self.next || left.epoch < self.epoch {
            return Ok(());
        }
        if left.plog <= self.searched_to {
            return Err(DamagedRow::EventNotInLog { row, plog: left.plog }.into());
        }
        Err(eventlog::Error::UnexpectedEvent(left.plog))
    }
}

/// The state that a command of a group sees.
#[derive(Debug)]
pub(crate) struct GroupView<'g> {
    pub(crate) overlay: &'g Overlay,
    pub(crate) known_rows: &'g KnownRows,
    pub(crate) log: &'g LogWriter,
    pub(crate) log_end: LogEnd,
    pub(crate) lost_counters: &'g LostCounters,
}

/// A record that was read.
#[derive(Debug)]
pub(crate) struct ReadRecord {
    pub(crate) stored: StoredRecord,
    /// The row of the record; `None` if the record is not stored yet.
    pub(crate) row: Option<FoundRow>,
}

impl GroupView<'_> {
    pub(crate) async fn read(
        &self,
        ws: WsId,
        id: RecordId,
    ) -> Result<Option<ReadRecord>, eventlog::Error> {
        if let Some((version, record)) = self.overlay.get(ws, id) {
            let stored = StoredRecord { ws, version, record: record.clone() };
            return Ok(Some(ReadRecord { stored, row: None }));
        }
        let row = AppRow::Record(ws, id);
        let found = match self.known_rows.get(&row) {
            Some(found) => found,
            None => self.log.reader().found_row(row).await?,
        };
        let stored = found.as_ref().map(|found| row.record(&found.value)).transpose()?;
        self.log.acknowledged().check(row, stored.as_ref().map(|stored| stored.version))?;
        let Some(stored) = stored else { return Ok(None) };
        self.log_end.check(row, stored.version)?;
        Ok(Some(ReadRecord { stored, row: found }))
    }
}
