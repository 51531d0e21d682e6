//! The rows of a marked event, which no event has any more.
//!
//! The content of a marked event is lost, so a replay cannot make its rows again. The export reads
//! them from the storage: the copy of the event in the log of the workspace, if the copy is whole;
//! its records, if no later event replaced them; and the stored numbers of the workspace, because
//! an operator may have given too low ones for the marker.

use std::{cmp::Reverse, io::Write, sync::Arc};

use bytes::Bytes;
use eventlog::{AppRow, Entry, Marker, Reader, RecordId};
use futures::TryStreamExt;
use isequencer::standard;
use seqstorage::numbers_in_view;
use sysvvm::{LastNumber, NumberRows};

use crate::{
    CALL_TIME, ExportError, Exporter,
    line::{CopyLine, Line, NumberLine, RecordLine},
    writer::StreamWriter,
};

impl Exporter {
    /// Writes the lines that belong to a marker.
    pub(crate) async fn write_rows_of_marked<W: Write>(
        &self,
        lines: &mut StreamWriter<'_, W>,
        marker: &Marker,
        bytes: &Bytes,
    ) -> Result<(), ExportError> {
        let place = marker.place;
        let reader = self.reader();
        let beside = AppRow::Wlog(place.ws, place.wlog);
        let copy = reader.row(beside).await?.filter(|copy| copy != bytes);
        if let Some(copy) = copy
            && let Ok(Entry::Event(event)) = beside.entry(&copy, self.app.entry.partitions)
            && event.place.plog == place.plog
        {
            let (ws, wlog) = (place.ws.0, place.wlog.0);
            lines.write(&Line::Copy(CopyLine { ws, wlog, bytes: copy }))?;
        }
        let numbers = self.stored_numbers(marker).await?;
        self.write_records_of_marked(lines, marker, &reader, &numbers).await?;
        for LastNumber { ws, seq, number } in numbers {
            // The marker has the offset in the log of the workspace.
            if seq != standard::WLOG_OFFSET.0 {
                lines.write(&Line::Number(NumberLine { ws, sequence: seq, last: number }))?;
            }
        }
        Ok(())
    }

    /// Searches the records of the workspace for those that the marked event wrote.
    async fn write_records_of_marked<W: Write>(
        &self,
        lines: &mut StreamWriter<'_, W>,
        marker: &Marker,
        reader: &Reader,
        numbers: &[LastNumber],
    ) -> Result<(), ExportError> {
        let last = |seq| numbers.iter().find(|it| it.seq == seq).map_or(0, |it| it.number);
        let (records, collections) = (standard::FIRST_RECORD_ID, standard::FIRST_CRECORD_ID);
        // A range ends after its last stored number, at the first storage partition without
        // records.
        let ranges = [
            (0, 1 << 17),
            (records, last(standard::RECORD_ID.0)),
            (collections, last(standard::CRECORD_ID.0)),
        ];
        let ws = marker.place.ws;
        for (from, last) in ranges {
            let last = RecordId(last.max(from));
            let mut rows = reader.record_rows(ws, RecordId(from), last);
            while let Some((id, bytes)) = rows.try_next().await? {
                // Either an event has the damaged record, and a replay makes it again, or the
                // record is lost.
                let stored = AppRow::Record(ws, id).record(&bytes);
                // The marker may not know the epoch of its event, but the offset is unique.
                if stored.is_ok_and(|stored| stored.version.plog == marker.place.plog) {
                    lines.write(&Line::Record(RecordLine { ws: ws.0, id: id.0, bytes }))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the stored numbers of the workspace of a marker. Nodes may be configured to store
    /// them in either of two places, and the higher number counts.
    async fn stored_numbers(&self, marker: &Marker) -> Result<Vec<LastNumber>, ExportError> {
        let ws = marker.place.ws;
        let mut all = Vec::new();
        for rows in self.places(ws.partition(self.app.entry.partitions)) {
            all.extend(rows.all(ws.0, self.clock.now() + CALL_TIME).await?);
        }
        // The view has a row of the log of the partition beside the numbers of workspace 0.
        all.retain(|number| number.seq != 0);
        all.sort_by_key(|it| (it.seq, Reverse(it.number)));
        all.dedup_by_key(|it| it.seq);
        Ok(all)
    }

    fn places(&self, partition: u16) -> [NumberRows; 2] {
        let storage = Arc::clone(&self.app.storage);
        let view = numbers_in_view(storage, self.clock.clone(), partition);
        [self.system.numbers(&self.app.entry), view]
    }
}
