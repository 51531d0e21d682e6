//! What a repair needs to know: the place and the numbers of an event that cannot be read, the
//! epoch of a fencing entry, and whether a row may be removed.

use bytes::Bytes;
use clock::WallTime;
use futures::TryStreamExt;

use super::{DamagedEvent, DamagedFencing, EventNeighbours, LogRepair, PlaceEvidence};
use crate::{
    AppRow, DamagedRow, DecodeError, Entry, Epoch, Error, EventPlace, FencingEntry, Offset, Result,
    TrustLevel, WsId, wire::fencing_in_damaged,
};

impl LogRepair<'_> {
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

    /// Returns the numbers that the readable events of a workspace drew, for events from offset
    /// `from` up to the damaged event at `plog`. Also returns the offset, in the log of the
    /// workspace, of the next readable event after `plog`.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn drawn_around(
        &self,
        ws: WsId,
        from: Offset,
        plog: Offset,
    ) -> Result<EventNeighbours> {
        let mut around = EventNeighbours::default();
        let mut rows = self.calls.log_rows(from);
        while let Some((offset, bytes)) = rows.try_next().await? {
            let row = AppRow::Plog(self.calls.partition, offset);
            let Ok(entry) = self.calls.reader.entry(row, &bytes) else { continue };
            let Some(place) = entry.place().filter(|place| place.ws == ws) else { continue };
            if offset > plog {
                around.next.get_or_insert(place.wlog);
                continue;
            }
            for drawn in entry.drawn() {
                let last = around.before.entry(drawn.seq).or_default();
                *last = drawn.last.max(*last);
            }
        }
        Ok(around)
    }

    /// Checks that an event of this log is before an offset in the log of a workspace. A marker
    /// after a gap would leave the gap, and readers do not get the events after a gap.
    ///
    /// That event must also be before the marker in the log of the partition. Otherwise it may be
    /// the damaged event itself, and the marker would be one place too far.
    async fn check_neighbour(&self, plog: Offset, ws: WsId, wlog: Offset) -> Result<()> {
        if wlog <= Offset::FIRST {
            return Ok(());
        }
        let row = AppRow::Wlog(ws, Offset(wlog.0 - 1));
        let bytes = self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        let Ok(before) = self.calls.reader.entry(row, &bytes) else { return Ok(()) };
        let in_plog = AppRow::Plog(self.calls.partition, before.plog());
        if before.plog() >= plog {
            return Err(DamagedRow::Misplaced { row, named: in_plog }.into());
        }
        let bytes = self.calls.get(in_plog).await?.ok_or(DamagedRow::Missing(in_plog))?;
        match self.calls.reader.entry(in_plog, &bytes) {
            Ok(same) if same.place() != before.place() => {
                let named = match same.place() {
                    Some(EventPlace { ws, wlog, .. }) => AppRow::Wlog(ws, wlog),
                    None => in_plog,
                };
                Err(DamagedRow::Misplaced { row: in_plog, named }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the epoch of the event before `plog`. Epochs never fall, so the event at `plog` has
    /// that epoch or a later one.
    async fn epoch_before(&self, plog: Offset) -> Result<Epoch> {
        if plog == Offset::FIRST {
            return Ok(Epoch(0));
        }
        Ok(self.calls.entry_at(Offset(plog.0 - 1)).await?.epoch())
    }

    /// Returns a row of this log that cannot be read. The caller knows that it held a fencing
    /// entry. Returns `None` if the row can be read.
    ///
    /// # Errors
    /// Fails with the errors of the storage, with [`DamagedRow::Missing`] if there is no row at the
    /// offset or before it, and with [`DamagedRow::Unreadable`] if another version of the program
    /// wrote the row.
    pub async fn damaged_fencing(&self, plog: Offset) -> Result<Option<DamagedFencing>> {
        let partition = self.calls.partition;
        let row = AppRow::Plog(partition, plog);
        let found = self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        if readable_entry(self.calls.reader.entry(row, &found))?.is_some() {
            return Ok(None);
        }
        let (before, time) = self.epoch_and_time_before(plog).await?;
        let named = fencing_in_damaged(&found)
            .filter(|named| (named.partition, named.plog) == (partition, plog))
            .filter(|named| before <= named.epoch && named.epoch <= self.calls.fence.epoch());
        let epoch = match named {
            Some(named) => named.epoch,
            None => self.epoch_behind(row, &found, plog).await?.max(before),
        };
        let entry = FencingEntry { epoch, partition, plog, time };
        Ok(Some(DamagedFencing { row, found, entry }))
    }

    /// Returns an epoch that the entry in a damaged row may have had, by the entry after it.
    ///
    /// Invariant: no stray after the row comes into the log. A simpler version takes the epoch of
    /// the entry before it. At level 2 leader A of epoch 1 puts events 7 and 8, and gets no answer;
    /// leader B of epoch 2 fences the log at 7, and rejects the command of event 8; the put of A
    /// lands, so event 8 is a stray; entry 7 is damaged, and written again with epoch 1. So the
    /// next leader would find event 8 in the log, and do the rejected command.
    async fn epoch_behind(&self, row: AppRow, found: &Bytes, plog: Offset) -> Result<Epoch> {
        let next = AppRow::Plog(self.calls.partition, plog.next());
        let Some(behind) = self.calls.get(next).await? else {
            return Ok(self.calls.fence.epoch());
        };
        let behind = self.calls.reader.entry(next, &behind)?.epoch();
        match self.strays.may_be_stray(behind) {
            // It is not known whether the next entry is in the log. The error is that of the
            // damaged row.
            true => Ok(self.calls.reader.entry(row, found)?.epoch()),
            false => Ok(behind.min(self.calls.fence.epoch())),
        }
    }

    /// Returns the highest epoch and the last time before `plog`. A marker has no time.
    async fn epoch_and_time_before(&self, plog: Offset) -> Result<(Epoch, WallTime)> {
        let (mut offset, mut epoch) = (plog, Epoch(0));
        while offset > Offset::FIRST {
            offset = Offset(offset.0 - 1);
            let before = self.calls.entry_at(offset).await?;
            epoch = epoch.max(before.epoch());
            if let Some(time) = before.time() {
                return Ok((epoch, time));
            }
        }
        Ok((epoch, WallTime::from_nanos(0)))
    }

    /// Returns whether a row may be removed. A storage that orders plain writes by clocks hides
    /// every later ordered write of a removed row. So only rows that are written under a condition
    /// or read back at this level may be removed: a hidden row is then inserted. Every leader
    /// inserts the first event past the end of the log.
    pub fn may_remove(&self, row: AppRow) -> bool {
        match (self.calls.settings.level, row) {
            (_, AppRow::Plog(_, offset)) if offset == self.log.tail().next => true,
            (TrustLevel::Zero, _) | (TrustLevel::One, AppRow::Plog(..) | AppRow::Wlog(..)) => true,
            (TrustLevel::One | TrustLevel::Two, _) => false,
        }
    }

    /// Returns whether the row at an offset of this log may be a foreign row after the last event:
    /// no event comes after it, and no log of a workspace has a copy of it. The log is dense, so a
    /// row before another row was an event.
    ///
    /// # Errors
    /// Fails with the errors of the storage.
    pub async fn may_be_behind_the_end(&self, plog: Offset) -> Result<bool> {
        let epoch = match self.strays.level_2_wrote() {
            true => self.epoch_before(plog).await?,
            false => Epoch(0),
        };
        if self.strays.has_event_beyond(plog, epoch).await? {
            return Ok(false);
        }
        // A copy of level 2 may be a stray, but the row may also be its event.
        let candidates = self
            .log
            .calls
            .reader
            .place_candidates_from(self.calls.partition, plog, Epoch(0))
            .await?;
        Ok(!candidates.iter().any(|place| place.evidence == PlaceEvidence::Copy))
    }
}

/// Returns the entry of a row, or `None` if the entry is lost: the bytes are damaged, or belong to
/// another row. Entries of another version of the program are not lost, because that version can
/// read them.
fn readable_entry(entry: Result<Entry>) -> Result<Option<Entry>> {
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
