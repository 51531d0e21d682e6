//! The rows in the way of partitions, as an operator sees them.

use eventlog::{AppRow, Obstacle, Offset, PlaceEvidence, Repair, SEARCHED_EVENTS};
use istorage::{CorruptRow, Key};
use processor::{Commands, bytes::Bytes};
use seqstorage::PartitionStorage;
use serde::{Serialize, Serializer};
use serde_json::json;
use sysvvm::NumberPlace;

use super::hex;
use crate::app::ServedApp;

/// The number of bytes of a row that are shown.
pub(super) const SHOWN: usize = 1_024;

/// The number of places that are proposed for a damaged event.
const CANDIDATES: usize = 16;

/// A partition that runs no commands, or that has met damaged rows.
#[derive(Clone, Debug, Serialize)]
pub struct StuckPartition {
    /// The owner and the name of the application.
    pub app: String,
    /// The number of the partition.
    pub partition: u16,
    /// The status of the partition.
    pub status: String,
    /// The row in the way; `None` if the partition does not wait for a repair of a row.
    pub row: Option<RowInTheWay>,
    /// The damaged rows that readers and commands met, up to 32, if the partition runs commands.
    /// Only commands and readers that need these rows fail.
    pub damaged: Vec<RowInTheWay>,
}

/// A row that keeps a partition from working.
#[derive(Clone, Debug, Serialize)]
pub struct RowInTheWay {
    /// The name of the row, with its key.
    pub name: String,
    /// The offset of the event in the PLog, if the row is one.
    pub event: Option<u64>,
    /// The place of the stored number, if the row is one, and the repair is `number`.
    #[serde(serialize_with = "number_place")]
    pub number: Option<NumberPlace>,
    /// The content of the row now; `None` if there is no such row.
    pub found: Option<RowContent>,
    /// The bytes that the node was about to write, if it met the row in a write. They are not
    /// always the right content.
    pub expected: Option<RowContent>,
    /// The repair of the row: `mark`, `number`, `restore`, `remove`, `put_back`, `other_version` or
    /// `restore_storage`.
    pub repair: &'static str,
    /// The repair of the row, for a person.
    pub advice: &'static str,
    /// The place that a damaged event still names in its bytes.
    pub hint: Option<PlaceHint>,
    /// Whether the bytes still name a fencing entry, which is written again.
    pub fencing: bool,
    /// The places that the event may have, up to 16, the most certain one first, if the bytes name
    /// no place.
    pub candidates: Vec<ProposedPlace>,
    /// The extent of the search for candidates, or the reason why it failed.
    pub search: Option<String>,
}

/// A place that a damaged event may have.
#[derive(Clone, Debug, Serialize)]
pub struct ProposedPlace {
    /// The workspace of the event.
    pub ws: u64,
    /// The offset of the event in the WLog.
    pub offset: u64,
    /// The reason why the event may be there.
    pub why: &'static str,
}

/// The place that the bytes of a damaged event name. It may be wrong, because the bytes are
/// damaged.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlaceHint {
    /// The workspace of the event.
    pub ws: u64,
    /// The offset of the event in the WLog.
    pub offset: u64,
}

/// The content of a row, for an operator.
#[derive(Clone, Debug, Serialize)]
pub struct RowContent {
    /// The number of bytes.
    pub bytes: usize,
    /// The first 1,024 bytes, in hexadecimal.
    pub hex: String,
    /// The meaning of the bytes, or the reason why they cannot be read.
    pub meaning: String,
}

impl ServedApp {
    /// The row of an obstacle, as it is stored now.
    pub(super) async fn row_in_the_way(&self, partition: u16, obstacle: Obstacle) -> RowInTheWay {
        let (row, expected, repair) = match obstacle {
            Obstacle::Row { row, expected, repair } => (row, expected, repair),
            Obstacle::Storage { row: Some(row), .. } => {
                let started = self.started().get(&partition).cloned();
                let storage = started.as_ref().map(|started| &*started.storage);
                return RowInTheWay::of_number(row, storage);
            }
            Obstacle::Storage { what, row: None } => return RowInTheWay::of_storage(what),
        };
        let mut shown = match self.reader.row(row).await {
            Ok(found) => RowInTheWay::of_row(row, found.as_ref(), expected.as_ref(), repair),
            Err(error) => RowInTheWay {
                found: Some(RowContent {
                    bytes: 0,
                    hex: String::new(),
                    meaning: format!("the row cannot be read now: {error}"),
                }),
                ..RowInTheWay::of_row(row, None, expected.as_ref(), repair)
            },
        };
        if let (Repair::Mark, AppRow::Plog(partition, event), None) = (repair, row, shown.hint)
            && !shown.fencing
        {
            self.search_place(partition, event, &mut shown).await;
        }
        shown
    }

    /// Searches for the place of an event whose bytes do not name it.
    async fn search_place(&self, partition: u16, event: Offset, shown: &mut RowInTheWay) {
        shown.search = Some(match self.reader.place_candidates(partition, event).await {
            Ok(found) => {
                shown.candidates = found.iter().take(CANDIDATES).map(ProposedPlace::from).collect();
                format!(
                    "{} candidates among the workspaces of the {SEARCHED_EVENTS} events before the event and after it",
                    found.len()
                )
            }
            Err(error) => format!("the search for candidates failed: {error}"),
        });
    }

