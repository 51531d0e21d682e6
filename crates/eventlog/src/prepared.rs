//! Entries of a log that are ready to be written.

use bytes::Bytes;
use clock::WallTime;
use istorage::FoundRow;

use crate::{
    AppRow, Entry, Epoch, Event, EventPlace, FencingEntry, Marker, Offset, RecordChange, RecordId,
    StoredAnswer, Version, WsId, wire::Pages,
};

/// An event that is ready to be written: its bytes, and the bytes of the rows that follow from it.
/// A fencing entry is prepared in the same way, and no row follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedEvent {
    pub(crate) epoch: Epoch,
    pub(crate) plog: Offset,
    /// The workspace, and the offset in its log; `None` for a fencing entry.
    pub(crate) in_ws: Option<(WsId, Offset)>,
    pub(crate) time: Option<WallTime>,
    pub(crate) entry: Bytes,
    /// The epoch of the leader that marked the event, if this is a marker.
    pub(crate) marked: Option<Epoch>,
    /// Whether the event was in the log before, so that some of its rows may be written.
    pub(crate) in_log: bool,
    pub(crate) records: Vec<RecordWrite>,
    /// The stored answer, with the hash of the command's idempotency key.
    pub(crate) answer: Option<([u8; 32], Bytes)>,
}

/// A record that an event writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordWrite {
    pub(crate) id: RecordId,
    /// The version that the event replaces; `None` if the record is new.
    pub(crate) replaces: Option<Version>,
    /// The row of the record as it was read before the event.
    pub(crate) before: Option<FoundRow>,
    pub(crate) after: Bytes,
}

impl PreparedEvent {
    /// Prepares an event. For each record that the event updates, `before` returns the row that was
    /// read before. If several events of a group write a record, only the row that the first of
    /// them found counts.
    pub fn new(
        event: &Event,
        mut before: impl FnMut(RecordId) -> Option<FoundRow>,
    ) -> PreparedEvent {
        let EventPlace { epoch, plog, ws, wlog } = event.place;
        let version = Version { epoch, plog };
        // All parts are kept equally long, so they share one allocation.
        let mut pages = Pages::with_capacity(1_024, 1 + event.changes.len());
        pages.event(event);
        event.changes.iter().for_each(|change| pages.record(ws, version, &change.record));
        let mut parts = pages.into_parts();
        let entry = parts.next().unwrap_or_default();
        let record = |(change, after): (&RecordChange, Bytes)| RecordWrite {
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
        PreparedEvent {
            in_ws: Some((ws, wlog)),
            time: Some(event.time),
            records,
            answer,
            ..PreparedEvent::bare(epoch, plog, entry)
        }
    }

    /// An entry without a workspace, from which no other row follows.
    pub(crate) fn bare(epoch: Epoch, plog: Offset, entry: Bytes) -> PreparedEvent {
        PreparedEvent {
            epoch,
            plog,
            in_ws: None,
            time: None,
            entry,
            marked: None,
            in_log: false,
            records: Vec::new(),
            answer: None,
        }
    }

    /// Prepares a fencing entry.
    pub(crate) fn fencing(fencing: &FencingEntry) -> PreparedEvent {
        let bare = PreparedEvent::bare(fencing.epoch, fencing.plog, fencing.to_bytes());
        PreparedEvent { time: Some(fencing.time), ..bare }
    }

    /// Prepares an entry that is already in the log of its partition with these bytes.
    pub(crate) fn again(entry: &Entry, bytes: Bytes) -> PreparedEvent {
        match entry {
            Entry::Event(event) => {
                PreparedEvent { entry: bytes, in_log: true, ..PreparedEvent::new(event, |_| None) }
            }
            Entry::Fencing(fencing) => {
                PreparedEvent { entry: bytes, in_log: true, ..PreparedEvent::fencing(fencing) }
            }
            Entry::Marker(Marker { place, marked, .. }) => PreparedEvent {
                in_ws: Some((place.ws, place.wlog)),
                marked: Some(*marked),
                in_log: true,
                ..PreparedEvent::bare(place.epoch, place.plog, bytes)
            },
        }
    }

    /// Returns the place of the event; `None` for a fencing entry, which is in no workspace.
    pub fn place(&self) -> Option<EventPlace> {
        let (epoch, plog) = (self.epoch, self.plog);
        self.in_ws.map(|(ws, wlog)| EventPlace { epoch, plog, ws, wlog })
    }

    /// Returns the rows of the records that the event writes, and their bytes. The flag tells
    /// whether the row was read before the event and hides ordered writes. Such a row is written
    /// conditionally, and so it still hides them afterwards.
    pub fn records(&self) -> impl Iterator<Item = (AppRow, &Bytes, bool)> {
        self.in_ws.into_iter().flat_map(move |(ws, _)| {
            self.records.iter().map(move |record| {
                let before = record.before.as_ref();
                let hides_ordered = before.is_some_and(|before| before.hides_ordered);
                (AppRow::Record(ws, record.id), &record.after, hides_ordered)
            })
        })
    }

    /// Returns the number of bytes to write.
    pub fn bytes(&self) -> usize {
        let records = self.records.iter().map(|record| record.after.len()).sum::<usize>();
        2 * self.entry.len() + records + self.answer.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }

    /// Returns the size of the largest row.
    pub fn largest_row(&self) -> usize {
        let records = self.records.iter().map(|record| record.after.len()).max().unwrap_or(0);
        let answer = self.answer.as_ref().map_or(0, |(_, bytes)| bytes.len());
        self.entry.len().max(records).max(answer)
    }
}
