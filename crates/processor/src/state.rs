//! The state that a command sees: the stored rows, and the changes of earlier commands of its
//! group.

use std::sync::OnceLock;

use bytes::Bytes;
use eventlog::{
    Broken, Change, Epoch, Offset, Place, Reader, Record, RecordId, Row, StoredRecord, Version,
    WsId,
};
use hashbrown::HashMap;

use crate::group::Ahead;

/// The changes of the commands of a group so far.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    events: Vec<(Place, Vec<Change>)>,
    /// The position of the last change of each record. The index is built at the first read,
    /// because most groups never read a changed record.
    index: OnceLock<Index>,
}

type Index = HashMap<(WsId, RecordId), (usize, usize)>;

impl Overlay {
    pub(crate) fn add(&mut self, place: Place, changes: Vec<Change>) {
        if let Some(index) = self.index.get_mut() {
            note(index, self.events.len(), place, &changes);
        }
        self.events.push((place, changes));
    }

    pub(crate) fn get(&self, ws: WsId, id: RecordId) -> Option<(Version, &Record)> {
        if self.events.is_empty() {
            return None;
        }
        let index = self.index.get_or_init(|| {
            let mut index = Index::new();
            for (event, (place, changes)) in self.events.iter().enumerate() {
                note(&mut index, event, *place, changes);
            }
            index
        });
        let (event, change) = *index.get(&(ws, id))?;
        let (place, changes) = &self.events[event];
        Some((Version { epoch: place.epoch, plog: place.plog }, &changes[change].record))
    }

    /// The rows of the records that the commands wrote.
    pub(crate) fn written(&self) -> impl Iterator<Item = Row> {
        let row = |place: &Place, change: &Change| Row::Record(place.ws, change.record.id);
        self.events
            .iter()
            .flat_map(move |(place, changes)| changes.iter().map(move |change| row(place, change)))
    }

    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.index.take();
    }
}

fn note(index: &mut Index, event: usize, place: Place, changes: &[Change]) {
    for (change, Change { record, .. }) in changes.iter().enumerate() {
        index.insert((place.ws, record.id), (event, change));
    }
}

/// The end of the log as this node knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The offset of the next event.
    pub(crate) next: Offset,
    /// The epoch of the last event.
    pub(crate) epoch: Epoch,
    /// The last replay looked for events up to this offset, because rows named these events.
    pub(crate) sought: Offset,
}

impl Seen {
    /// Checks that the event which wrote a row is known to this node.
    ///
    /// A row may name an event that this node has not replayed. Leader A stalls before it writes an
    /// event; leader B replays the log; then A's event and its rows land; B reads such a row.
    /// Commands of B must not build on that row before the log is read again, so the check fails
    /// with `Overtaken`. An event of an earlier epoch behind an event of a later epoch does not
    /// count as an event of the log.
    ///
    /// If the log was read again up to that offset and has no such event, no event wrote the row,
    /// and the row is damaged.
    pub(crate) fn check(self, row: Row, left: Version) -> Result<(), eventlog::Error> {
        if left.plog < self.next || left.epoch < self.epoch {
            return Ok(());
        }
        if left.plog <= self.sought {
            return Err(Broken::OfNoEvent { row, plog: left.plog }.into());
        }
        Err(eventlog::Error::Overtaken(left.plog))
    }
}

/// The state that a command of a group sees.
#[derive(Debug)]
pub(crate) struct State<'g> {
    pub(crate) overlay: &'g Overlay,
    pub(crate) ahead: &'g Ahead,
    pub(crate) reader: &'g Reader,
    pub(crate) seen: Seen,
}

/// A record that was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) stored: StoredRecord,
    /// The stored bytes of the record; `None` if the record is not stored yet.
    pub(crate) bytes: Option<Bytes>,
}

impl State<'_> {
    pub(crate) async fn read(
        &self,
        ws: WsId,
        id: RecordId,
    ) -> Result<Option<Read>, eventlog::Error> {
        if let Some((version, record)) = self.overlay.get(ws, id) {
            let stored = StoredRecord { ws, version, record: record.clone() };
            return Ok(Some(Read { stored, bytes: None }));
        }
        let row = Row::Record(ws, id);
        let bytes = match self.ahead.get(&row) {
            Some(bytes) => bytes,
            None => self.reader.row(row).await?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let stored = row.record(&bytes)?;
        self.seen.check(row, stored.version)?;
        Ok(Some(Read { stored, bytes: Some(bytes) }))
    }
}
