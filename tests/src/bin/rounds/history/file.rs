//! The file of a history: a JSON object in each line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{Event, History, Operation, PartitionEvent, Record};

/// A line of the file. Lines that only the timeline needs are ignored by the checks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Line {
    /// The first line: the command line of the run.
    Run {
        seed: u64,
        settings: String,
    },
    Operation(Operation),
    /// Something that happened to the cluster, for the timeline.
    Note {
        at: u64,
        text: String,
    },
    /// An event of the final log of a workspace.
    LogEvent {
        ws: u64,
        event: Event,
    },
    /// An event of the final log of a partition.
    PartitionEvent {
        partition: u16,
        event: PartitionEvent,
    },
    /// A record at the end of the run.
    FinalRecord {
        ws: u64,
        record: Record,
    },
    /// The last line. A file without it is of a run that did not come to its end.
    End,
}

/// Writes a history while it happens.
#[derive(Debug)]
pub(crate) struct HistoryWriter {
    file: BufWriter<File>,
}

impl HistoryWriter {
    pub(crate) fn create(path: &Path) -> io::Result<HistoryWriter> {
        Ok(HistoryWriter { file: BufWriter::new(File::create_new(path)?) })
    }

    pub(crate) fn write(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")
    }

    pub(crate) fn end(mut self) -> io::Result<()> {
        self.write(&Line::End)?;
        self.file.flush()
    }
}

/// Reads a history. Fails if a line is not one of a history, or if the last line is missing.
pub(crate) fn read(path: &Path) -> io::Result<History> {
    let mut history = History::default();
    let mut is_whole = false;
    for (at, text) in BufReader::new(File::open(path)?).lines().enumerate() {
        let line: Line = serde_json::from_str(&text?).map_err(|error| {
            let why = format!("{}, line {}: {error}", path.display(), at + 1);
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        is_whole = matches!(line, Line::End);
        history.add(line);
    }
    if !is_whole {
        let why = format!("{}: the last line is missing, so the run did not end", path.display());
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    Ok(history)
}

impl History {
    pub(crate) fn add(&mut self, line: Line) {
        match line {
            Line::Run { .. } | Line::Note { .. } | Line::End => {}
            Line::Operation(operation) => self.operations.push(operation),
            Line::LogEvent { ws, event } => self.end.logs.entry(ws).or_default().push(event),
            Line::PartitionEvent { partition, event } => {
                self.end.partitions.entry(partition).or_default().push(event);
            }
            Line::FinalRecord { ws, record } => {
                self.end.records.insert((ws, record.row.id), record);
            }
        }
    }
}
