//! The reading of a stream, line by line.
//!
//! Invariant: a fact is returned only if its line may follow the lines before it, and its bytes
//! belong to the row that the line names. The end is returned only if the whole stream is as it was
//! written.

use std::{
    collections::BTreeMap,
    io::{BufRead, Read},
};

use bytes::Bytes;
use docnumbers::{CounterKey, Definition, LedgerEntry, RangeState, SeriesId, StoredDefinitions};
use eventlog::{
    AppRow, Deployment, Entry, Epoch, EventPlace, Offset, Record, RecordId, StoredRecord, WsId,
    row_formats,
};
use isequencer::{SeqId, standard};
use sha2::{Digest, Sha256};
use sysvvm::{AppName, LastNumber};

use crate::{
    FORMAT_VERSION, StreamError,
    counters::CountersSoFar,
    line::{
        AnyHeader, CopyLine, CounterName, EndLine, EventLine, FencingLine, HeaderLine, Line,
        NumberLine, RangeLine, RecordLine, SeriesLine,
    },
    writer::hex,
};

/// The longest line. A parsed line may take many times its length, and a schema does.
const LONGEST_LINE: usize = 4 << 20;

/// The longest line with the bytes of a row: the largest row of any storage in base64, with room
/// for the names. A parsed line takes no more than its length.
const LONGEST_ROW_LINE: usize = 32 << 20;

/// The beginnings of the lines that have the bytes of a row.
const ROW_LINES: [&[u8]; 3] = [b"{\"event\":", b"{\"copy\":", b"{\"record\":"];

/// The facts of the first line.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) app: AppName,
    pub(crate) partitions: std::num::NonZeroU16,
    pub(crate) deployment: Deployment,
}

/// A fact that an import stores.
#[derive(Debug)]
pub(crate) enum Fact {
    /// An entry of the log of a partition.
    Entry {
        partition: u16,
        entry: Entry,
        bytes: Bytes,
    },
    /// The whole copy of the marked event before it.
    Copy {
        entry: Entry,
        bytes: Bytes,
    },
    /// A record of the marked event before it.
    Record {
        record: StoredRecord,
        bytes: Bytes,
    },
    Number(LastNumber),
    Series(SeriesId, StoredDefinitions),
    Counter(CounterKey, u64),
    Range(CounterKey, LedgerEntry),
}

/// Reads a stream.
pub(crate) struct StreamReader<R> {
    source: R,
    header: Header,
    line: Vec<u8>,
    digest: Sha256,
    lines: u64,
    events: u64,
    last: Option<LastEntry>,
    /// The place of the marker that the next lines belong to.
    marked: Option<EventPlace>,
    are_events_over: bool,
    last_series: Option<SeriesId>,
    counters: CountersSoFar,
}

/// The last entry of a log.
#[derive(Clone, Copy)]
struct LastEntry {
    partition: u16,
    plog: Offset,
    epoch: Epoch,
}

/// The exclusive upper bound of the numbers of sequences.
const NUMBERS_END: u64 = 1 << 62;

/// The exclusive upper bound of the counters of document numbers.
const COUNTERS_END: u64 = 1 << 63;

type Why = String;

