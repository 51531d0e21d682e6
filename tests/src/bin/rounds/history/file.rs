//! The file of a history: a JSON object in each line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{Event, FinalState, History, Operation, Part, PartitionEvent, Record, RecordKey};

/// A line of the file. Lines that only the timeline needs are ignored by the checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// A record of a list at the end of the run.
    FinalListed {
        ws: u64,
        record: Record,
    },
    /// All of a part is in the file, before this line.
    Whole {
        part: Part,
    },
    /// A part of the final state that could not be read, or not to its end.
    Unreadable {
        part: Part,
        why: String,
    },
    /// A violation that the run itself found: of times, memory, open files or exit codes.
    Broken {
        text: String,
    },
    /// The last line. A file without it is of a run that did not come to its end.
    End,
}

impl Line {
    /// The workspace of a line. `None` if it has none.
    pub(crate) fn ws(&self) -> Option<u64> {
        match self {
            Line::Operation(operation) => Some(operation.ws),
            Line::PartitionEvent { event, .. } => Some(event.ws),
            Line::LogEvent { ws, .. }
            | Line::FinalRecord { ws, .. }
            | Line::FinalListed { ws, .. } => Some(*ws),
            Line::Whole { part } => match part {
                Part::Operations(ws) | Part::Log(ws) | Part::Records(ws) | Part::List(ws) => {
                    Some(*ws)
                }
                Part::Partition(_) | Part::All => None,
            },
            _ => None,
        }
    }

    /// The part of the final state that has the line.
    pub(crate) fn part(&self) -> Option<Part> {
        match self {
            Line::LogEvent { ws, .. } => Some(Part::Log(*ws)),
            Line::PartitionEvent { partition, .. } => Some(Part::Partition(*partition)),
            Line::FinalRecord { ws, .. } => Some(Part::Records(*ws)),
            Line::FinalListed { ws, .. } => Some(Part::List(*ws)),
            _ => None,
        }
    }
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

/// Reads a history. Fails if a line is not one of a history. The last line may be cut: then the run
/// did not come to its end. The parts that are marked as whole before this line are whole.
pub(crate) fn read(path: &Path) -> io::Result<History> {
    let mut history = History::default();
    let mut lines = BufReader::new(File::open(path)?).lines().enumerate().peekable();
    let mut is_whole = false;
    while let Some((at, text)) = lines.next() {
        let line: Line = match serde_json::from_str(&text?) {
            Ok(line) => line,
            Err(_) if at > 0 && lines.peek().is_none() => break,
            Err(error) => {
                let why = format!("{}, line {}: {error}", path.display(), at + 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        };
        is_whole = matches!(line, Line::End);
        history.add(line);
    }
    if !is_whole {
        let why = "the last line is missing, so the run did not end".to_owned();
        history.end.unreadable.insert(Part::All, why);
    }
    Ok(history)
}

impl FinalState {
    /// The lines of the file that make the state.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let FinalState { logs, partitions, records, listed, whole, unreadable } = self;
        let event = |ws: &u64, event: &Event| Line::LogEvent { ws: *ws, event: event.clone() };
        let mut lines: Vec<Line> = Vec::new();
        for (ws, events) in logs {
            lines.extend(events.iter().map(|of| event(ws, of)));
        }
        for (partition, events) in partitions {
            let partition = *partition;
            let events = events.iter().cloned();
            lines.extend(events.map(|event| Line::PartitionEvent { partition, event }));
        }
        let record = |((ws, _), of): (&RecordKey, &Record)| (*ws, of.clone());
        let records = records.iter().map(record);
        lines.extend(records.map(|(ws, record)| Line::FinalRecord { ws, record }));
        let listed = listed.iter().map(record);
        lines.extend(listed.map(|(ws, record)| Line::FinalListed { ws, record }));
        lines.extend(whole.iter().map(|part| Line::Whole { part: *part }));
        let unreadable = unreadable.iter().map(|(part, why)| (*part, why.clone()));
        lines.extend(unreadable.map(|(part, why)| Line::Unreadable { part, why }));
        lines
    }
}

impl History {
    pub(crate) fn add(&mut self, line: Line) {
        match line {
            Line::Run { .. } | Line::Note { .. } | Line::End => {}
            Line::Operation(operation) => self.operations.push(operation),
            Line::Broken { text } => self.broken.push(text),
            Line::LogEvent { ws, event } => self.end.logs.entry(ws).or_default().push(event),
            Line::PartitionEvent { partition, event } => {
                self.end.partitions.entry(partition).or_default().push(event);
            }
            Line::FinalRecord { ws, record } => {
                self.end.records.insert((ws, record.row.id), record);
            }
            Line::FinalListed { ws, record } => {
                self.end.listed.insert((ws, record.row.id), record);
            }
            Line::Whole { part } => _ = self.end.whole.insert(part),
            Line::Unreadable { part, why } => _ = self.end.unreadable.insert(part, why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_run_that_did_not_end_has_the_parts_that_are_marked_as_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let first = Line::Run { seed: 1, settings: String::new() };
        let (damaged, whole) = (Part::Log(7), Part::Log(8));
        for (cut, is_end) in [(0, true), (1, true), (2, false)] {
            let mut writer = HistoryWriter::create(&path).unwrap();
            writer.write(&first).unwrap();
            writer.write(&Line::Unreadable { part: damaged, why: "damaged".into() }).unwrap();
            writer.write(&Line::Whole { part: whole }).unwrap();
            writer.end().unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.truncate(bytes.len() - cut);
            std::fs::write(&path, &bytes).unwrap();
            let end = read(&path).unwrap().end;
            assert_eq!(end.unreadable.contains_key(&Part::All), !is_end, "{cut}");
            assert!(end.is_whole(whole));
            assert!(!end.is_whole(damaged) && !end.is_whole(Part::Log(9)));
            std::fs::remove_file(&path).unwrap();
        }
    }

    /// Earlier runs did not record the times of events.
    #[test]
    fn events_without_a_time_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let version = r#""version":{"epoch":1,"offset":2}"#;
        let event = format!(r#"{{"wlog":1,{version},"request":"a","rows":[]}}"#);
        let of_partition = format!(r#"{{"ws":7,"wlog":1,{version},"request":"a"}}"#);
        let lines = format!(
            "{{\"line\":\"logEvent\",\"ws\":7,\"event\":{event}}}\n\
             {{\"line\":\"partitionEvent\",\"partition\":1,\"event\":{of_partition}}}\n"
        );
        std::fs::write(&path, lines).unwrap();
        let end = read(&path).unwrap().end;
        assert_eq!(end.logs[&7][0].time_micros, None);
        assert_eq!(end.partitions[&1][0].time_micros, None);
    }

    #[test]
    fn a_file_with_a_line_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        std::fs::write(&path, "no\n{\"line\":\"end\"}\n").unwrap();
        assert!(read(&path).is_err());
    }
}
