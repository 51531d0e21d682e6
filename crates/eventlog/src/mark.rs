//! Marking: an operator puts a marker in the place of an event that cannot be read. The leader of
//! the partition writes the marker.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::TryStreamExt;
use istorage::{Conditional, Order, OrderedPut, Outcome};

use crate::{
    AppRow, DamagedRow, DecodeError, DrawnNumber, Entry, Epoch, Error, EventPlace, Log, Marker,
    Offset, Result, TrustLevel, Violation, WsId,
};

/// An event that cannot be read, and the known facts about it.
#[derive(Clone, Debug)]
pub struct DamagedEvent {
    row: AppRow,
    /// The bytes in the row of the event.
    found: Bytes,
    /// The place of the event. Its epoch is the epoch of the copy, or of the event in front of it.
    place: EventPlace,
    /// The bytes in the place of the copy in the log of the workspace, if the copy cannot be read,
    /// either.
    wlog: Option<Bytes>,
    /// The numbers that the event drew, if the log of the workspace has a copy that can be read.
    drawn: Option<Vec<DrawnNumber>>,
}

impl DamagedEvent {
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
    /// - [`DamagedRow::Misplaced`] if the log of the workspace has another event at the given place;
    /// - [`DamagedRow::Unreadable`] if another version of the program wrote the event or its copy:
    ///   that version can read the event.
    pub async fn damaged(
        &self,
        plog: Offset,
        ws: WsId,
        wlog: Offset,
    ) -> Result<Option<DamagedEvent>> {
        let row = AppRow::Plog(self.partition, plog);
        let found = self.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        if readable_entry(self.reader.entry(row, &found))?.is_some() {
            return Ok(None);
        }
        let beside = AppRow::Wlog(ws, wlog);
        let copy = self.get(beside).await?;
        let readable = match &copy {
            Some(bytes) => readable_entry(self.reader.entry(beside, bytes))?,
            None => None,
        };
        if let Some(place) = readable.as_ref().map(Entry::place)
            && place.plog != plog
        {
            // The entry is whole, and is the copy of another event.
            let named = AppRow::Plog(self.partition, place.plog);
            return Err(DamagedRow::Misplaced { row: beside, named }.into());
        }
        Ok(Some(match readable {
            Some(entry) => DamagedEvent {
                row,
                found,
                place: entry.place(),
                wlog: None,
                drawn: Some(entry.drawn().to_vec()),
            },
            None => {
                self.check_neighbour(ws, wlog).await?;
                let epoch = self.epoch_before(plog).await?;
                let place = EventPlace { epoch, plog, ws, wlog };
                DamagedEvent { row, found, place, wlog: copy, drawn: None }
            }
        }))
    }

