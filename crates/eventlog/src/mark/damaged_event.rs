//! The search for an event that cannot be read, and for the place and the numbers of the event.

use bytes::Bytes;

use crate::{
    AppRow, DamagedRow, DecodeError, DrawnNumber, Entry, Error, EventPlace, Log, Offset, Result,
    WsId,
};

/// An event that cannot be read, and the known facts about it.
#[derive(Clone, Debug)]
pub struct DamagedEvent {
    pub(super) row: AppRow,
    /// The bytes in the row of the event.
    pub(super) found: Bytes,
    /// The place of the event. Its epoch is that of the copy, or else of the event in front.
    pub(super) place: EventPlace,
    /// The bytes in the place of the copy in the log of the workspace, if the copy cannot be read
    /// or trusted, either.
    pub(super) wlog: Option<Bytes>,
    /// The numbers that the event drew, if the log of the workspace has a copy that can be read and
    /// trusted.
    pub(super) drawn: Option<Vec<DrawnNumber>>,
    /// The bytes of that copy, if the copy is an event.
    pub(super) copy: Option<Bytes>,
}

impl DamagedEvent {
    /// Returns the place of the event. Its epoch is that of the copy, or else of the event in
    /// front.
    pub fn place(&self) -> EventPlace {
        self.place
    }

    /// Returns the bytes in the row of the event.
    pub fn found(&self) -> &Bytes {
        &self.found
    }

    /// Returns whether the event can be [restored](Log::restore) from its copy.
    pub fn is_restorable(&self) -> bool {
        self.copy.is_some()
    }

    /// Returns the numbers that the event drew, if the log of the workspace has a copy that can be
    /// read.
    pub fn drawn(&self) -> Option<&[DrawnNumber]> {
        self.drawn.as_deref()
    }
}

impl Log {
    /// Returns an event of this log that cannot be read. The caller gives its place in the log of a
    /// workspace. Returns `None` if the event can be read.
    ///
    /// # Errors
    /// Fails with the errors of the storage, and with
    ///
    /// - [`DamagedRow::Missing`] if there is no row at the offset, or no event before it in one of
    ///   the logs;
    /// - [`DamagedRow::Misplaced`] if the log of the workspace has another event at the given
    ///   place;
    /// - [`DamagedRow::Unreadable`] if another version of the program wrote the event or its copy:
    ///   that version can read the event.
    pub async fn damaged(
        &self,
        plog: Offset,
        ws: WsId,
        wlog: Offset,
    ) -> Result<Option<DamagedEvent>> {
        let row = AppRow::Plog(self.calls.partition, plog);
        let found = self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        if readable_entry(self.calls.reader.entry(row, &found))?.is_some() {
            return Ok(None);
        }
        let beside = AppRow::Wlog(ws, wlog);
        let copy = self.calls.get(beside).await?;
        let mut readable = match &copy {
            Some(bytes) => readable_entry(self.calls.reader.entry(beside, bytes))?,
            None => None,
        };
        if let Some(other) = readable.as_ref().map(Entry::plog).filter(|named| *named != plog) {
            // The entry is whole, and is the copy of another event.
            let named = AppRow::Plog(self.calls.partition, other);
            return Err(DamagedRow::Misplaced { row: beside, named }.into());
        }
        // A leader of level 2 that had lost its lease may have left the copy. Only the damaged
        // bytes can tell that the copy is of the same event: they name its place, or a marker has
        // them. A simpler version trusts each copy: a former leader left one in another workspace;
        // the event is marked there, with the numbers and the epoch of the copy; the log cannot be
        // read on, and the numbers of the event are given again.
        let may_be_stray = |copy: &Entry| self.strays.may_be_stray(copy.epoch());
        let is_of_event = |copy: &Entry| match copy {
            Entry::Marker(marker) if marker.bytes == found => true,
            copy => row.hinted_place(&found) == copy.place(),
        };
        readable.take_if(|copy| may_be_stray(copy) && !is_of_event(copy));
        let place = readable.as_ref().and_then(Entry::place);
        Ok(Some(match readable.zip(place) {
            Some((entry, place)) => DamagedEvent {
                row,
                found,
                place,
                wlog: None,
                drawn: Some(entry.drawn().to_vec()),
                copy: copy.filter(|_| matches!(entry, Entry::Event(_)) && !may_be_stray(&entry)),
            },
            None => {
                self.check_neighbour(plog, ws, wlog).await?;
                let epoch = self.epoch_before(plog).await?;
                let place = EventPlace { epoch, plog, ws, wlog };
                DamagedEvent { row, found, place, wlog: copy, drawn: None, copy: None }
            }
        }))
    }
}

/// Returns the entry of a row, or `None` if the entry is lost: the bytes are damaged, or belong to
/// another row. Entries of another version of the program are not lost, because that version can
/// read them.
pub(super) fn readable_entry(entry: Result<Entry>) -> Result<Option<Entry>> {
    use DecodeError::{Checksum, Malformed};
    match entry {
        Ok(entry) => Ok(Some(entry)),
        Err(Error::DamagedRow(
            DamagedRow::Misplaced { .. }
            | DamagedRow::Unreadable { why: Checksum | Malformed(_), .. },
        )) => Ok(None),
        Err(error) => Err(error),
    }
}