    /// The rows that readers and commands of a partition met, and that are still damaged.
    pub(super) async fn damaged_rows(
        &self,
        partition: u16,
        commands: &Commands,
    ) -> Vec<RowInTheWay> {
        let (rows, numbers) = commands.damaged_rows();
        let mut damaged = Vec::new();
        for row in rows {
            match self.reader.row(row).await {
                Ok(found) if self.reader.is_whole(row, found.as_ref()) => commands.note_whole(row),
                Ok(found) => {
                    let repair = Repair::Restore;
                    damaged.push(RowInTheWay::of_row(row, found.as_ref(), None, repair));
                }
                Err(error) => damaged.push(RowInTheWay::of_storage(format!("{row}: {error}"))),
            }
        }
        for row in numbers {
            let started = self.started().get(&partition).cloned();
            let storage = started.as_ref().map(|started| &*started.storage);
            let is_unchanged = match storage {
                Some(storage) => storage.is_unchanged(&row).await.unwrap_or(true),
                None => true,
            };
            if is_unchanged {
                // The bytes that the command met are shown.
                damaged.push(RowInTheWay::of_number(row, storage));
            } else {
                commands.note_changed(&row);
            }
        }
        damaged
    }
}

impl RowInTheWay {
    /// A row with this content, and its repair. Nothing else is known of it.
    fn new(
        name: String,
        found: Option<RowContent>,
        repair: &'static str,
        advice: &'static str,
    ) -> RowInTheWay {
        RowInTheWay {
            name,
            event: None,
            number: None,
            found,
            expected: None,
            repair,
            advice,
            hint: None,
            fencing: false,
            candidates: Vec::new(),
            search: None,
        }
    }

    fn of_row(
        row: AppRow,
        found: Option<&Bytes>,
        expected: Option<&Bytes>,
        repair: Repair,
    ) -> RowInTheWay {
        let (repair, advice) = match repair {
            Repair::Mark => ("mark", "restore the row, or mark the event"),
            Repair::Restore => ("restore", "restore the row"),
            Repair::Remove => {
                ("remove", "the row contradicts the log: find its writer, and remove the row")
            }
            Repair::PutBack => (
                "put_back",
                "the row contradicts the log: find its writer, and put back the former bytes of the record",
            ),
            Repair::OtherVersion => {
                ("other_version", "run the version of the program that wrote the row")
            }
        };
        let content = |bytes: &Bytes| RowContent::of(row, bytes);
        let hint = found.and_then(|bytes| row.hinted_place(bytes));
        RowInTheWay {
            event: if let AppRow::Plog(_, offset) = row { Some(offset.0) } else { None },
            expected: expected.map(content),
            hint: hint.map(|place| PlaceHint { ws: place.ws.0, offset: place.wlog.0 }),
            fencing: found.is_some_and(|bytes| row.hints_at_fencing(bytes)),
            ..RowInTheWay::new(row.to_string(), found.map(content), repair, advice)
        }
    }

    /// The row of a number that makes no sense. A safe number is not shown here, because it costs
    /// the reading of a log.
    fn of_number(row: CorruptRow, storage: Option<&PartitionStorage>) -> RowInTheWay {
        let found = RowContent {
            bytes: row.found.len(),
            hex: hex(&row.found[..row.found.len().min(SHOWN)]),
            meaning: format!("{}: a number has 8 bytes, big endian", row.why),
        };
        let number = storage.and_then(|storage| storage.number_place(&row.key));
        let (repair, advice) = match number {
            Some(_) => ("number", "restore the row from a backup, or store a safe number"),
            None => ("restore", "find the writer of the row, and restore the row from a backup"),
        };
        let name = with_key(&row.what, &row.key);
        RowInTheWay { number, ..RowInTheWay::new(name, Some(found), repair, advice) }
    }

    /// A part of the storage that cannot be read.
    fn of_storage(what: String) -> RowInTheWay {
        let found = RowContent { bytes: 0, hex: String::new(), meaning: what };
        let name = "a part of the storage that cannot be read".to_owned();
        let advice = "the storage itself is damaged: stop the node, restore the file of redb or the data of the server from a backup, and start the node again";
        RowInTheWay::new(name, Some(found), "restore_storage", advice)
    }
}

/// The workspace and the sequence of a number. Both are null for a stored offset.
fn number_place<S: Serializer>(place: &Option<NumberPlace>, to: S) -> Result<S::Ok, S::Error> {
    let shown = place.map(|place| match place {
        NumberPlace::Offset => json!({ "ws": null, "sequence": null }),
        NumberPlace::Last { ws, seq } => json!({ "ws": ws, "sequence": seq }),
    });
    shown.serialize(to)
}

/// The name of a row of the stored numbers, with its key.
pub(super) fn with_key(name: &str, key: &Key) -> String {
    format!("{name} (key {}/{})", hex(&key.pkey), hex(&key.ccols))
}

impl From<&eventlog::PlaceCandidate> for ProposedPlace {
    fn from(found: &eventlog::PlaceCandidate) -> ProposedPlace {
        let why = match found.evidence {
            PlaceEvidence::Copy => "the log of the workspace has the event there",
            PlaceEvidence::DamagedCopy => "the log of the workspace has a damaged row there",
            PlaceEvidence::Gap => "the log of the workspace has a gap there",
        };
        ProposedPlace { ws: found.ws.0, offset: found.wlog.0, why }
    }
}

impl RowContent {
    pub(super) fn of(row: AppRow, bytes: &Bytes) -> RowContent {
        RowContent {
            bytes: bytes.len(),
            hex: hex(&bytes[..bytes.len().min(SHOWN)]),
            meaning: row.describe(bytes),
        }
    }
}
