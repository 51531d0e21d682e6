//! The events around an event that cannot be read.

use std::collections::BTreeMap;

use futures::TryStreamExt;

use crate::{AppRow, DamagedRow, Epoch, EventPlace, Log, Offset, Result, WsId};

/// The known facts about the events around an event that cannot be read.
#[derive(Clone, Debug, Default)]
pub struct EventNeighbours {
    /// The highest number that the events in front drew, for each sequence.
    pub before: BTreeMap<u16, u64>,
    /// The offset of the next event in the log of the workspace.
    pub next: Option<Offset>,
}

impl Log {
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

    /// Checks that an event of this log is in front of an offset in the log of a workspace. A
    /// marker behind a gap would leave the gap, and readers do not get the events behind a gap.
    ///
    /// The event in front must also be in front in the log of the partition. Otherwise it may be
    /// the damaged event itself, and the marker would be one place too far.
    pub(super) async fn check_neighbour(&self, plog: Offset, ws: WsId, wlog: Offset) -> Result<()> {
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

    /// Returns the epoch of the event in front of `plog`. Epochs never fall, so the event at `plog`
    /// has that epoch or a later one.
    pub(crate) async fn epoch_before(&self, plog: Offset) -> Result<Epoch> {
        if plog == Offset::FIRST {
            return Ok(Epoch(0));
        }
        let row = AppRow::Plog(self.calls.partition, Offset(plog.0 - 1));
        let before = self.calls.get(row).await?.ok_or(DamagedRow::Missing(row))?;
        Ok(self.calls.reader.entry(row, &before)?.epoch())
    }
}