impl<R: BufRead> StreamReader<R> {
    /// Reads the first line.
    pub(crate) fn begin(mut source: R) -> Result<StreamReader<R>, StreamError> {
        let mut line = Vec::new();
        read_line(&mut source, &mut line, 1)?;
        let any: AnyHeader = serde_json::from_slice(&line).map_err(|_| StreamError::Foreign)?;
        let found = any.header.format;
        if found != FORMAT_VERSION {
            return Err(StreamError::OtherFormat { found, known: FORMAT_VERSION });
        }
        let damaged = |why| StreamError::Damaged { line: 1, why };
        let Ok(Line::Header(header)) = serde_json::from_slice(&line) else {
            return Err(damaged("it does not have the fields of a header".to_owned()));
        };
        if header.row_formats != row_formats() {
            return Err(StreamError::OtherRows);
        }
        let header = read_header(header).map_err(damaged)?;
        Ok(StreamReader {
            source,
            header,
            digest: Sha256::new_with_prefix(&line),
            line,
            lines: 1,
            events: 0,
            last: None,
            marked: None,
            are_events_over: false,
            last_series: None,
            counters: CountersSoFar::default(),
        })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Returns the checksum of the lines that were read.
    pub(crate) fn sha256(&self) -> String {
        hex(&self.digest.clone().finalize())
    }

    /// Returns the next fact; `None` after the last one, if the stream is whole.
    pub(crate) fn next(&mut self) -> Result<Option<Fact>, StreamError> {
        let number = self.lines + 1;
        if read_line(&mut self.source, &mut self.line, number)? == 0 {
            return Err(StreamError::Cut(self.lines));
        }
        let damaged = |why| StreamError::Damaged { line: number, why };
        let line =
            serde_json::from_slice(&self.line).map_err(|error| damaged(error.to_string()))?;
        if let Line::End(end) = line {
            self.check_end(&end).map_err(damaged)?;
            self.line.clear();
            let behind = self.source.by_ref().take(1).read_to_end(&mut self.line)?;
            return match behind {
                0 => Ok(None),
                _ => Err(damaged("bytes follow the end".to_owned())),
            };
        }
        self.lines = number;
        self.digest.update(&self.line);
        self.fact(line).map(Some).map_err(damaged)
    }

    fn check_end(&self, end: &EndLine) -> Result<(), Why> {
        let (lines, events) = (self.lines, self.events);
        if *end != (EndLine { lines, events, sha256: self.sha256() }) {
            return Err("the lines before it are not those that were written".to_owned());
        }
        Ok(self.counters.end()?)
    }

    fn fact(&mut self, line: Line) -> Result<Fact, Why> {
        Ok(match line {
            Line::Event(EventLine { partition, offset, ws, wlog, bytes }) => {
                let in_ws = Some((WsId(ws), Offset(wlog)));
                self.entry(partition, Offset(offset), in_ws, bytes)?
            }
            Line::Fencing(FencingLine { partition, offset, bytes }) => {
                self.entry(partition, Offset(offset), None, bytes)?
            }
            Line::Copy(CopyLine { ws, wlog, bytes }) => {
                let marked = self.marked(ws)?;
                let row = AppRow::Wlog(WsId(ws), Offset(wlog));
                let entry = row.entry(&bytes, self.header.partitions).map_err(text)?;
                let is_its =
                    |copy: EventPlace| (copy.plog, copy.wlog) == (marked.plog, marked.wlog);
                if !entry.place().is_some_and(is_its) {
                    return Err("it is not the copy of the event before it".to_owned());
                }
                self.check_tables(&entry)?;
                Fact::Copy { entry, bytes }
            }
            Line::Record(RecordLine { ws, id, bytes }) => {
                let marked = self.marked(ws)?;
                let row = AppRow::Record(WsId(ws), RecordId(id));
                let record = row.record(&bytes).map_err(text)?;
                if record.version.plog != marked.plog {
                    return Err("it is not a record of the event before it".to_owned());
                }
                self.check_table(&record.record)?;
                Fact::Record { record, bytes }
            }
            Line::Number(number) => self.number(number)?,
            Line::Series(series) => self.series(series)?,
            Line::Counter(counter) => {
                self.end_events();
                let of = counter_key(&counter.of)?;
                if counter.next > COUNTERS_END {
                    return Err("the counter is too high".to_owned());
                }
                self.counters.counter(&of, counter.next)?;
                Fact::Counter(of, counter.next)
            }
            Line::Range(range) => {
                self.end_events();
                let (of, entry) = range_fact(range)?;
                self.counters.range(&of, entry.first, entry.until)?;
                Fact::Range(of, entry)
            }
            Line::Header(_) | Line::End(_) => return Err("it is not in its place".to_owned()),
        })
    }

    /// Returns an entry of the log of a partition. `in_ws` is the workspace of its event, and the
    /// offset in the log of the workspace.
    fn entry(
        &mut self,
        partition: u16,
        plog: Offset,
        in_ws: Option<(WsId, Offset)>,
        bytes: Bytes,
    ) -> Result<Fact, Why> {
        if self.last.is_some_and(|last| last.partition > partition) {
            return Err("its partition is not in its place".to_owned());
        }
        let before = self.last.filter(|last| last.partition == partition);
        let next = before.map_or(Offset::FIRST, |before| before.plog.next());
        if self.are_events_over || plog != next || partition >= self.header.partitions.get() {
            return Err("the event is not in its place".to_owned());
        }
        let row = AppRow::Plog(partition, plog);
        let entry = row.entry(&bytes, self.header.partitions).map_err(text)?;
        if entry.place().map(|place| (place.ws, place.wlog)) != in_ws {
            return Err("the line and its bytes name different places".to_owned());
        }
        let epoch = entry.epoch();
        if before.is_some_and(|before| before.epoch > epoch) {
            return Err("its epoch is lower than that of the event before it".to_owned());
        }
        self.check_tables(&entry)?;
        self.last = Some(LastEntry { partition, plog, epoch });
        self.marked = entry.place().filter(|_| matches!(entry, Entry::Marker(_)));
        self.events += u64::from(in_ws.is_some());
        Ok(Fact::Entry { partition, entry, bytes })
    }

    /// Checks that the header has the tables of the records of an event. No table of an application
    /// is ever removed, so an export has each of them. A node could not check the records of a
    /// table that it does not know.
    fn check_tables(&self, entry: &Entry) -> Result<(), Why> {
        let Entry::Event(event) = entry else { return Ok(()) };
        event.changes.iter().try_for_each(|change| self.check_table(&change.record))
    }

    /// A number may be narrower than its field, which became an int64 later. A wider one, or a
    /// field that the header lacks, came while the application was exported.
    fn check_table(&self, Record { table: name, fields, .. }: &Record) -> Result<(), Why> {
        let Some(table) = self.header.deployment.schema.table(name) else {
            return Err(format!(
                "it has a record of the table {name}, which the schema of the header lacks: export \
                 the application again"
            ));
        };
        let mut fields = fields.clone();
        table.widen(&mut fields);
        for (field, value) in fields.iter() {
            table.check(field, value).map_err(|wrong| {
                format!("it does not fit the header ({wrong}): export the application again")
            })?;
        }
        Ok(())
    }

    /// The schema names all sequences of the application, and no sequence is ever removed. The
    /// offset in the log of the workspace follows from the marker.
    fn number(&self, NumberLine { ws, sequence, last }: NumberLine) -> Result<Fact, Why> {
        self.marked(ws)?;
        let mut ids = self.header.deployment.schema.sequences().values().flat_map(BTreeMap::values);
        let standard = [standard::RECORD_ID, standard::CRECORD_ID];
        if !standard.contains(&SeqId(sequence)) && !ids.any(|id| *id == sequence) {
            return Err(format!("the schema has no sequence with the id {sequence}"));
        }
        if !(1..NUMBERS_END).contains(&last) {
            return Err("no sequence has this number".to_owned());
        }
        Ok(Fact::Number(LastNumber { ws, seq: sequence, number: last }))
    }

    fn series(&mut self, SeriesLine { id, stored }: SeriesLine) -> Result<Fact, Why> {
        self.end_events();
        let id: SeriesId = id.parse().map_err(text)?;
        match &self.last_series {
            Some(last) if *last == id => return Err("the stream has the series twice".to_owned()),
            Some(last) if *last > id => return Err("the series is not in its place".to_owned()),
            _ => {}
        }
        let definitions = &stored.definitions;
        let mut all = definitions.iter().enumerate();
        if all.any(|(at, definition)| definitions[..at].contains(definition)) {
            return Err("the series has a definition twice".to_owned());
        }
        let is_own = |it: &Definition| it.id.parse().is_ok_and(|parsed: SeriesId| parsed == id);
        if definitions.is_empty() || !definitions.iter().all(is_own) {
            return Err("the series has no definitions, or those of another one".to_owned());
        }
        self.last_series = Some(id.clone());
        Ok(Fact::Series(id, stored))
    }

    /// Returns the place of the marker before a line.
    fn marked(&self, ws: u64) -> Result<EventPlace, Why> {
        let marked = self.marked.filter(|marked| marked.ws.0 == ws && !self.are_events_over);
        marked.ok_or_else(|| "no marker of its workspace is before it".to_owned())
    }

    fn end_events(&mut self) {
        self.are_events_over = true;
    }
}

/// Reads a line with its line feed. Returns its length, 0 at the end of the source.
fn read_line(
    source: &mut impl BufRead,
    line: &mut Vec<u8>,
    number: u64,
) -> Result<usize, StreamError> {
    line.clear();
    let mut most = LONGEST_LINE;
    let rest = &mut *source;
    rest.take(most as u64).read_until(b'\n', line)?;
    if line.len() == most && ROW_LINES.iter().any(|start| line.starts_with(start)) {
        most = LONGEST_ROW_LINE;
        source.take((most - line.len()) as u64).read_until(b'\n', line)?;
    }
    match line.last() {
        None | Some(b'\n') => Ok(line.len()),
        Some(_) if line.len() < most => Err(StreamError::Cut(number - 1)),
        Some(_) => {
            let why = format!("it is longer than {most} bytes");
            Err(StreamError::Damaged { line: number, why })
        }
    }
}

fn read_header(header: HeaderLine) -> Result<Header, Why> {
    let HeaderLine { app, partitions, trust_level, schema, .. } = header;
    let level = trust_level.to_string().parse().map_err(text)?;
    let deployment = Deployment::new(level, schema.parse().map_err(text)?);
    let partitions = partitions.try_into().map_err(text)?;
    Ok(Header { app: app.parse().map_err(text)?, partitions, deployment })
}

fn counter_key(CounterName { series, period, ws }: &CounterName) -> Result<CounterKey, Why> {
    let (series, period) = (series.parse().map_err(text)?, period.parse().map_err(text)?);
    Ok(CounterKey { series, period, ws: ws.map(WsId) })
}

fn range_fact(range: RangeLine) -> Result<(CounterKey, LedgerEntry), Why> {
    let RangeLine { of, first, until, is_open, owner, reserved_at_ms } = range;
    if first >= until || until > COUNTERS_END {
        return Err("the range has no counters, or too high ones".to_owned());
    }
    let state = if is_open { RangeState::Open } else { RangeState::NotIssued };
    let reserved_at = clock::WallTime::from_millis(reserved_at_ms);
    Ok((counter_key(&of)?, LedgerEntry { first, until, owner, reserved_at, state }))
}

fn text(error: impl std::error::Error) -> Why {
    base::with_causes(&error)
}