    /// Checks that an event of this log is in front of an offset in the log of a workspace. A
    /// marker behind a gap would leave the gap, and readers do not get the events behind a gap.
    async fn check_neighbour(&self, ws: WsId, wlog: Offset) -> Result<()> {
        if wlog <= Offset::FIRST {
            return Ok(());
        }
        let row = AppRow::Wlog(ws, Offset(wlog.0 - 1));
        let bytes = self.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        let Ok(before) = self.reader.entry(row, &bytes) else { return Ok(()) };
        let (place, row) = (before.place(), AppRow::Plog(self.partition, before.place().plog));
        let bytes = self.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        match self.reader.entry(row, &bytes) {
            Ok(same) if same.place() != place => {
                let EventPlace { ws, wlog, .. } = same.place();
                Err(DamagedRow::Misplaced { row, named: AppRow::Wlog(ws, wlog) }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the epoch of the event in front. Epochs never fall, so the event at `plog` has that
    /// epoch or a later one.
    async fn epoch_before(&self, plog: Offset) -> Result<Epoch> {
        if plog == Offset::FIRST {
            return Ok(Epoch(0));
        }
        let row = AppRow::Plog(self.partition, Offset(plog.0 - 1));
        let before = self.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        Ok(self.reader.entry(row, &before)?.place().epoch)
    }

    /// Puts a marker in the place of exactly the bytes that were found. The log of the workspace
    /// gets the marker first, unless its copy is whole.
    ///
    /// At level 2 the bytes are compared before the write. Between the comparison and the write
    /// only the lease protects the row.
    ///
    /// # Errors
    /// Fails with [`Error::Violation`] if the row holds other bytes now.
    pub async fn mark(&self, damaged: &DamagedEvent, drawn: Vec<DrawnNumber>) -> Result<Marker> {
        let (place, marked) = (damaged.place, self.epoch());
        let marker = Marker { place, marked, drawn, bytes: damaged.found.clone() };
        let bytes = Entry::Marker(marker.clone()).to_bytes();
        let EventPlace { plog, ws, wlog, .. } = place;
        match &damaged.wlog {
            Some(copy) => self.replace(AppRow::Wlog(ws, wlog), Some(copy), &bytes, plog).await?,
            // The copy is missing. Only a leader that reads the log from this event on would write
            // the copy.
            None if damaged.drawn.is_none() => {
                self.replace(AppRow::Wlog(ws, wlog), None, &bytes, plog).await?;
            }
            None => {}
        }
        self.replace(damaged.row, Some(&damaged.found), &bytes, plog).await?;
        Ok(marker)
    }

    /// Replaces the bytes of a row, `found`, by a marker.
    ///
    /// Invariant: `Ok` means that the row holds the marker. At level 2 a simpler version does not
    /// read the row again after the write. A leader writes an event; the same leader marks the
    /// event, with the same order; of two writes of the same order either may stay, and the event
    /// stays. So the version would report a marker that does not exist.
    async fn replace(
        &self,
        row: AppRow,
        found: Option<&Bytes>,
        marker: &Bytes,
        plog: Offset,
    ) -> Result<()> {
        let (storage, key) = (self.reader.storage(), row.key());
        let why = "changed after the marking began";
        if self.settings.level == TrustLevel::Two {
            // Between this read and the write, only the lease protects the row.
            let there = self.get(row).await?;
            if there.is_some() && there.as_ref() != found && there.as_ref() != Some(marker) {
                return Err(violation(row, there, marker, why));
            }
            self.wait_to_send().await?;
            let order = Order::from_parts(self.epoch().0, plog.0)?;
            let put = OrderedPut { key, value: marker.clone(), order, ttl: None };
            storage.put_ordered(vec![put], self.reader.deadline()).await?;
            // Of two writes of the same order either may stay, and the event may have been written
            // under this same epoch.
            let there = self.get(row).await?;
            if there.as_ref() != Some(marker) {
                let why = "was written under this leadership or a later one: mark it under the next leadership";
                return Err(violation(row, there, marker, why));
            }
            return Ok(());
        }
        let write = || {
            let (ccols, value) = (key.ccols.clone(), marker.clone());
            let op = match found.cloned() {
                Some(old) => Conditional::Swap { ccols, old, new: value, ttl: None },
                None => Conditional::Insert { ccols, value, ttl: None },
            };
            storage.write_if(key.pkey.clone(), vec![op], self.reader.deadline())
        };
        let (outcome, _) = self.write_settled(write).await?;
        let Outcome::NotApplied(mut conflicts) = outcome else { return Ok(()) };
        let there = conflicts.pop().and_then(|conflict| conflict.actual);
        if there.as_ref() == Some(marker) {
            return Ok(());
        }
        Err(violation(row, there, marker, why))
    }

    /// Returns the numbers that the readable events of a workspace drew, for events from offset
    /// `from` up to the damaged event at `plog`. Also returns the offset, in the log of the
    /// workspace, of the next readable event behind `plog`.
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
        let mut rows = self.log_rows(from);
        while let Some((offset, bytes)) = rows.try_next().await? {
            let row = AppRow::Plog(self.partition, offset);
            let Ok(entry) = self.reader.entry(row, &bytes) else { continue };
            if entry.place().ws != ws {
                continue;
            }
            if offset > plog {
                around.next.get_or_insert(entry.place().wlog);
                continue;
            }
            for drawn in entry.drawn() {
                let last = around.before.entry(drawn.seq).or_default();
                *last = drawn.last.max(*last);
            }
        }
        Ok(around)
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

/// The known facts about the events around an event that cannot be read.
#[derive(Clone, Debug, Default)]
pub struct EventNeighbours {
    /// The highest number that the events in front drew, for each sequence.
    pub before: BTreeMap<u16, u64>,
    /// The offset of the next event in the log of the workspace.
    pub next: Option<Offset>,
}

fn violation(row: AppRow, there: Option<Bytes>, marker: &Bytes, why: &'static str) -> Error {
    Violation { row, there, wanted: marker.clone(), why, may_pass: false }.into()
}
