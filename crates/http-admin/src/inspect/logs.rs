//! Logs and records. A damaged row has a line of its own, and the rows after it follow.

use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use http_api::{ShownFields, json_of_entry, json_of_record};
use serde_json::{Value, json};
use vvm::{
    eventlog::{self, AppRow, Offset, Reader, RecordId, WsId},
    isequencer::standard,
    istorage::{Consistency, ErrorKind},
    sysvvm::OpenedApp,
};

use super::{
    numbers::stored_numbers,
    source::{InspectError, Lines, Source, hex, limited},
};

/// The log of a partition.
pub(super) fn plog(reader: &Reader, partition: u16, from: u64, limit: usize) -> Lines {
    let lines = log(reader.clone(), move |offset| AppRow::Plog(partition, offset), from);
    limited(lines, limit)
}

/// The log of a workspace.
pub(super) fn wlog(reader: &Reader, ws: WsId, from: u64, limit: usize) -> Lines {
    limited(log(reader.clone(), move |offset| AppRow::Wlog(ws, offset), from), limit)
}

type StoredRows = BoxStream<'static, eventlog::Result<(u64, Bytes)>>;

fn log(
    reader: Reader,
    row: impl Fn(Offset) -> AppRow + Copy + Send + Sync + 'static,
    from: u64,
) -> Lines {
    let partitions = reader.partitions();
    let begin = move |from: u64| {
        let rows = reader.log_rows(row, Offset(from), Consistency::Plain);
        rows.map(|row| row.map(|(offset, bytes)| (offset.0, bytes))).boxed()
    };
    let decode = move |offset: u64, bytes: &[u8]| {
        row(Offset(offset)).entry(bytes, partitions).map(|entry| {
            let mut line = json_of_entry(&entry);
            if let Some(place) = entry.place() {
                line["workspace"] = json!(place.ws.0);
            }
            line["drawn"] = entry.drawn().iter().map(|it| json!([it.seq, it.last])).collect();
            line
        })
    };
    decoded(from, begin, move |number| row(Offset(number)), decode)
}

/// The records of a workspace from an id on: singletons and counters of gapless series, then
/// records, then records of collections.
pub(super) async fn records(
    source: &Source,
    app: &OpenedApp,
    ws: WsId,
    from: u64,
    limit: usize,
) -> Result<Lines, InspectError> {
    let stored = stored_numbers(source, app, ws).await?;
    let last = |seq| stored.iter().find(|it| it.0 == seq).map_or(0, |it| it.1);
    let (records, collections) = (standard::FIRST_RECORD_ID, standard::FIRST_CRECORD_ID);
    // A range ends after its last stored number, at the first storage partition without records.
    // That is far from the next range.
    let ranges = [
        (0, records, 1 << 17),
        (records, collections, last(standard::RECORD_ID.0)),
        (collections, u64::MAX, last(standard::CRECORD_ID.0)),
    ];
    let reader = source.reader(app);
    let lines = stream::iter(ranges.into_iter().filter(move |range| from < range.1)).flat_map(
        move |(first, _, last)| record_range(reader.clone(), ws, from.max(first), last.max(first)),
    );
    Ok(limited(lines.boxed(), limit))
}

fn record_range(reader: Reader, ws: WsId, from: u64, last: u64) -> Lines {
    let begin = move |from: u64| {
        let rows = reader.record_rows(ws, RecordId(from), RecordId(last));
        rows.map(|row| row.map(|(id, bytes)| (id.0, bytes))).boxed()
    };
    let row = move |id: u64| AppRow::Record(ws, RecordId(id));
    let decode = move |id: u64, bytes: &[u8]| {
        row(id).record(bytes).map(|it| json_of_record(&it, &ShownFields::All, None))
    };
    decoded(from, begin, row, decode)
}

/// Decodes stored rows. After a row that the storage cannot read, a new stream reads the rows that
/// follow.
fn decoded<D: std::error::Error>(
    from: u64,
    begin: impl Fn(u64) -> StoredRows + Send + Sync + 'static,
    row: impl Fn(u64) -> AppRow + Send + Sync + 'static,
    decode: impl Fn(u64, &[u8]) -> Result<Value, D> + Send + Sync + 'static,
) -> Lines {
    let damaged = move |number: u64, why: String| {
        let row = row(number);
        let mut line = json!({ "row": row.to_string(), "damaged": why });
        if let AppRow::Record(..) = row {
            line["id"] = json!(number);
        }
        line
    };
    struct Cursor<B, F> {
        rows: StoredRows,
        next: u64,
        begin: B,
        line: F,
    }
    let line = move |number: u64, read: Result<Bytes, String>| match read {
        Ok(bytes) => decode(number, &bytes).unwrap_or_else(|why| {
            let mut line = damaged(number, base::with_causes(&why));
            line["value"] = json!(hex(&bytes));
            line
        }),
        Err(why) => damaged(number, why),
    };
    let cursor = Cursor { rows: begin(from), next: from, begin, line };
    stream::try_unfold(cursor, |mut cursor| async move {
        let line = match cursor.rows.next().await {
            None => return Ok(None),
            Some(Ok((number, bytes))) => {
                cursor.next = number.saturating_add(1);
                (cursor.line)(number, Ok(bytes))
            }
            Some(Err(eventlog::Error::Storage(error))) if error.kind() == ErrorKind::Corrupt => {
                let number = cursor.next;
                cursor.next = number.saturating_add(1);
                cursor.rows = (cursor.begin)(cursor.next);
                (cursor.line)(number, Err(base::with_causes(&error)))
            }
            Some(Err(error)) => return Err(error.into()),
        };
        Ok(Some((line, cursor)))
    })
    .boxed()
}
